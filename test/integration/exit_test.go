package integration

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestBadSettingsExitWithThree: a daemon that is told nonsense does not start,
// says what is wrong, and exits with the code that means it.
func TestBadSettingsExitWithThree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unknown := filepath.Join(dir, "unknown.yaml")
	if err := os.WriteFile(unknown, []byte("region: eu\nregon: us\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join("..", "..", "configs", "testdata", "bad_per_words.yaml")
	rules := filepath.Join("testdata", "rules.yaml")
	edge, aggregator := daemons.EdgePath(), daemons.AggregatorPath()
	good := []string{"serve", "--listen", "127.0.0.1:0", "--grpc-listen", "off", "--admin-listen", "127.0.0.1:0", "--region", "eu", "--name", "e1", "--rules-path", rules}
	agg := []string{"serve", "--admin-listen", "127.0.0.1:0", "--region", "eu", "--name", "a1"}
	busy := occupied(t)
	for _, c := range []struct {
		name string
		path string
		args []string
		env  string
		code int
		says string
	}{
		{"edge, nothing set", edge, []string{"serve"}, "", 3, "E203 secret: is missing"},
		{"edge, unknown key in the file", edge, append(good, "-c", unknown), "SPILLGATE_SECRET=" + secret, 3, unknown + ":2:1: "},
		{"edge, short secret", edge, good, "SPILLGATE_SECRET=short", 3, "environment SPILLGATE_SECRET"},
		{"edge, bad rules", edge, append(good, "--rules-path", broken), "SPILLGATE_SECRET=" + secret, 3, broken + ":7:23: E145"},
		{"edge, no rules file", edge, append(good, "--rules-path", filepath.Join(dir, "none")), "SPILLGATE_SECRET=" + secret, 3, "none"},
		{"edge, admin for everybody", edge, append(good, "--admin-listen", ":6070"), "SPILLGATE_SECRET=" + secret, 3, "--admin-listen"},
		{"edge, a name that is no token", edge, append(good, "--name", "Edge_1"), "SPILLGATE_SECRET=" + secret, 3, "--name"},
		{"edge, too few keys", edge, append(good, "--max-keys", "10"), "SPILLGATE_SECRET=" + secret, 3, "--max-keys"},
		{"edge, no such credentials", edge, append(good, "--nats-creds", filepath.Join(dir, "none")), "SPILLGATE_SECRET=" + secret, 3, "none"},
		{"edge, no such authority", edge, append(good, "--nats-tls-ca", filepath.Join(dir, "none")), "SPILLGATE_SECRET=" + secret, 3, "nats: tls.ca: open "},
		{"edge, an authority that is none", edge, append(good, "--nats-tls-ca", unknown), "SPILLGATE_SECRET=" + secret, 3, "nats: tls.ca: no certificate in " + unknown},
		{"edge, a certificate without its key", edge, append(good, "--nats-tls-cert", unknown), "SPILLGATE_SECRET=" + secret, 3, "nats.tls.key is not set"},
		{"aggregator, a key that is none", aggregator, append(agg, "--nats-tls-cert", unknown, "--nats-tls-key", unknown), "", 3, "nats: tls.cert " + unknown + ", tls.key"},
		{"edge, unknown flag", edge, append(good, "--loud"), "", 2, "Try: edge serve --help"},
		{"edge, gRPC port taken", edge, append(good, "--grpc-listen", busy), "SPILLGATE_SECRET=" + secret, 1, busy},
		{"edge, no address for gRPC", edge, append(good, "--grpc-listen", "no"), "SPILLGATE_SECRET=" + secret, 3, "--grpc-listen"},
		{"edge, port taken", edge, append(good, "--listen", busy), "SPILLGATE_SECRET=" + secret, 1, busy},
		{"aggregator, nothing set", aggregator, []string{"serve"}, "", 3, "E202 region: is missing"},
		{"aggregator, its own peer", aggregator, append(agg, "--peers", "eu"), "", 3, `"eu" is this region`},
		{"aggregator, a URL for something else", aggregator, append(agg, "--redis-url", "http://127.0.0.1"), "", 3, "--redis-url"},
		{"aggregator, a URL with parameters", aggregator, append(agg, "--redis-url", "redis://127.0.0.1/0?x=1"), "", 3, "parameters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, c.path, c.args...)
			cmd.Env = proc.Environ()
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("%v, want exit code %d; it said\n%s", err, c.code, out)
			}
			if !strings.Contains(string(out), c.says) {
				t.Errorf("it said\n%s\nwant it to have %q", out, c.says)
			}
			if strings.Contains(string(out), secret) {
				t.Errorf("it shows the secret:\n%s", out)
			}
		})
	}
}

// occupied is an address that somebody listens on.
func occupied(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
