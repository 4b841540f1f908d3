package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	deltasync "github.com/spillgate/spillgate/sync"
)

func testStop(t *testing.T, a, b deltasync.Bus) {
	s, got := subscribe(t, a, "hot")
	_, marks := subscribe(t, a, "mark")
	publish(t, b, "hot", "1")
	next(t, "the message", got)
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	publish(t, b, "hot", "2")
	quiet(t, b, "mark", marks)
	if len(got) != 0 {
		t.Errorf("received %q after Stop", <-got)
	}

	// What waits for a busy handler is not handed over after Stop.
	started, free := make(chan string, 10), make(chan struct{})
	s, err := a.Subscribe("busy", func(_ string, payload []byte) {
		started <- string(payload)
		<-free
	})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	for i := range 5 {
		publish(t, b, "busy", fmt.Sprint(i))
	}
	quiet(t, b, "mark", marks)
	next(t, "the first message", started)
	if err := s.Stop(); err != nil {
		t.Errorf("Stop while a handler runs: %v", err)
	}
	close(free)
	if err := a.Close(); err != nil { // waits for whatever still runs
		t.Errorf("Close: %v", err)
	}
	if len(started) != 0 {
		t.Errorf("message %q was handed over after Stop", <-started)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop after Close: %v", err)
	}
}

func testStopByHandler(t *testing.T, a, b deltasync.Bus) {
	var self deltasync.Subscription
	ready, stopped := make(chan struct{}), make(chan error, 10)
	self, err := a.Subscribe("once", func(string, []byte) {
		<-ready
		stopped <- self.Stop()
	})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	close(ready)
	_, marks := subscribe(t, a, "mark")
	publish(t, b, "once", "1")
	if err := next(t, "the message", stopped); err != nil {
		t.Errorf("Stop by the handler: %v", err)
	}
	publish(t, b, "once", "2")
	quiet(t, b, "mark", marks)
	if len(stopped) != 0 {
		t.Error("the handler was called after it had stopped its own subscription")
	}
}

func testClose(t *testing.T, a, b deltasync.Bus) {
	var calls atomic.Int64
	s := serve(t, a, "up", "agg", answer("a", &calls))
	_, got := subscribe(t, a, "hot")
	_, marks := subscribe(t, b, "hot")
	request(t, b, "up", "")

	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := a.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	all.Wait()
	if err := a.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if _, err := try(t, a, within, "up", nil); !errors.Is(err, deltasync.ErrClosed) {
		t.Errorf("Request after Close: %v, want ErrClosed", err)
	}
	if err := a.Publish("hot", nil); !errors.Is(err, deltasync.ErrClosed) {
		t.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
	if _, err := a.Serve("up", "agg", answer("a", &calls)); !errors.Is(err, deltasync.ErrClosed) {
		t.Errorf("Serve after Close: %v, want ErrClosed", err)
	}
	if _, err := a.Subscribe("hot", func(string, []byte) {}); !errors.Is(err, deltasync.ErrClosed) {
		t.Errorf("Subscribe after Close: %v, want ErrClosed", err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("Stop after Close: %v", err)
	}
	quiet(t, b, "hot", marks)
	if len(got) != 0 {
		t.Errorf("received %q after Close", <-got)
	}
	// The other connection knows that nobody serves now: at once, or as soon
	// as the bus has noticed.
	for {
		_, err := try(t, b, within, "up", nil)
		if errors.Is(err, deltasync.ErrNoResponders) {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || t.Context().Err() != nil {
			t.Fatalf("Request to a closed server: %v, want ErrNoResponders", err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("the server handled %d requests, want 1", calls.Load())
	}
}

func testCloseWaits(t *testing.T, a, b deltasync.Bus) {
	started := make(chan struct{}, 2)
	free := make(chan struct{})
	var ended atomic.Int64
	serve(t, a, "up", "agg", func(ctx context.Context, _ string, _ []byte) []byte {
		started <- struct{}{}
		<-ctx.Done() // or the test hangs: Close must end it
		<-free
		ended.Add(1)
		return nil
	})
	if _, err := a.Subscribe("hot", func(string, []byte) {
		started <- struct{}{}
		<-free
		ended.Add(1)
	}); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	asked.Go(func() {
		if reply, err := b.Request(ctx, "up", nil); err == nil {
			t.Errorf("Request = %q, want an error", reply)
		}
	})
	publish(t, b, "hot", "1")
	next(t, "a call", started)
	next(t, "the other call", started)
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }() // waited for below
	for {                               // until Close has begun
		if _, err := try(t, a, within, "nobody", nil); errors.Is(err, deltasync.ErrClosed) {
			break
		}
	}
	select {
	case <-closed:
		t.Error("Close returned while handlers ran")
	default:
	}
	close(free)
	if err := next(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	if ended.Load() != 2 {
		t.Errorf("%d of 2 handlers had ended when Close returned", ended.Load())
	}
	cancel()
	asked.Wait()
}

func testCloseEndsRequests(t *testing.T, a, b deltasync.Bus) {
	started, free := make(chan struct{}, 1), make(chan struct{})
	serve(t, a, "up", "agg", func(context.Context, string, []byte) []byte {
		started <- struct{}{}
		<-free
		return nil
	})
	done := make(chan error, 1)
	go func() { // waited for below
		_, err := b.Request(context.Background(), "up", nil)
		done <- err
	}()
	next(t, "the request", started)
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := next(t, "the end of the request", done); !errors.Is(err, deltasync.ErrClosed) {
		t.Errorf("Request while its bus was closed: %v, want ErrClosed", err)
	}
	close(free)
}

// testConcurrency is for the race detector: everything at once, and Close in
// the middle of it.
func testConcurrency(t *testing.T, a, b deltasync.Bus) {
	const rounds = 40
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var calls atomic.Int64
	serve(t, a, "up.*", "agg", answer("a", &calls))
	a, b = unsettled(a), unsettled(b) // or the many would wait for each other
	var all sync.WaitGroup
	var halfway sync.WaitGroup
	for i := range 4 {
		for _, bus := range []deltasync.Bus{a, b} {
			halfway.Add(1)
			all.Go(func() {
				for round := range 2 * rounds {
					if round == rounds {
						halfway.Done()
					}
					subject := fmt.Sprintf("up.%d", i)
					reply, err := bus.Request(ctx, subject, []byte(subject))
					switch {
					case err == nil && string(reply) != "a: "+subject:
						t.Errorf("Request(%q) = %q, want its own reply", subject, reply)
					case err != nil && round < rounds:
						t.Errorf("Request(%q): %v", subject, err)
					case ctx.Err() != nil:
						return
					case errors.Is(err, deltasync.ErrClosed), errors.Is(err, deltasync.ErrNoResponders):
						return
					}
					s, err := bus.Subscribe("hot.>", func(string, []byte) { calls.Add(1) })
					if err != nil {
						if !errors.Is(err, deltasync.ErrClosed) {
							t.Errorf("Subscribe: %v", err)
						}
						return
					}
					if err := bus.Publish("hot."+subject, nil); err != nil && !errors.Is(err, deltasync.ErrClosed) {
						t.Errorf("Publish: %v", err)
					}
					if err := s.Stop(); err != nil {
						t.Errorf("Stop: %v", err)
					}
				}
			})
		}
	}
	halfway.Wait()
	if err := a.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	cancel() // a request whose server closed under it has nothing to wait for
	all.Wait()
}
