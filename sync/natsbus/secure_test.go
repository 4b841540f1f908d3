package natsbus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/spillgate/spillgate/test/proc"
)

// authority signs certificates and keeps all files in one folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	made int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes <name>.pem and <name>.key of what template asks for.
func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.made++
	template.SerialNumber = big.NewInt(a.made)
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{a.file(name + ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.file(name + ".key"): {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func TestTLSBothWays(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	ours.sign(t, "edge", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	theirs.sign(t, "edge", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	s := proc.NATS(t, "--tls", "--tlsverify", "--tlscacert", ours.file("ca.pem"), "--tlscert", ours.file("server.pem"), "--tlskey", ours.file("server.key"))
	for _, c := range []struct {
		name string
		cfg  Config
		good bool
	}{
		{"as it should be", Config{CAFile: ours.file("ca.pem"), CertFile: ours.file("edge.pem"), KeyFile: ours.file("edge.key")}, true},
		{"no certificate", Config{CAFile: ours.file("ca.pem")}, false},
		{"a stranger's certificate", Config{CAFile: ours.file("ca.pem"), CertFile: theirs.file("edge.pem"), KeyFile: theirs.file("edge.key")}, false},
		{"a server we do not trust", Config{CAFile: theirs.file("ca.pem"), CertFile: ours.file("edge.pem"), KeyFile: ours.file("edge.key")}, false},
		{"the system's authorities", Config{CertFile: ours.file("edge.pem"), KeyFile: ours.file("edge.key")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URLs = []string{s.URL}
			b := connect(t, c.cfg)
			if !c.good {
				refusesAtOnce(t, b)
				return
			}
			works(t, b, serveEcho(t, b))
		})
	}
}

func TestNoPlaintextWhereTLSIsAskedFor(t *testing.T) {
	ca := newAuthority(t)
	s := proc.NATS(t) // speaks no TLS
	refusesAtOnce(t, connect(t, Config{URLs: []string{s.URL}, CAFile: ca.file("ca.pem")}))
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
