// Package bustest is the one suite that every deltasync.Bus must pass: it
// tests each sentence of the interface, on two connections to the same bus,
// be they to one server or to two.
package bustest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
)

const (
	// within is how long anything that must happen may take on a loaded
	// machine; a healthy one never waits for it.
	within = 20 * time.Second
	// brief is how long a request waits that must not be answered, and thus
	// what the suite costs.
	brief = 50 * time.Millisecond
	// prompt is the longest that a refusal may take, when the request itself
	// would wait for within.
	prompt = 5 * time.Second
)

// Run tests the buses that open returns: two new connections to one server,
// which nobody else uses. The suite closes them.
func Run(t *testing.T, open func(t *testing.T) (a, b deltasync.Bus)) {
	run(t, open, nil, false)
}

// Wide is a bus of several servers.
type Wide struct {
	// Open returns new connections to two of its servers, which nobody else
	// uses. The suite closes them.
	Open func(t *testing.T) (a, b deltasync.Bus)
	// Settle returns when each of the two servers knows what the clients of the
	// other serve and subscribe to by now.
	Settle func()
	// Near says that a request goes to the server of whoever asks, if somebody
	// serves it there.
	Near bool
}

// RunWide is Run over several servers. It demands the same of them, once they
// have told each other.
func RunWide(t *testing.T, w Wide) { run(t, w.Open, w.Settle, w.Near) }

func run(t *testing.T, open func(t *testing.T) (a, b deltasync.Bus), settle func(), near bool) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, a, b deltasync.Bus)
	}{
		{"request and reply", testRequest},
		{"requests of one server run at once", testServeConcurrently},
		{"one of a queue gets a request", func(t *testing.T, a, b deltasync.Bus) { testQueue(t, a, b, near) }},
		{"one of a queue over several patterns", testQueueOverPatterns},
		{"one of each queue gets a request", testQueues},
		{"a request nobody serves fails at once", testNoResponders},
		{"a request ends with its context", testRequestContext},
		{"a nil reply sends none", testNilReply},
		{"publish to all who subscribed", testPublish},
		{"requests and publications are apart", testApart},
		{"bad subjects", testBadSubjects},
		{"messages come in order, one at a time", testOrder},
		{"a slow subscriber holds up nobody", testSlowSubscriber},
		{"a slow server holds up nobody", testSlowServer},
		{"payloads belong to one side", testOwnership},
		{"size of payloads", testSize},
		{"stop", testStop},
		{"stop by a handler", testStopByHandler},
		{"close", testClose},
		{"close waits for handlers", testCloseWaits},
		{"close ends requests", testCloseEndsRequests},
		{"all at once", testConcurrency},
	} {
		t.Run(part.name, func(t *testing.T) {
			a, b := open(t)
			if settle != nil {
				a, b = settling{a, settle}, settling{b, settle}
			}
			t.Cleanup(func() {
				for _, bus := range []deltasync.Bus{a, b} {
					if err := bus.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			})
			part.test(t, a, b)
		})
	}
}

// settling is one of several servers' bus, whose changes the others know of on
// return.
type settling struct {
	deltasync.Bus
	settle func()
}

func (b settling) Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (deltasync.Subscription, error) {
	s, err := b.Bus.Serve(subject, queue, handle)
	return b.after(s, err)
}

func (b settling) Subscribe(subject string, handle func(subject string, payload []byte)) (deltasync.Subscription, error) {
	s, err := b.Bus.Subscribe(subject, handle)
	return b.after(s, err)
}

func (b settling) after(s deltasync.Subscription, err error) (deltasync.Subscription, error) {
	if err != nil {
		return nil, err
	}
	b.settle()
	return settlingSubscription{s, b.settle}, nil
}

func (b settling) Close() error {
	defer b.settle()
	return b.Bus.Close()
}

type settlingSubscription struct {
	deltasync.Subscription
	settle func()
}

func (s settlingSubscription) Stop() error {
	defer s.settle()
	return s.Subscription.Stop()
}

// unsettled is b without waiting for other servers.
func unsettled(b deltasync.Bus) deltasync.Bus {
	if s, ok := b.(settling); ok {
		return s.Bus
	}
	return b
}

// serve is Serve that must succeed.
func serve(t testing.TB, b deltasync.Bus, subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) deltasync.Subscription {
	t.Helper()
	s, err := b.Serve(subject, queue, handle)
	if err != nil {
		t.Fatalf("Serve(%q, %q): %v", subject, queue, err)
	}
	return s
}

// answer is a handler that replies "<name>: <payload>" and counts its calls.
func answer(name string, calls *atomic.Int64) func(context.Context, string, []byte) []byte {
	return func(_ context.Context, _ string, payload []byte) []byte {
		calls.Add(1)
		return fmt.Appendf(nil, "%s: %s", name, payload)
	}
}

// subscribe is Subscribe that must succeed; what it receives goes to the
// channel, as "<subject> <payload>".
func subscribe(t testing.TB, b deltasync.Bus, pattern string) (deltasync.Subscription, <-chan string) {
	t.Helper()
	got := make(chan string, 10000) // more than any test sends, so that it never falls behind
	s, err := b.Subscribe(pattern, func(subject string, payload []byte) { got <- subject + " " + string(payload) })
	if err != nil {
		t.Fatalf("Subscribe(%q): %v", pattern, err)
	}
	return s, got
}

// request is a Request that must be answered.
func request(t testing.TB, b deltasync.Bus, subject, payload string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	reply, err := b.Request(ctx, subject, []byte(payload))
	if err != nil {
		t.Fatalf("Request(%q): %v", subject, err)
	}
	return string(reply)
}

// try is a Request that may fail, within d.
func try(t testing.TB, b deltasync.Bus, d time.Duration, subject string, payload []byte) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return b.Request(ctx, subject, payload)
}

// publish is a Publish that must succeed.
func publish(t testing.TB, b deltasync.Bus, subject, payload string) {
	t.Helper()
	if err := b.Publish(subject, []byte(payload)); err != nil {
		t.Fatalf("Publish(%q): %v", subject, err)
	}
}

// next receives from c, and ends the test if nothing comes.
func next[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(within):
		t.Fatalf("%s did not come within %v", what, within)
		panic("unreachable")
	}
}

// quiet publishes an end mark after which nothing that was published before
// can still come, and fails the test if anything but the mark arrives.
func quiet(t testing.TB, by deltasync.Bus, subject string, got <-chan string) {
	t.Helper()
	publish(t, by, subject, "end")
	if m, want := next(t, "the end mark", got), subject+" end"; m != want {
		t.Errorf("received %q, want %q and nothing before it", m, want)
	}
}
