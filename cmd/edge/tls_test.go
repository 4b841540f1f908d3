package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillgate/spillgate/test/proc"
)

// Both listeners speak TLS where their settings say so, to who has a certificate of those who are to, and have
// another certificate, and trust others, once the files are replaced.
func TestListenersOverTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copied := func(from, name string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(name, text)
	}
	ours := proc.NewAuthority(t)
	certified := func(a *proc.Authority) {
		cert, key := a.Server(t, "edge")
		copied(cert, "cert")
		copied(key, "key")
		copied(a.CA, "ca")
	}
	certified(ours)
	put("rules.yaml", []byte("schema: spillgate/v1\nnamespace: acme\nrules:\n- {name: all, key: [user], rates: [{limit: 100, per: 1h, scope: edge}]}\n"))
	listen, calls := proc.FreeAddr(t), proc.FreeAddr(t)
	var stderr bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	cmd := newServeCommand()
	cmd.SetArgs([]string{"--listen", listen, "--grpc-listen", calls, "--admin-listen", "unix:" + file("admin"), "--region", "eu", "--name", "e1",
		"--secret", strings.Repeat("s", 32), "--rules-path", file("rules.yaml"), "--nats-urls", "nats://" + proc.FreeAddr(t),
		"--tls-cert", file("cert"), "--tls-key", file("key"), "--tls-client-ca", file("ca"),
		"--grpc-tls-cert", file("cert"), "--grpc-tls-key", file("key"), "--grpc-tls-client-ca", file("ca")})
	cmd.SetErr(&stderr)
	served := make(chan error, 1)
	go func() { served <- cmd.ExecuteContext(ctx) }() // stopped and waited for below
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("%v\n%s", err, stderr.String())
		}
	}()

	as := func(trusts, shows *proc.Authority) *tls.Config {
		t.Helper()
		text, err := os.ReadFile(trusts.CA)
		if err != nil {
			t.Fatal(err)
		}
		c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		c.RootCAs.AppendCertsFromPEM(text)
		if shows != nil {
			cert, key := shows.Client(t, "proxy")
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	overHTTP := func(c *tls.Config) error {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		resp, err := client.Post("https://"+listen+"/v1/check", "application/json", strings.NewReader(`{"attributes":{"user":"u"}}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(text), `"allowed":true`) {
			return fmt.Errorf("%d %s", resp.StatusCode, text)
		}
		return nil
	}
	overGRPC := func(c *tls.Config) error {
		conn, err := grpc.NewClient(calls, grpc.WithTransportCredentials(credentials.NewTLS(c)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
	wants := func(when string, good *tls.Config, bad ...*tls.Config) {
		t.Helper()
		for name, ask := range map[string]func(*tls.Config) error{"HTTP": overHTTP, "gRPC": overGRPC} {
			proc.Until(t, 20*time.Second, func() error { return ask(good) })
			for i, c := range bad {
				if ask(c) == nil { // who is refused may hear of it, or find the connection broken
					t.Errorf("%s, over %s: client %d is served, who is not to be, or is not to trust the edge", when, name, i)
				}
			}
		}
	}
	theirs := proc.NewAuthority(t)
	wants("at first", as(ours, ours), as(ours, nil), as(ours, theirs), as(theirs, ours))
	if resp, err := http.Get("http://" + listen + "/healthz"); err == nil {
		if resp.Body.Close(); resp.StatusCode == 200 {
			t.Error("it answers in clear")
		}
	}
	certified(theirs)
	wants("replaced", as(theirs, theirs), as(theirs, nil), as(theirs, ours), as(ours, theirs))
}
