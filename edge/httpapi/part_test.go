package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge/limit"
)

// open decides about a stream of one client, whose messages are parts of it.
func (b *bench) open(t *testing.T) *Visit {
	t.Helper()
	v, visit := b.api.Decide(t.Context(), &Call{Peer: "192.0.2.1:80", Parts: true})
	if !v.Allowed || visit == nil {
		t.Fatalf("the opening: %+v with visit %v, want it to pass with one", v, visit)
	}
	return visit
}

// message decides about one, and says whether it passed.
func message(t *testing.T, v *Visit) bool {
	t.Helper()
	verdict, err := v.Part(t.Context(), &Call{Peer: "192.0.2.1:80"})
	if err != nil {
		t.Fatalf("Part: %v", err)
	}
	return verdict.Allowed
}

// passes says whether another call of the client does, which ends at once.
func (b *bench) passes(t *testing.T) bool {
	t.Helper()
	v, visit := b.api.Decide(t.Context(), &Call{Peer: "192.0.2.1:80"})
	visit.End(Answer{})
	return v.Allowed
}

// renewing is a limiter that keeps when it was asked to renew.
type renewing struct {
	Limiter
	begun time.Time
	at    []time.Duration // since then
}

func (r *renewing) Renew(now time.Time, charges []limit.Charge) {
	r.at = append(r.at, now.Sub(r.begun))
	r.Limiter.Renew(now, charges)
}

// noteRenewals has the bench keep when it renews, from now on.
func (b *bench) noteRenewals() *renewing {
	r := &renewing{Limiter: b.api.limiter, begun: time.Now()}
	b.api.limiter = r
	return r
}

// A message that a queue admits waits for its turn, and gives its place back where it
// does not live to it.
func TestMessagesWaitForTheirTurn(t *testing.T) {
	overBoth(t, rules(perAddress("queue", queueOf(3, time.Second))), func(t *testing.T, b *bench) {
		begun, visit := time.Now(), b.open(t)
		time.AfterFunc(500*time.Millisecond, func() {
			if got := testutil.ToFloat64(b.api.metrics.waiting); got != 1 {
				t.Errorf("%v are said to wait, want the message", got)
			}
		})
		if !message(t, visit) || time.Since(begun) != time.Second {
			t.Errorf("a message passed after %v, want a second", time.Since(begun))
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, leave)
		if _, err := visit.Part(ctx, &Call{Peer: "192.0.2.1:80"}); !errors.Is(err, ErrGone) || time.Since(begun) != 1300*time.Millisecond {
			t.Errorf("a message whose stream is cut: %v after %v, want %v after 1.3s", err, time.Since(begun), ErrGone)
		}
		if got := testutil.ToFloat64(b.api.metrics.waiting); got != 0 {
			t.Errorf("%v are said to wait, want none", got)
		}
		if !message(t, visit) || time.Since(begun) != 2*time.Second {
			t.Errorf("the next one passed after %v, want 2s", time.Since(begun))
		}
	})
}

// A turn is waited for once, and who has none to wait for passes, though gone by then.
func TestTurnsAreWaitedForOnce(t *testing.T) {
	overBoth(t, rules(perAddress("queue", queueOf(3, time.Second))), func(t *testing.T, b *bench) {
		gone, leave := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer leave()
		if err := b.open(t).Wait(gone); err != nil {
			t.Errorf("the first of a queue: %v, want it to pass", err)
		}
		begun, second := time.Now(), b.open(t)
		for range 2 {
			if err := second.Wait(t.Context()); err != nil || time.Since(begun) != time.Second {
				t.Errorf("the second: %v after %v, want a second", err, time.Since(begun))
			}
		}
	})
}

// A message whose stream ends while it waits takes no slot, and is charged to no rate.
func TestMessageOutlivesItsStream(t *testing.T) {
	doc := rules(perAddress("queue", queueOf(3, time.Second)), perAddress("slots", slotsOf(1, time.Hour)), perAddress("hour", limit.RateSpec{Limit: 3, Per: time.Hour}))
	overBoth(t, doc, func(t *testing.T, b *bench) {
		visit := b.open(t)
		time.AfterFunc(500*time.Millisecond, func() { visit.End(Answer{}) })
		if !message(t, visit) {
			t.Fatal("the message is denied")
		}
		for i, want := range []bool{true, true, false} { // but for the opening, the hour is all left
			time.Sleep(3 * time.Second) // virtual: the queue is empty
			if got := b.passes(t); got != want {
				t.Errorf("call %d after it passes: %v, want %v", i, got, want)
			}
		}
	})
}

// Slots are renewed half of a lease after a message took them anew, and no more once one
// is denied: the stream has none then.
func TestMessagesPutRenewalsOff(t *testing.T) {
	doc := rules(perAddress("slots", slotsOf(1, 20*time.Second)), perAddress("few", limit.RateSpec{Limit: 3, Per: time.Hour}))
	overBoth(t, doc, func(t *testing.T, b *bench) {
		r, visit := b.noteRenewals(), b.open(t)
		for i, wait := range []time.Duration{4 * time.Second, 26 * time.Second, 15 * time.Second} {
			time.Sleep(wait) // virtual
			if got := message(t, visit); got != (i < 2) {
				t.Errorf("message %d passes: %v, want the first two to", i, got)
			}
		}
		time.Sleep(time.Minute) // virtual
		if want := []time.Duration{14 * time.Second, 24 * time.Second, 40 * time.Second}; fmt.Sprint(r.at) != fmt.Sprint(want) {
			t.Errorf("renewed at %v, want %v", r.at, want)
		}
		visit.End(Answer{})
	})
}

// All slots of a visit are renewed by the shortest of their leases, whatever else it was
// charged to.
func TestShortestLeaseIsRenewed(t *testing.T) {
	long, short, none := slotsOf(1, time.Minute), slotsOf(1, 20*time.Second), limit.RateSpec{Limit: 9, Per: time.Hour}
	for _, r := range [][3]limit.RateSpec{ // they are charged in the order of their names
		{long, short, none}, {long, none, short}, {short, long, none}, {short, none, long}, {none, long, short}, {none, short, long},
	} {
		overBoth(t, rules(perAddress("a", r[0]), perAddress("b", r[1]), perAddress("c", r[2])), func(t *testing.T, b *bench) {
			r, visit := b.noteRenewals(), b.open(t)
			time.Sleep(35 * time.Second) // virtual
			visit.End(Answer{})
			time.Sleep(time.Minute) // virtual
			if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}; fmt.Sprint(r.at) != fmt.Sprint(want) {
				t.Errorf("renewed at %v, want %v", r.at, want)
			}
		})
	}
}

// A renewal that is due just as its slots are given back, taken over, or gone with their
// visit finds nothing to do.
func TestLateRenewalsDoNothing(t *testing.T) {
	overBoth(t, rules(perAddress("slots", slotsOf(2, 20*time.Second))), func(t *testing.T, b *bench) {
		r, visit := b.noteRenewals(), b.open(t)
		part := b.open(t)
		visit.release()
		visit.renew(time.Second)
		if !visit.takeOver(part) {
			t.Fatal("a visit that goes on does not take over")
		}
		part.renew(time.Second)
		visit.End(Answer{})
		visit.renew(time.Second)
		time.Sleep(time.Minute) // virtual
		if got := b.metric(t, "spillgate_http_panics_total"); len(r.at) != 0 || got != 0 {
			t.Errorf("renewed at %v, with %v panics, want neither", r.at, got)
		}
		for i := range 2 {
			if v, _ := b.api.Decide(t.Context(), &Call{Peer: "192.0.2.1:80"}); !v.Allowed {
				t.Errorf("of 2 slots %d are to be had after all have ended", i)
			}
		}
	})
}

// A stream that was charged nothing itself has the slots of its messages until it ends.
func TestSlotsOfMessagesAlone(t *testing.T) {
	overBoth(t, rules(perAddress("slots", slotsOf(1, 20*time.Second))), func(t *testing.T, b *bench) {
		free := Call{Peer: "192.0.2.1:80", Parts: true, Peek: true}
		_, without := b.api.Decide(t.Context(), &free)
		without.End(Answer{})
		_, visit := b.api.Decide(t.Context(), &free)
		if !b.passes(t) {
			t.Error("a stream that is charged nothing took a slot")
		}
		for i := range 2 {
			if !message(t, visit) {
				t.Errorf("message %d is denied", i)
			}
			time.Sleep(time.Minute) // virtual
			if b.passes(t) {
				t.Errorf("message %d of a stream that lasts has no slot", i)
			}
		}
		visit.End(Answer{})
		if !b.passes(t) {
			t.Error("the slot did not come back with the end")
		}
		if got := b.metric(t, "spillgate_http_panics_total"); got != 0 {
			t.Errorf("%v panics", got)
		}
	})
}

// A limiter that fails as slots are given back takes no stream down, and the log says
// which it was.
func TestFailuresOfMessages(t *testing.T) {
	overBoth(t, rules(perAddress("slots", slotsOf(9, time.Hour))), func(t *testing.T, b *bench) {
		var log bytes.Buffer
		b.api.log, b.api.limiter = slog.New(slog.NewTextHandler(&log, nil)), stuck{b.api.limiter}
		_, visit := b.api.Decide(t.Context(), &Call{Peer: "192.0.2.1:80", Path: "/shop.Orders/List", Parts: true, Peek: true})
		for range 2 {
			if !message(t, visit) {
				t.Error("a message is denied")
			}
		}
		for range 2 { // it has ended, though it failed to
			visit.End(Answer{})
			visit.release()
		}
		if got := b.metric(t, "spillgate_http_panics_total"); got != 2 || strings.Count(log.String(), "/shop.Orders/List") != 2 {
			t.Errorf("%v panics, want 2, and the path of both in the log", got)
		}
	})
}

// Who was denied, or asked only how things stand, has nothing to wait for or to end; nor
// does a denial's policy stand in what passes.
func TestNoVisit(t *testing.T) {
	logins := perAddress("logins", limit.RateSpec{Limit: 9, Per: time.Hour})
	logins.CountWhen = `attr("response.status") == "401"`
	for name, tt := range map[string]struct {
		spent  int
		call   Call
		policy string
	}{
		"denied":           {1, Call{}, "few.1h"},
		"a denied stream":  {1, Call{Parts: true}, "few.1h"},
		"a peek":           {0, Call{Peek: true}, ""},
		"a peek, denied":   {1, Call{Peek: true}, "few.1h"},
		"a stream, denied": {1, Call{Parts: true, Peek: true}, "few.1h"},
	} {
		overBoth(t, rules(perAddress("few", limit.RateSpec{Limit: 1, Per: time.Hour}), logins), func(t *testing.T, b *bench) {
			for range tt.spent {
				b.passes(t)
			}
			tt.call.Peer = "192.0.2.1:80"
			if v, visit := b.api.Decide(t.Context(), &tt.call); visit != nil || v.Allowed != (tt.spent == 0) || v.Policy != tt.policy {
				t.Errorf("%s: allowed %v by %q, visit %v, want policy %q and no visit", name, v.Allowed, v.Policy, visit, tt.policy)
			}
		})
	}
}
