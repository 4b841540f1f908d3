package httpapi

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
)

// Bodies that are under way share a bound of bytes, of which an address has a part, whether
// they are whole or not; small ones need none of it, and whoever is refused is told so.
func TestBodiesShareTheirRoom(t *testing.T) {
	b := newBench(t, acme())
	var logged strings.Builder
	room := NewRoom(64<<10, NewRefusals(b.registry, slog.New(slog.NewTextHandler(&logged, nil))))
	api, err := New(limitertest.New(t, acme()), Config{Room: room})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	begin := func(who string, of int) (w *httptest.ResponseRecorder, body *io.PipeWriter) {
		t.Helper()
		out, in := io.Pipe()
		r, w := httptest.NewRequest("POST", "/v1/check/batch", out), httptest.NewRecorder()
		r.RemoteAddr = who
		all.Go(func() {
			api.ServeHTTP(w, r)
			out.Close()
		})
		_, _ = in.Write([]byte(strings.Repeat(" ", of))) // it fails where the answer comes before
		return w, in
	}
	ask := func(who, body string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("POST", "/v1/check", strings.NewReader(body)), httptest.NewRecorder()
		r.RemoteAddr = who
		api.ServeHTTP(w, r)
		return w
	}
	const small = `{"attributes":{"user":"u1"}}`
	long := small + strings.Repeat(" ", 5<<10)
	var open []*io.PipeWriter
	for n := range 8 { // of 4 addresses, each 8 KiB of its 16
		_, body := begin(fmt.Sprintf("192.0.2.%d:%d", n%4+1, n), 6<<10)
		open = append(open, body)
		switch n {
		case 3:
			if w := ask("192.0.2.1:99", long); w.Code != 200 {
				t.Errorf("an address within its part: %d %s", w.Code, w.Body)
			}
		case 4:
			if w := ask("192.0.2.1:99", long); w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "all memory that they may") {
				t.Errorf("an address beyond its part: %d %v %s", w.Code, w.Header(), w.Body)
			}
			if w := ask("192.0.2.2:99", long); w.Code != 200 {
				t.Errorf("another address: %d %s", w.Code, w.Body)
			}
		}
	}
	if got := room.Taken(); got != 64<<10 {
		t.Errorf("%d bytes are taken, want all", got)
	}
	if w := ask("192.0.2.9:99", long); w.Code != 503 {
		t.Errorf("an address that takes nothing, while nothing is left: %d %s", w.Code, w.Body)
	}
	if w := ask("192.0.2.1:99", small); w.Code != 200 {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	for _, body := range open {
		body.Close()
	}
	all.Wait()
	if got := room.Taken(); got != 0 {
		t.Errorf("%d bytes are taken still", got)
	}
	if got := b.metric(t, "spillgate_refused_total", "listener", "http", "reason", RefusedMemory); got != 2 {
		t.Errorf("%v refusals are counted, want 2", got)
	}
	if n := strings.Count(logged.String(), "\n"); n != 1 {
		t.Errorf("%d lines are logged, want one a minute:\n%s", n, &logged)
	}
	if w := ask("192.0.2.9:99", small+strings.Repeat(" ", maxCheckBody)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("one that is too large: %d %s", w.Code, w.Body)
	}
}

func TestCallersAreAddresses(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:9": "192.0.2.1", "[::ffff:192.0.2.1]:9": "192.0.2.1", "[2001:db8:1:2:3::4]:9": "2001:db8:1:2::", "[fe80::1%eth0]:9": "fe80::",
		"@": "invalid IP", "": "invalid IP", "/run/s.sock": "invalid IP",
		"192.0.2.99:9": "invalid IP", "[2001:db8::99]:9": "invalid IP", "[2001:db8::98]:9": "2001:db8::", // proxies
	} {
		if got := Caller(peer, Proxies{netip.MustParsePrefix("192.0.2.99/32"), netip.MustParsePrefix("2001:db8::99/128")}).String(); got != want {
			t.Errorf("Caller(%q) = %s, want %s", peer, got, want)
		}
	}
}
