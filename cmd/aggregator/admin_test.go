package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/adminapi"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/test/proc"
)

// The admin listener in private: who has a token, or a certificate that is signed by whom we trust, is heard.
func TestAdminOverTLS(t *testing.T) {
	cleanEnv(t)
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	says := func(code int, want string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := run(args, strings.NewReader(""), &stdout, &stderr); got != code || !strings.Contains(stdout.String()+stderr.String(), want) {
			t.Errorf("aggregator %q: exit code %d, %s%s, want %d with %q", args, got, &stdout, &stderr, code, want)
		}
	}
	var secret, stderr bytes.Buffer
	if code := run([]string{"auth", "token", "--name", "ada", "--role", "viewer", "--file", tokens}, strings.NewReader(""), &secret, &stderr); code != 0 {
		t.Fatalf("auth token: %d %s", code, &stderr)
	}
	token := filepath.Join(dir, "ada")
	if err := os.WriteFile(token, secret.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	says(3, "stands here twice", "auth", "token", "--name", "ada", "--role", "viewer", "--file", tokens)
	says(3, "is no role", "auth", "token", "--name", "bob", "--role", "root", "--file", tokens)
	text, err := os.ReadFile(tokens)
	if err == nil {
		err = os.WriteFile(tokens, fmt.Appendf(text, "- {name: prom, role: viewer, certificate: prom}\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ours, others := proc.NewAuthority(t), proc.NewAuthority(t)
	signers := filepath.Join(dir, "signers.pem")
	ca, err := os.ReadFile(ours.CA)
	if err == nil {
		err = os.WriteFile(signers, ca, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	settings := configs.AggregatorSettings{Admin: configs.AdminSettings{Listen: "127.0.0.1:0", Tokens: tokens, TLS: configs.ListenTLS{ClientCA: signers}}}
	settings.Admin.TLS.Cert, settings.Admin.TLS.Key = ours.Server(t, "it")
	ln, cfg, err := openAdmin(&settings, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Subject, cfg.Connected, cfg.Metrics = agg, func() bool { return true }, prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { // ends with ctx, below
		served <- httpapi.NewServer(adminapi.New(cfg), httpapi.ServerConfig{}).Serve(ctx, ln)
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	list := []string{"rules", "list", "--server", "https://" + ln.Addr().String(), "--ca", ours.CA}
	const heard = "rules are not kept in NATS"
	says(1, heard, append(list, "--token-file", token)...)
	cert, key := ours.Client(t, "prom")
	says(1, heard, append(list, "--cert", cert, "--key", key)...)
	cert, key = ours.Client(t, "eve")
	says(1, "not known here", append(list, "--cert", cert, "--key", key)...)
	cert, key = others.Client(t, "prom")
	says(4, "certificate", append(list, "--cert", cert, "--key", key)...)
	says(1, "a token is wanted", list...)
	mine, mineKey := ours.Client(t, "prom")
	says(1, heard, append(list, "--cert", mine, "--key", mineKey)...)
	text, err = os.ReadFile(others.CA)
	if err == nil {
		err = os.WriteFile(signers, text, 0o600)
	}
	if err == nil {
		err = os.Chtimes(signers, time.Now(), time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	says(1, heard, append(list, "--cert", cert, "--key", key)...) // now it is they who sign
	says(4, "certificate", append(list, "--cert", mine, "--key", mineKey)...)
	says(1, "--cert and --key", append(list, "--cert", cert)...)
}
