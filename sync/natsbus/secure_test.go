package natsbus

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/spillgate/spillgate/test/proc"
)

func TestTLSBothWays(t *testing.T) {
	ours, theirs := proc.NewAuthority(t), proc.NewAuthority(t)
	s := proc.NATS(t, ours.NATSArgs(t)...)
	cert, key := ours.Client(t, "edge")
	strange, strangeKey := theirs.Client(t, "edge")
	for _, c := range []struct {
		name string
		cfg  Config
		why  string // it is refused; empty: it is not
	}{
		{"as it should be", Config{CAFile: ours.CA, CertFile: cert, KeyFile: key}, ""},
		{"no certificate", Config{CAFile: ours.CA}, "asks for a client certificate: tls.cert is not set"},
		{"a stranger's certificate", Config{CAFile: ours.CA, CertFile: strange, KeyFile: strangeKey}, "asks for a client certificate: shown tls.cert " + strange},
		{"a server we do not trust", Config{CAFile: theirs.CA, CertFile: cert, KeyFile: key}, "certificate signed by unknown authority"},
		{"the system's authorities", Config{CertFile: cert, KeyFile: key}, "certificate signed by unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URLs = []string{s.URL}
			b := connect(t, c.cfg)
			if c.why == "" {
				works(t, b, serveEcho(t, b))
				return
			}
			refusesAtOnce(t, b)
			proc.Until(t, heals, func() error { return outOfReach(b, c.why) })
		})
	}
}

func TestNoPlaintextWhereTLSIsAskedFor(t *testing.T) {
	s := proc.NATS(t) // speaks no TLS
	refusesAtOnce(t, connect(t, Config{URLs: []string{s.URL}, CAFile: proc.NewAuthority(t).CA}))
}

func TestWebsockets(t *testing.T) {
	addr := proc.FreeAddr(t)
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "websocket { listen: %q, no_tls: true }\n", addr), 0o600); err != nil {
		t.Fatal(err)
	}
	proc.NATS(t, "-c", conf)
	b := connect(t, Config{URLs: []string{"ws://" + addr}})
	works(t, b, serveEcho(t, b))
}

func TestNKey(t *testing.T) {
	dir := t.TempDir()
	seeds := map[string]string{}
	var known string
	for _, name := range []string{"known", "unknown"} {
		user, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		seeds[name] = filepath.Join(dir, name)
		if err := os.WriteFile(seeds[name], seed, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "known" {
			if known, err = user.PublicKey(); err != nil {
				t.Fatal(err)
			}
		}
	}
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "authorization { users = [ { nkey: %s } ] }\n", known), 0o600); err != nil {
		t.Fatal(err)
	}
	s := proc.NATS(t, "-c", conf)
	b := connect(t, Config{URLs: []string{s.URL}, NKeySeedFile: seeds["known"]})
	works(t, b, serveEcho(t, b))
	refusesAtOnce(t, connect(t, Config{URLs: []string{s.URL}, NKeySeedFile: seeds["unknown"]}))
}
