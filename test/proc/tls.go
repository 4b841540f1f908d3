package proc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates and keeps all files in a folder of the test.
type Authority struct {
	CA   string // file with its own certificate
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	made int64
}

// NewAuthority makes one that nobody else trusts.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	a.CA, _ = a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// Server is the files of a certificate for a server on 127.0.0.1, and its key.
func (a *Authority) Server(t testing.TB, name string) (cert, key string) {
	t.Helper()
	return a.sign(t, name, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// Client is those of a client.
func (a *Authority) Client(t testing.TB, name string) (cert, key string) {
	t.Helper()
	return a.sign(t, name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// NATSArgs are arguments of a nats-server that speaks TLS alone, with clients that
// this authority has signed.
func (a *Authority) NATSArgs(t testing.TB) []string {
	t.Helper()
	cert, key := a.Server(t, "server")
	return []string{"--tls", "--tlsverify", "--tlscacert", a.CA, "--tlscert", cert, "--tlskey", key}
}

// sign makes <name>.pem and <name>.key of what template asks for; the first
// certificate signs itself.
func (a *Authority) sign(t testing.TB, name string, template *x509.Certificate) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.made++
	template.SerialNumber = big.NewInt(a.made)
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key = private
	}
	return cert, key
}
