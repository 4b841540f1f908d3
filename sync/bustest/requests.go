package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
)

func testRequest(t *testing.T, a, b deltasync.Bus) {
	serve(t, a, "up.eu.*", "agg", func(_ context.Context, subject string, payload []byte) []byte {
		return fmt.Appendf(nil, "%s got %s", subject, payload)
	})
	serve(t, a, "deep.>", "agg", func(_ context.Context, subject string, _ []byte) []byte { return []byte(subject) })
	serve(t, a, "empty", "agg", func(_ context.Context, _ string, payload []byte) []byte {
		if len(payload) != 0 {
			return []byte("payload is not empty")
		}
		return []byte{}
	})
	for from, bus := range map[string]deltasync.Bus{"the same connection": a, "another connection": b} {
		for _, c := range []struct{ subject, payload, want string }{
			{"up.eu.0", "hello", "up.eu.0 got hello"},
			{"up.eu.zürich", "\x00\r\n\xff", "up.eu.zürich got \x00\r\n\xff"},
			{"deep.a", "", "deep.a"},
			{"deep.a.b.c", "", "deep.a.b.c"},
			{"empty", "", ""},
		} {
			if got := request(t, bus, c.subject, c.payload); got != c.want {
				t.Errorf("from %s: Request(%q, %q) = %q, want %q", from, c.subject, c.payload, got, c.want)
			}
		}
	}
}

func testServeConcurrently(t *testing.T, a, b deltasync.Bus) {
	var both sync.WaitGroup // released when two handlers run at the same time
	both.Add(2)
	serve(t, a, "pair", "agg", func(context.Context, string, []byte) []byte {
		both.Done()
		both.Wait()
		return []byte("met")
	})
	var requests sync.WaitGroup
	for range 2 {
		requests.Go(func() {
			if reply, err := try(t, b, within, "pair", nil); err != nil || string(reply) != "met" {
				t.Errorf("Request = %q, %v, want met", reply, err)
			}
		})
	}
	requests.Wait()
}

// testQueue, where near is set, knows who gets a request; else it wants some
// for each.
func testQueue(t *testing.T, a, b deltasync.Bus, near bool) {
	var onA, onB, other atomic.Int64
	serve(t, a, "up", "agg", answer("a", &onA))
	own := serve(t, b, "up", "agg", answer("b", &onB))
	serve(t, b, "down", "agg", answer("other", &other))
	const n = 300
	for i := range n {
		want := fmt.Sprint(": ", i)
		if got := request(t, b, "up", fmt.Sprint(i)); got != "a"+want && got != "b"+want {
			t.Fatalf("Request = %q, want a%s or b%s", got, want, want)
		}
	}
	if onA.Load()+onB.Load() != n || other.Load() != 0 {
		t.Errorf("%d requests: a handled %d, b %d, another subject %d, want each handled once", n, onA.Load(), onB.Load(), other.Load())
	}
	if !near {
		if onA.Load() == 0 || onB.Load() == 0 {
			t.Errorf("%d requests: a handled %d, b %d, want some by both", n, onA.Load(), onB.Load())
		}
		return
	}
	if onA.Load() != 0 {
		t.Errorf("%d requests of b: a handled %d, want all by b, which is near", n, onA.Load())
	}
	if got := request(t, a, "up", ""); got != "a: " {
		t.Errorf("Request by a = %q, want a, which is near", got)
	}
	if err := own.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if got := request(t, b, "up", "far"); got != "a: far" {
		t.Errorf("Request by b, where nobody serves any more = %q, want a", got)
	}
}

func testQueueOverPatterns(t *testing.T, a, b deltasync.Bus) {
	var literal, star, rest atomic.Int64
	serve(t, a, "up.eu", "agg", answer("literal", &literal))
	serve(t, b, "up.*", "agg", answer("star", &star))
	serve(t, b, ">", "agg", answer("rest", &rest))
	const n = 100
	for range n {
		request(t, a, "up.eu", "")
	}
	if got := literal.Load() + star.Load() + rest.Load(); got != n {
		t.Errorf("%d requests were handled %d times under one queue name, want once each", n, got)
	}
}

func testQueues(t *testing.T, a, b deltasync.Bus) {
	called := make(chan string, 2)
	free := make(chan struct{})
	serve(t, a, "up", "eager", func(context.Context, string, []byte) []byte {
		called <- "eager"
		return []byte("eager")
	})
	serve(t, b, "up", "idle", func(ctx context.Context, _ string, _ []byte) []byte {
		called <- "idle"
		<-free
		return []byte("idle")
	})
	if got := request(t, a, "up", ""); got != "eager" {
		t.Errorf("Request = %q, want the first reply, eager", got)
	}
	if one, other := next(t, "one call", called), next(t, "the other call", called); one == other {
		t.Errorf("%s was called twice, want both once", one)
	}
	close(free)
}

func testNoResponders(t *testing.T, a, b deltasync.Bus) {
	var calls atomic.Int64
	s := serve(t, a, "up.eu", "agg", answer("a", &calls))
	for _, subject := range []string{"up", "up.us", "up.eu.0"} {
		start := time.Now()
		if reply, err := try(t, b, within, subject, nil); !errors.Is(err, deltasync.ErrNoResponders) {
			t.Errorf("Request(%q) = %q, %v, want ErrNoResponders", subject, reply, err)
		}
		if d := time.Since(start); d > prompt {
			t.Errorf("Request(%q) took %v to fail", subject, d)
		}
	}
	request(t, b, "up.eu", "")
	if err := s.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if reply, err := try(t, b, within, "up.eu", nil); !errors.Is(err, deltasync.ErrNoResponders) {
		t.Errorf("Request after Stop = %q, %v, want ErrNoResponders", reply, err)
	}
}

func testRequestContext(t *testing.T, a, b deltasync.Bus) {
	started := make(chan struct{}, 10)
	free := make(chan struct{})
	defer close(free)
	serve(t, a, "slow", "agg", func(context.Context, string, []byte) []byte {
		started <- struct{}{}
		<-free
		return []byte("late")
	})
	if reply, err := try(t, b, brief, "slow", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Request = %q, %v, want DeadlineExceeded", reply, err)
	}
	next(t, "the first request", started)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { // ends with its request; waited for below
		_, err := b.Request(ctx, "slow", nil)
		done <- err
	}()
	next(t, "the second request", started)
	cancel()
	if err := next(t, "its end", done); !errors.Is(err, context.Canceled) {
		t.Errorf("Request = %v, want Canceled", err)
	}

	if reply, err := b.Request(ctx, "slow", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Request with a context that ended before = %q, %v, want Canceled", reply, err)
	}
	// The two late replies must not answer another request.
	free <- struct{}{}
	free <- struct{}{}
	var calls atomic.Int64
	serve(t, a, "fast", "agg", answer("fast", &calls))
	if got := request(t, b, "fast", "x"); got != "fast: x" {
		t.Errorf("Request = %q, want its own reply", got)
	}
	if len(started) != 0 {
		t.Error("a request was sent although its context had ended")
	}
}

func testNilReply(t *testing.T, a, b deltasync.Bus) {
	handled := make(chan struct{}, 1)
	serve(t, a, "mute", "agg", func(context.Context, string, []byte) []byte {
		handled <- struct{}{}
		return nil
	})
	if reply, err := try(t, b, brief, "mute", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Request = %q, %v, want DeadlineExceeded", reply, err)
	}
	next(t, "the request", handled)
}

func testSlowServer(t *testing.T, a, b deltasync.Bus) {
	free := make(chan struct{})
	var running, most atomic.Int64
	serve(t, a, "stuck", "agg", func(context.Context, string, []byte) []byte {
		now := running.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		<-free
		running.Add(-1)
		return []byte("at last")
	})
	var calls atomic.Int64
	serve(t, a, "fast", "agg", answer("fast", &calls))
	// More requests than any bus holds for one server: some are lost.
	const n = 3000
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var all sync.WaitGroup
	var answered atomic.Int64
	for range n {
		all.Go(func() {
			if reply, err := b.Request(ctx, "stuck", nil); err == nil && string(reply) == "at last" {
				answered.Add(1)
			}
		})
	}
	for range 20 {
		request(t, b, "fast", "")
	}
	close(free)
	for answered.Load() == 0 {
		request(t, b, "fast", "")
	}
	// It serves again, though a request that comes while those before still wait
	// may be lost like them.
	for ctx.Err() == nil {
		if _, err := try(t, b, brief, "stuck", nil); err == nil {
			break
		}
	}
	if ctx.Err() != nil {
		t.Error("a server that was slow serves no more")
	}
	cancel()
	all.Wait()
	if most.Load() > 256 {
		t.Errorf("%d handlers of one server ran at once, want a bound", most.Load())
	}
}
