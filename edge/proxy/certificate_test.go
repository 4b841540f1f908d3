package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certify writes a certificate for 127.0.0.1 and its key, as of a time, and returns who
// believes it.
func certify(t *testing.T, certFile, keyFile string, serial int64, changed time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return roots
}

// With a certificate the listener speaks TLS, with both protocols, and says so to the
// upstream. A new one is shown once it is there whole, without a restart.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "edge.pem"), filepath.Join(dir, "edge.key")
	began := time.Now()
	roots := certify(t, cert, key, 1, began.Add(-time.Hour))
	loaded, err := LoadCertificate(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := began
	loaded.now = func() time.Time { return now }
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-Proto")) }, options{cfg: Config{Certificate: loaded}}, hourly(99))
	ask := func(roots *x509.CertPool, http2 bool, proto string) bool {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + s.addr)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(text) != "https" || resp.Proto != proto {
			t.Errorf("%d over %s, %q, want 200 over %s, and https", resp.StatusCode, resp.Proto, text, proto)
		}
		return true
	}
	if !ask(roots, false, "HTTP/1.1") || !ask(roots, true, "HTTP/2.0") {
		t.Error("the certificate is not shown")
	}
	if s.get("/").status != http.StatusBadRequest { // net/http's own
		t.Error("it is served without TLS")
	}
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if now = now.Add(2 * certificateEvery); !ask(roots, false, "HTTP/1.1") {
		t.Error("half a certificate takes the last out of force")
	}
	renewed := certify(t, cert, key, 2, began)
	if !ask(roots, false, "HTTP/1.1") {
		t.Error("the files are looked at with each connection")
	}
	if now = now.Add(2 * certificateEvery); ask(roots, false, "HTTP/1.1") || !ask(renewed, false, "HTTP/1.1") {
		t.Error("the new certificate is not shown")
	}
	if _, err := LoadCertificate(cert, filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a key that is not there was read")
	}
}

// Who comes over a unix socket is believed what he says of his client.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proxy.sock")
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Forwarded-For")) }, options{listen: "unix:" + path}, hourly(1))
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	for i, c := range []struct {
		client string
		status int
	}{{"192.0.2.1", 200}, {"192.0.2.2", 200}, {"192.0.2.1", 429}} {
		req, _ := http.NewRequest("GET", "http://shop.example/", nil)
		req.Header.Set("X-Forwarded-For", c.client)
		resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); resp.StatusCode != c.status || c.status == 200 && string(text) != c.client {
			t.Errorf("request %d of %s: %d, %q; want %d", i, c.client, resp.StatusCode, text, c.status)
		}
	}
	s.result("limited", 1)
}
