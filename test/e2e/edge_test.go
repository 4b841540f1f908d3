package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// TestEdgeAsProxy has the edge itself in front of the application: it is held to what the
// other proxies are, and to what a proxy has to do alone.
func TestEdgeAsProxy(t *testing.T) {
	t.Parallel()
	s := newFront(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *site, passes)
	}{
		{"what is allowed reaches the application, as it was sent", allowedIsServed},
		{"what is denied reaches the client, with its wait", deniedIsTold},
		{"a client is its address", clientsAreAddresses},
		{"a client's words about itself do not help", forgedIsIgnored},
		{"a question that is too long gets no answer", longIsRefused},
		{"no number of fields gets past", manyFieldsAreRefused},
		{"a client's headers are seen by rules", headersAreSeen},
		{"an error of the application's is its own", errorsAreTheirOwn},
		{"a rule that denies all is a 403", barredIs403},
		{"a closed limit's fault is no 429", closedIs503},
		{"what has no limit has no fields", freeHasNoFields},
		{"a websocket opens, and nothing that holds more requests", socketsOpen},
		{"the application tells what it has to spare", capacityIsTold},
		{"an application that is dead is no denial", deadApplicationIs502},
		{"streams last until the edge stops", streamsLast},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			test.run(t, s, whole)
		})
	}
}

// newFront is a site whose proxy is the edge.
func newFront(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, proxy: proc.FreeAddr(t)}
	s.application = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.application.Close)
	s.edge = daemons.Edge(t,
		[]string{"SPILLGATE_SECRET=0123456789abcdef0123456789abcdef", "SPILLGATE_PROXY_CAPACITY_HEADER=X-Capacity-Used"},
		"--region", "eu", "--name", "eu-1", "--nats-urls", "nats://"+proc.FreeAddr(t),
		"--rules-path", filepath.Join("testdata", "rules.yaml"), "--trusted-proxies", "127.0.0.1/32",
		"--proxy-listen", s.proxy, "--proxy-upstream", s.application.URL, "--proxy-timeout", "5s",
		"--proxy-capacity-name", "site")
	return s
}

func capacityIsTold(t *testing.T, s *site, _ passes) {
	for i, want := range []int{200, 200, 429} { // the second in the margin, and no more than that
		got := s.get(ask{target: "/elastic"})
		if got.status != want || got.header["X-Capacity-Used"] != nil {
			t.Errorf("request %d: %v, want %d, and nothing of the capacity", i, got, want)
		}
	}
}

func (s *site) counted(result string, want float64) {
	s.t.Helper()
	proc.Until(s.t, patience, func() error {
		n, err := proc.Metric(s.edge.Admin, `spillgate_proxy_requests_total{result="`+result+`"}`)
		if err == nil && n != want {
			err = fmt.Errorf("%v requests were %s, want %v", n, result, want)
		}
		return err
	})
}

// deadApplicationIs502 has the application's address be nobody's, for a new edge.
func deadApplicationIs502(t *testing.T, _ *site, _ passes) {
	s := newFront(t)
	s.application.Close()
	for i, want := range []int{502, 502, 429} { // what was passed on has counted
		got := s.get(ask{target: "/gone"})
		if status := got.header.Get("Proxy-Status"); got.status != want || (status == "spillgate; error=connection_refused") != (want == 502) {
			t.Errorf("request %d: %v, want %d", i, got, want)
		}
	}
	s.counted("unreachable", 2)
	s.counted("limited", 1)
}

// streamsLast opens a stream, and has the edge end while it is open.
func streamsLast(t *testing.T, s *site, _ passes) {
	resp, err := from("127.0.0.2").Get("http://" + s.proxy + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
	}
	s.edge.Signal(syscall.SIGTERM)
	if code := s.edge.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
