package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// What an edge as a proxy has denied, and its rule lets wait, is done when there is room,
// once, though the edge is killed and NATS ends and starts meanwhile.
func TestDeferred(t *testing.T) {
	t.Parallel()
	nats := proc.NATS(t, "-js", "-sd", t.TempDir())
	s := &site{t: t, proxy: proc.FreeAddr(t)}
	s.application = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.application.Close)
	s.edge = daemons.Edge(t, []string{"SPILLGATE_SECRET=0123456789abcdef0123456789abcdef"},
		"--region", "eu", "--name", "eu-1", "--nats-urls", nats.URL, "--rules-path", filepath.Join("testdata", "defer.yaml"),
		"--trusted-proxies", "127.0.0.1/32", "--proxy-listen", s.proxy, "--proxy-upstream", s.application.URL, "--proxy-defer-enabled", "true")
	var counts struct{ Waiting, Dead int }
	admin := func(path string, out any) error {
		resp, err := http.Get(s.edge.Admin + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return json.NewDecoder(resp.Body).Decode(out)
	}
	proc.Until(t, 30*time.Second, func() error { return admin("/admin/v1/deferred", &counts) })
	if got, err := http.Get(s.edge.Admin + "/readyz?verbose"); err != nil {
		t.Error(err)
	} else if text, _ := io.ReadAll(got.Body); got.Body.Close() != nil || !strings.Contains(string(text), "[+] deferred: ok") { // it made the queue, as it may here
		t.Errorf("/readyz: %s", text)
	}

	if got := s.get(ask{method: "PUT", target: "/job/0", body: "0"}); got.status != http.StatusOK {
		t.Fatalf("the first: %v, want 200", got)
	}
	if got := s.get(ask{method: "DELETE", target: "/job/0"}); got.status != http.StatusTooManyRequests || got.served {
		t.Errorf("a method that the rule does not name: %v, want 429", got)
	}
	if got := s.get(ask{method: "POST", target: "/job/0"}); got.status != http.StatusTooManyRequests || got.served {
		t.Errorf("a POST without a key: %v, want 429", got)
	}
	const jobs = 3
	var urls []string
	for i := range jobs {
		got := s.get(ask{method: "POST", target: fmt.Sprintf("/job/%d", i+1), body: "a body", header: map[string]string{"Idempotency-Key": fmt.Sprint(i)}})
		if got.status != http.StatusAccepted || got.served || got.header.Get("Location") == "" {
			t.Fatalf("job %d: %v, want 202", i+1, got)
		}
		urls = append(urls, got.header.Get("Location"))
	}
	s.edge.Kill()
	nats.Restart()
	s.edge.Restart()
	var state struct {
		State         string
		Status, Tries int
	}
	for _, url := range urls {
		proc.Until(t, time.Minute, func() error {
			got, err := s.try(ask{target: url})
			if err == nil {
				err = json.Unmarshal([]byte(got.body), &state)
			}
			if err == nil && state.State != "done" {
				err = fmt.Errorf("%s: %v", url, got)
			}
			return err
		})
		if state.Status != http.StatusOK || state.Tries < 1 {
			t.Errorf("%+v, want done with 200", state)
		}
	}
	// A job is taken from the queue after it is said to be done; one that were not is tried again
	// after 30 s.
	proc.Until(t, 15*time.Second, func() error {
		err := admin("/admin/v1/deferred", &counts)
		if err == nil && counts.Waiting != 0 {
			err = fmt.Errorf("%+v; want none waiting", counts)
		}
		return err
	})
	if counts.Dead != 0 {
		t.Errorf("%+v; want none dead", counts)
	}
	if n := s.served.Load(); n != 1+jobs {
		t.Errorf("the application was asked %d times, want %d", n, 1+jobs)
	}
	if strings.Contains(s.edge.Log(), "panic") {
		t.Error(s.edge.Log())
	}
}
