package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificate writes a certificate for 127.0.0.1 that signs itself, and its key, at an instant.
func writeCertificate(t *testing.T, cert, key, name string, at time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, is, is, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A certificate is replaced while it is in use; one that is not good is not told.
func TestCertificateIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := OpenCertificate(cert, key, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("a certificate that is not there is taken")
	}
	at := time.Now().Add(-time.Hour)
	writeCertificate(t, cert, key, "first", at)
	c, err := OpenCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		pair, err := c.Get(&tls.ClientHelloInfo{})
		if err != nil || pair.Leaf.Subject.CommonName != want {
			t.Errorf("told is %v, %v, want %s", pair.Leaf.Subject, err, want)
		}
	}
	told("first")
	writeCertificate(t, cert, key, "second", at.Add(time.Minute))
	told("second")
	if err := os.WriteFile(cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	told("second")
	writeCertificate(t, cert, key, "third", at.Add(2*time.Minute))
	told("third")
}
