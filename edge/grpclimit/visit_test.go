package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// everybody is a rule of one counter.
func everybody(name string, rate limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: name, Group: name, Rates: []limit.RateSpec{rate}}
}

// overBoth runs a test in a bubble of its own over the fake and over a node:
// the interceptors are called without a network between.
func overBoth(t *testing.T, cfg grpclimit.Config, test func(t *testing.T, l *grpclimit.Interceptors), rules ...limit.RuleSpec) {
	doc := limit.Document{Namespace: "shop", Defaults: limit.Defaults{Scope: "edge"}, Rules: rules}
	for name, limiter := range map[string]func(testing.TB) httpapi.Limiter{
		"fake": func(tb testing.TB) httpapi.Limiter { return limitertest.New(tb, doc) },
		"node": func(tb testing.TB) httpapi.Limiter { return limitertest.Node(tb, doc) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := grpclimit.New(limiter(t), "", cfg)
				if err != nil {
					t.Fatal(err)
				}
				test(t, l)
			})
		})
	}
}

// unary makes a unary call whose handler takes some time and ends with err.
func unary(ctx context.Context, l *grpclimit.Interceptors, takes time.Duration, err error) codes.Code {
	_, got := l.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Get"}, func(context.Context, any) (any, error) {
		time.Sleep(takes) // virtual
		return nil, err
	})
	return status.Code(got)
}

// fakeStream is a stream that receives one message after the other.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *fakeStream) Context() context.Context     { return s.ctx }
func (s *fakeStream) RecvMsg(any) error            { return nil }
func (s *fakeStream) SetHeader(metadata.MD) error  { return nil }
func (s *fakeStream) SetTrailer(metadata.MD)       {}
func (s *fakeStream) SendHeader(metadata.MD) error { return nil }

// stream makes a stream that receives a number of messages, one a time.
func stream(ctx context.Context, l *grpclimit.Interceptors, messages int, every time.Duration) codes.Code {
	return status.Code(l.Stream(nil, &fakeStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/shop.Orders/List"}, func(_ any, ss grpc.ServerStream) error {
		for range messages {
			time.Sleep(every) // virtual
			if err := ss.RecvMsg("message"); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	queue := limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 2, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}
	overBoth(t, grpclimit.Config{}, func(t *testing.T, l *grpclimit.Interceptors) {
		begun := time.Now()
		if got := unary(t.Context(), l, 0, nil); got != codes.OK || time.Since(begun) != 0 {
			t.Fatalf("the first call: %v after %v", got, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(400*time.Millisecond, cancel)
		if got := unary(ctx, l, 0, nil); got != codes.Canceled || time.Since(begun) != 400*time.Millisecond {
			t.Errorf("a call that was cancelled: %v after %v", got, time.Since(begun))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got := stream(ctx, l, 0, 0); got != codes.DeadlineExceeded || time.Since(begun) != 400*time.Millisecond {
			t.Errorf("a stream whose deadline comes first: %v after %v", got, time.Since(begun))
		}
		if got := stream(t.Context(), l, 0, 0); got != codes.OK || time.Since(begun) != time.Second {
			t.Errorf("the second call: %v after %v, want a second", got, time.Since(begun))
		}
	}, everybody("queue", queue))
}

// Who leaves a queue lets nobody come out sooner who waits behind, nor two together: its
// place stays empty.
func TestCallsThatLeaveTheQueue(t *testing.T) {
	queue := limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 9, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}
	overBoth(t, grpclimit.Config{}, func(t *testing.T, l *grpclimit.Interceptors) {
		begun := time.Now()
		unary(t.Context(), l, 0, nil)
		leaves, cancel := context.WithCancel(t.Context())
		took := make(chan time.Duration, 2) // read once for each that stays
		call := func(ctx context.Context) {
			go func() {
				if unary(ctx, l, 0, nil) == codes.OK {
					took <- time.Since(begun)
				}
			}()
			synctest.Wait()
		}
		call(leaves)
		call(t.Context())
		cancel()
		synctest.Wait()
		call(t.Context())
		if first, second := <-took, <-took; first != 2*time.Second || second != 3*time.Second {
			t.Errorf("behind one that left: after %v and %v, want 2s and 3s", first, second)
		}
	}, everybody("queue", queue))
}

// A rule that delays has calls wait for room, and whoever gives up is not charged.
// The fake knows no max_delay.
func TestCallsWaitForRoom(t *testing.T) {
	rule := everybody("bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 1, Refill: limit.Flow{Units: 1, Per: time.Second}})
	rule.MaxDelay = 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		l, err := grpclimit.New(limitertest.Node(t, limit.Document{Namespace: "shop", Defaults: limit.Defaults{Scope: "edge"}, Rules: []limit.RuleSpec{rule}}), "", grpclimit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if got := unary(t.Context(), l, 0, nil); got != codes.OK || time.Since(begun) != 0 {
			t.Fatalf("the first call: %v after %v", got, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if got := unary(ctx, l, 0, nil); got != codes.DeadlineExceeded {
			t.Errorf("a call whose deadline comes first: %v", got)
		}
		if got := stream(t.Context(), l, 0, 0); got != codes.OK || time.Since(begun) != time.Second {
			t.Errorf("the second call: %v after %v, want a second", got, time.Since(begun))
		}
	})
}

// A call holds its slot until its handler is done, a stream for as long as it
// lasts, and its messages take no other.
func TestCallsHoldTheirSlots(t *testing.T) {
	slots := everybody("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: 10 * time.Second})
	minute := everybody("hour", limit.RateSpec{Limit: 12, Per: time.Hour})
	for _, messages := range []bool{false, true} {
		overBoth(t, grpclimit.Config{Messages: messages}, func(t *testing.T, l *grpclimit.Interceptors) {
			done := make(chan codes.Code)
			for name, call := range map[string]func() codes.Code{
				"unary":  func() codes.Code { return unary(t.Context(), l, time.Minute, errors.New("an error of the handler's")) },
				"stream": func() codes.Code { return stream(t.Context(), l, 3, 20*time.Second) },
			} {
				go func() { done <- call() }() // done is read below
				for range 3 {
					time.Sleep(17 * time.Second) // virtual
					if got := unary(t.Context(), l, 0, nil); got != codes.ResourceExhausted {
						t.Errorf("%s: beside it, another call ended with %v", name, got)
					}
				}
				if got, want := <-done, map[string]codes.Code{"unary": codes.Unknown, "stream": codes.OK}[name]; got != want {
					t.Errorf("%s, messages %v: %v, want %v", name, messages, got, want)
				}
				if got := unary(t.Context(), l, 0, nil); got != codes.OK {
					t.Errorf("%s: after it, another call ended with %v", name, got)
				}
			}
			// Four calls so far, and the stream's three messages where they count.
			left, want := 0, 8
			for left < 12 && unary(t.Context(), l, 0, nil) == codes.OK {
				left++
			}
			if messages {
				want = 5
			}
			if left != want {
				t.Errorf("messages %v: %d calls left of the hour, want %d", messages, left, want)
			}
		}, slots, minute)
	}
}

// A message that finds the limit used up leaves the stream's slot free.
func TestDeniedMessagesLeaveNoSlotBehind(t *testing.T) {
	slots := everybody("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: time.Hour})
	few := everybody("few", limit.RateSpec{Limit: 2, Per: time.Minute})
	overBoth(t, grpclimit.Config{Messages: true}, func(t *testing.T, l *grpclimit.Interceptors) {
		if got := stream(t.Context(), l, 3, 0); got != codes.ResourceExhausted {
			t.Errorf("a stream of one message too many: %v", got)
		}
		time.Sleep(2 * time.Minute) // virtual
		if got := stream(t.Context(), l, 1, 0); got != codes.OK {
			t.Errorf("after it: %v, want its slot back", got)
		}
	}, slots, few)
}

// A message that costs nothing leaves the stream its slot.
func TestFreeMessagesKeepTheSlot(t *testing.T) {
	slots := everybody("slots", limit.RateSpec{Algorithm: "concurrency", Limit: 1, Lease: 10 * time.Second})
	free := func(_ context.Context, _ string, message any) uint64 {
		if message == nil { // the stream itself
			return 1
		}
		return 0
	}
	overBoth(t, grpclimit.Config{Messages: true, Cost: free}, func(t *testing.T, l *grpclimit.Interceptors) {
		done := make(chan codes.Code)
		go func() { done <- stream(t.Context(), l, 3, 20*time.Second) }() // done is read below
		for range 3 {
			time.Sleep(17 * time.Second) // virtual
			if got := stream(t.Context(), l, 0, 0); got != codes.ResourceExhausted {
				t.Errorf("beside it, another stream ended with %v", got)
			}
		}
		if got := <-done; got != codes.OK {
			t.Error(got)
		}
	}, slots)
}

// Rules count calls by the code that they ended with, or its status in HTTP.
func TestCallsAreCountedByTheirCode(t *testing.T) {
	for when, counted := range map[string]codes.Code{
		`attr("response.code") == "UNAUTHENTICATED"`: codes.Unauthenticated,
		`int(attr("response.status")) == 401`:        codes.Unauthenticated,
		`attr("response.status") == "499"`:           codes.Canceled,
		`int(attr("response.status")) >= 500`:        codes.Unknown,
	} {
		rule := everybody("logins", limit.RateSpec{Limit: 1, Per: time.Hour})
		rule.CountWhen = when
		overBoth(t, grpclimit.Config{}, func(t *testing.T, l *grpclimit.Interceptors) {
			for _, code := range []codes.Code{codes.OK, codes.NotFound} {
				for range 2 {
					if got := unary(t.Context(), l, 0, status.Error(code, "")); got != code {
						t.Fatalf("%s: %v is %v", when, code, got)
					}
				}
			}
			err := status.Error(counted, "")
			if counted == codes.Canceled {
				err = context.Canceled // as grpc reads it
			}
			_ = unary(t.Context(), l, 0, err)
			if got := stream(t.Context(), l, 0, 0); got != codes.ResourceExhausted {
				t.Errorf("%s: after %v a stream ends with %v, want it denied", when, counted, got)
			}
		}, rule)
	}
}

// A handler that panics gives its slot back, and counts as an internal error.
func TestPanicsOfHandlers(t *testing.T) {
	rule := everybody("broken", limit.RateSpec{Limit: 1, Per: time.Hour})
	rule.CountWhen = `attr("response.code") == "INTERNAL"`
	overBoth(t, grpclimit.Config{}, func(t *testing.T, l *grpclimit.Interceptors) {
		func() {
			defer func() {
				if p := recover(); p != "a bug" {
					t.Errorf("the panic became %v", p)
				}
			}()
			_, _ = l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Get"}, func(context.Context, any) (any, error) { panic("a bug") })
		}()
		if got := unary(t.Context(), l, 0, nil); got != codes.ResourceExhausted {
			t.Errorf("after a panic: %v, want it counted", got)
		}
	}, rule)
}
