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

// newUser makes a user, and has its seed in a file.
func newUser(t *testing.T, file string) (public string) {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	if public, err = user.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return public
}

// lets writes a server's configuration that lets in a user alone.
func lets(t *testing.T, conf, user string) {
	t.Helper()
	if err := os.WriteFile(conf, fmt.Appendf(nil, "authorization { users = [ { nkey: %s } ] }\n", user), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNKey(t *testing.T) {
	dir := t.TempDir()
	known, unknown, conf := filepath.Join(dir, "known"), filepath.Join(dir, "unknown"), filepath.Join(dir, "nats.conf")
	lets(t, conf, newUser(t, known))
	newUser(t, unknown)
	s := proc.NATS(t, "-c", conf)
	b := connect(t, Config{URLs: []string{s.URL}, NKeySeedFile: known})
	works(t, b, serveEcho(t, b))
	refusesAtOnce(t, connect(t, Config{URLs: []string{s.URL}, NKeySeedFile: unknown}))
}

// The seed of a user, certificates, and who signs them are replaced while a bus runs: it connects with
// those that the files have then.
func TestSecretsAreReplaced(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(from, name string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(file(name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	renew := func() (args []string) {
		t.Helper()
		authority := proc.NewAuthority(t)
		cert, key := authority.Client(t, "edge")
		put(authority.CA, "ca")
		put(cert, "cert")
		put(key, "key")
		lets(t, file("nats.conf"), newUser(t, file("seed")))
		return append([]string{"-c", file("nats.conf")}, authority.NATSArgs(t)...)
	}
	addr := proc.FreeAddr(t)
	s := proc.NATSAt(t, addr, renew()...)
	b := connect(t, Config{URLs: []string{s.URL}, CAFile: file("ca"), CertFile: file("cert"), KeyFile: file("key"), NKeySeedFile: file("seed")})
	echo := serveEcho(t, b)
	works(t, b, echo)
	for range 2 {
		s.Kill()
		s = proc.NATSAt(t, addr, renew()...)
		works(t, b, echo)
	}
}
