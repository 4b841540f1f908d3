package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestEdgeDrains: told to stop with a call under way, an edge says that it is
// not ready, finishes the call, counts it, tells its region, and exits with 0.
func TestEdgeDrains(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	startAggregator(t, "eu", "us", nats.URL, startRedis(t).Addr)
	leaving := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml")
	staying := startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml")

	// Half a call: the edge waits for the rest of its body.
	addr := strings.TrimPrefix(leaving.url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatalf("deadline: %v", err)
	}
	body := `{"attributes":{"account":"drained"}}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", addr, len(body))
	reader := bufio.NewReader(conn)
	// The handler has begun to read the body: the call is under way.
	if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("interim answer %q, %v, want 100 Continue", line, err)
	}
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatalf("end of the interim answer: %v", err)
	}
	fmt.Fprint(conn, body[:10])

	leaving.Signal(syscall.SIGTERM)
	proc.Until(t, 5*time.Second, func() error {
		_, err := get(leaving.Admin + "/readyz")
		if err == nil {
			return errors.New("readyz: 200, want 503, draining")
		}
		if !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "draining") {
			return fmt.Errorf("readyz: want 503, draining: %w", err)
		}
		return nil
	})
	proc.Until(t, 5*time.Second, func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return fmt.Errorf("%s still takes new connections", addr)
		}
		return nil
	})

	leaving.Signal(syscall.SIGHUP) // no reason to die in the middle of it
	proc.Until(t, 5*time.Second, func() error {
		_, err := get(leaving.Admin + "/healthz")
		return err
	})

	fmt.Fprint(conn, body[10:])
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("answer to the call that was under way: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"allowed":true`) {
		t.Errorf("call under way: %s, %s, %v, want it allowed", resp.Status, text, err)
	}
	if code := leaving.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	agree(t, heals, counts{"drained": 1}, staying)
}

// With a drain delay an edge that is told to stop serves on for that long, and says that it is
// not ready, to whoever asks it anew. Whoever keeps a connection is told to come elsewhere.
func TestEdgeServesOnWhileItDrains(t *testing.T) {
	t.Parallel()
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer application.Close()
	through := proc.FreeAddr(t)
	leaving := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), "testdata/rules.yaml", "--drain-delay", "3s", "--proxy-upstream", application.URL, "--proxy-listen", through)
	ends := func(want bool) {
		t.Helper()
		for _, url := range []string{leaving.url + "/healthz", "http://" + through + "/"} {
			resp, err := http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.Close != want || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s, and ends its connection: %v, want %v", url, resp.Status, resp.Close, want)
			}
		}
	}
	ends(false)
	leaving.Signal(syscall.SIGTERM)
	proc.Until(t, 3*time.Second, func() error {
		_, err := get(leaving.url + "/readyz")
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("readyz: %v, want 503", err)
		}
		return nil
	})
	resp, err := http.Post(leaving.url+"/v1/check", "application/json", strings.NewReader(`{"attributes":{"account":"late"},"peek":true}`))
	if err != nil {
		t.Fatalf("a call meanwhile: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a call meanwhile: %s, want 200", resp.Status)
	}
	ends(true)
	if code := leaving.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestAggregatorExitsWithZero on SIGTERM, with all its servers there and with
// none.
func TestAggregatorExitsWithZero(t *testing.T) {
	t.Parallel()
	nats, redis := startNATS(t, proc.FreeAddr(t)), startRedis(t)
	for _, name := range []string{"with its servers", "without"} {
		t.Run(name, func(t *testing.T) {
			aggregator := startAggregator(t, "eu", "us", nats.URL, redis.Addr)
			aggregator.Signal(syscall.SIGTERM)
			if code := aggregator.ExitCode(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
		redis.Kill()
		nats.Kill()
	}
}
