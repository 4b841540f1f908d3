package cli

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// A certificate is replaced while it is in use; one that is not good is not told.
func TestCertificateIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := OpenCertificate(cert, key, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("a certificate that is not there is taken")
	}
	at := time.Now().Add(-time.Hour)
	// replace puts another certificate there, and returns its number.
	replace := func() string {
		t.Helper()
		at = at.Add(time.Minute)
		nextCert, nextKey := proc.NewAuthority(t).Server(t, "it")
		for from, to := range map[string]string{nextCert: cert, nextKey: key} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			if err == nil {
				err = os.Chtimes(to, at, at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pair.Leaf.Raw)
	}
	first := replace()
	c, err := OpenCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	told := func(want string) {
		t.Helper()
		if pair, err := c.Get(&tls.ClientHelloInfo{}); err != nil || string(pair.Leaf.Raw) != want {
			t.Errorf("another certificate is told, %v", err)
		}
	}
	told(first)
	second := replace()
	told(second)
	if err := os.WriteFile(cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	told(second)
	told(replace())
}
