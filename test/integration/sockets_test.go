package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	askedge "github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/test/proc"
)

// overSocket is an HTTP client of whoever listens on a unix socket.
func overSocket(t *testing.T, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// An edge listens on unix sockets, for all that it does: those that a crash left behind are replaced, one
// that is in use is not, and none is left behind by who is told to stop.
func TestEdgeListensOnUnixSockets(t *testing.T) {
	t.Parallel()
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "for "+r.Header.Get("X-Forwarded-For"))
	}))
	defer application.Close()
	dir, err := os.MkdirTemp("", "sg") // a test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"serve", "--listen", "unix:" + at("data"), "--grpc-listen", "unix:" + at("grpc"), "--admin-listen", "unix:" + at("admin"),
		"--proxy-listen", "unix:" + at("proxy"), "--proxy-upstream", application.URL, "--region", "eu", "--name", "e1", "--rules-path", "testdata/rules.yaml"}
	env := proc.Environ("SPILLGATE_SECRET=" + secret)
	get := func(socket, path string, fields ...string) (int, string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://edge"+path, nil)
		if err != nil {
			return 0, "", err
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Set(fields[i], fields[i+1])
		}
		req.Close = true // it is killed later
		resp, err := overSocket(t, at(socket)).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	edge := proc.Start(t, proc.Command{Name: "edge", Path: daemons.EdgePath(), Args: args, Env: env, Ready: func(context.Context) error {
		if code, text, err := get("data", "/readyz"); err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %s, %w", code, text, err)
		}
		return nil
	}})
	serves := func() {
		t.Helper()
		check := askedge.Check{Attributes: map[string]string{"user": "u"}}
		limiter, err := askedge.NewHTTP("unix:"+at("data"), askedge.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := limiter.Check(t.Context(), check); err != nil || !got.Allowed || got.Limit == 0 {
			t.Errorf("over HTTP: %+v, %v", got, err)
		}
		conn, err := grpc.NewClient("unix:"+at("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, err := grpcclient.New(conn, askedge.Config{Timeout: time.Minute}).Check(t.Context(), check); err != nil || !got.Allowed || got.Limit == 0 {
			t.Errorf("over gRPC: %+v, %v", got, err)
		}
		if code, text, err := get("proxy", "/", "X-Forwarded-For", "192.0.2.7"); err != nil || code != http.StatusOK || !strings.HasPrefix(text, "for 192.0.2.7") {
			t.Errorf("through the proxy: %d %q, %v; want what the peer says, who is on this machine", code, text, err)
		}
		if code, text, err := get("admin", "/metrics"); err != nil || code != http.StatusOK || !strings.Contains(text, "spillgate_") {
			t.Errorf("the admin listener: %d, %v", code, err)
		}
	}
	serves()
	second := exec.CommandContext(t.Context(), daemons.EdgePath(), args...)
	second.Env = env
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), at("data")) || !strings.Contains(string(out), "in use") {
		t.Errorf("a second one on the same sockets: %v, %s", err, out)
	}
	serves()
	edge.Kill()
	edge.Restart()
	serves()
	edge.Terminate()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
