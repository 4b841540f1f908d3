package cli

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/test/proc"
)

// echo answers with the token that it is asked with.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/elsewhere" {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		return
	}
	_, _ = w.Write([]byte(r.Header.Get("Authorization")))
})

func TestServerIsAsked(t *testing.T) {
	t.Setenv(configs.AdminTokenVariable, "sgt_env")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := httptest.NewServer(echo)
	defer plain.Close()
	authority := proc.NewAuthority(t)
	cert, key := authority.Server(t, "it")
	c, err := OpenCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	secret := httptest.NewUnstartedServer(echo)
	secret.Listener = tls.NewListener(secret.Listener, &tls.Config{GetCertificate: c.Get})
	secret.Start()
	defer secret.Close()
	secretURL := strings.Replace(secret.URL, "http", "https", 1)
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := &http.Server{Handler: echo}
	go func() { _ = unix.Serve(ln) }() // until it is closed, below
	defer unix.Close()
	for _, c := range []struct {
		name   string
		server Server
		path   string
		want   string // the token that it was asked with
		says   string // of an error
		away   bool
	}{
		{"a URL", Server{URL: plain.URL + "/"}, "/x", "Bearer sgt_env", "", false},
		{"a token in a file", Server{URL: plain.URL, TokenFile: file("t", "sgt_file\n")}, "/x", "Bearer sgt_file", "", false},
		{"a unix socket", Server{URL: "unix:" + socket}, "/x", "Bearer sgt_env", "", false},
		{"TLS", Server{URL: secretURL, CA: authority.CA}, "/x", "Bearer sgt_env", "", false},
		{"TLS by who knows not", Server{URL: secretURL}, "/x", "", "certificate", true},
		{"nobody", Server{URL: "http://127.0.0.1:1"}, "/x", "", "--server", true},
		{"a redirect", Server{URL: plain.URL}, "/elsewhere", "", "elsewhere", true},
		{"no URL", Server{URL: "127.0.0.1:6071"}, "/x", "", "is no URL", false},
		{"no token", Server{URL: plain.URL, TokenFile: file("none", "\n")}, "/x", "", "no token", false},
		{"no file", Server{URL: plain.URL, TokenFile: filepath.Join(dir, "nothing")}, "/x", "", "--token-file", false},
		{"no certificate", Server{URL: plain.URL, CA: file("ca", "x")}, "/x", "", "PEM", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, text, err := c.server.Ask(t.Context(), http.MethodGet, c.path, nil, "")
			if c.says == "" && (err != nil || status != http.StatusOK || string(text) != c.want) {
				t.Errorf("Ask = %d %s, %v, want %s", status, text, err, c.want)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrUnreachable) != c.away) {
				t.Errorf("Ask = %v, want an error that says %q, unreachable: %v", err, c.says, c.away)
			}
		})
	}
}
