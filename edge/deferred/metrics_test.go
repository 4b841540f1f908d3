package deferred

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/test/proc"
)

// What does not wait though its rule lets it is counted, by the reason; what may not is not.
func TestWhatDoesNotWaitIsCounted(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{PerTenant: 1})
	f := front(q, site(t, time.Hour, &upstream{}), 1000)
	get(f, call("GET", "/", ""))
	with := func(body io.Reader, length int64) *http.Request {
		r := call("PUT", "/", "")
		r.Body, r.ContentLength = io.NopCloser(body), length
		return r
	}
	long := strings.Repeat("x", 1001)
	if got := resultOf(errors.New("it cannot be written down")); got != resultMalformed {
		t.Errorf("another error is %d, want %d", got, resultMalformed)
	}
	for _, tt := range []struct {
		want    result
		request *http.Request
		state   func()
	}{
		{resultKept, call("PUT", "/", "x"), nil},
		{resultLarge, with(strings.NewReader(long), 1001), nil},
		{resultLarge, with(strings.NewReader(long), -1), nil},
		{resultLarge, call("PUT", "/", "", "X-Large", strings.Repeat("x", MaxBytes)), nil},
		{resultLate, with(iotest.ErrReader(errors.New("the client is gone")), 5), nil},
		{resultMemory, call("PUT", "/", "x"), func() { f.held.Try(netip.Addr{}, f.cfg.Held) }},
		{resultFull, call("PUT", "/", "x"), func() { f.held.Give(netip.Addr{}, f.cfg.Held) }},
		{resultFull, with(iotest.ErrReader(errors.New("it is not read")), 5), nil},
		{resultAway, call("PUT", "/", "x"), func() { f.asks.Store(time.Now().Add(time.Hour).UnixNano()) }},
		{resultAway, call("PUT", "/", "x"), func() { f.queue.Store(nil) }},
		{results, call("POST", "/", "x"), nil},
	} {
		if tt.state != nil {
			tt.state()
		}
		var before, after [results]float64
		for i, c := range f.cfg.Metrics.requests {
			before[i] = testutil.ToFloat64(c)
		}
		w := get(f, tt.request)
		if want := map[bool]int{true: http.StatusAccepted, false: http.StatusTooManyRequests}[tt.want == resultKept]; w.Code != want {
			t.Errorf("%d: status %d %s, want %d", tt.want, w.Code, w.Body, want)
		}
		if tt.want != results {
			before[tt.want]++
		}
		for i, c := range f.cfg.Metrics.requests {
			after[i] = testutil.ToFloat64(c)
		}
		if before != after {
			t.Errorf("%d: %v are counted of %v, want %v", tt.want, after, resultNames, before)
		}
	}
}

// A JetStream that is connected and says nothing costs one request a second its time, and
// others nothing; when it answers again requests wait.
func TestSilentJetStream(t *testing.T) {
	j := newJet(t)
	wire := proc.NewProxy(t, j.addr)
	j.addr = wire.Addr
	q := j.queue(j.connect(), Config{Timeout: 500 * time.Millisecond})
	f := front(q, site(t, time.Hour, &upstream{}), 0)
	get(f, call("GET", "/", ""))
	if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", w.Code, w.Body)
	}
	wire.Freeze()
	began, slow := time.Now(), 0
	const denials = 200
	for range denials {
		at := time.Now()
		if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusTooManyRequests {
			t.Fatalf("%d %s, want 429", w.Code, w.Body)
		}
		if time.Since(at) >= q.cfg.Timeout {
			slow++
		}
	}
	if most := 2 + int(time.Since(began)/pullWait); slow == 0 || slow > most {
		t.Errorf("%d of %d denials waited for JetStream in %v, want one a second", slow, denials, time.Since(began))
	}
	if n := testutil.ToFloat64(f.cfg.Metrics.requests[resultAway]); n != denials {
		t.Errorf("%v are counted as away, want %d", n, denials)
	}
	wire.Mend()
	proc.Until(t, 20*time.Second, func() error {
		if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusAccepted {
			return errors.New("no request waits yet")
		}
		return nil
	})
}
