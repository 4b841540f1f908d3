package deferred

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// One of a tenant's is tried at a time; who comes meanwhile, and until there may be room, is
// put off to a place of its own, behind the others, and so is who is new.
func TestLaneIsInLine(t *testing.T) {
	at := time.Unix(1000, 0)
	l := newLanes(16)
	enter := func(tenant string, fresh bool) (*turn, time.Duration) { return l.enter(tenant, fresh, time.Hour, at) }
	head, _ := enter("a", true)
	if head == nil {
		t.Fatal("the first has no turn")
	}
	if other, _ := enter("b", true); other == nil {
		t.Error("another tenant's has no turn")
	}
	if second, wait := enter("a", false); second != nil || wait != retryLeast {
		t.Errorf("while one is tried: %v, %v; want to be put off for %v", second, wait, retryLeast)
	}
	head.denied(5*time.Second, 2*time.Second, "", at)
	head.done()
	for i, want := range []time.Duration{7, 9, 11} {
		if second, wait := enter("a", true); second != nil || wait != want*time.Second {
			t.Errorf("%d: %v, %v; want to be put off for %ds", i, second, wait, want)
		}
	}
	at = at.Add(5 * time.Second) // there may be room
	if fresh, wait := enter("a", true); fresh != nil || wait != 8*time.Second {
		t.Errorf("one that is new: %v, %v; want to be behind all others", fresh, wait)
	}
	if head, _ = enter("a", false); head == nil {
		t.Fatal("the head has no turn as there may be room")
	}
	head.begins(at)
	if second, _ := enter("a", false); second == nil {
		t.Error("the next has no turn though the first is at the upstream")
	}
}

// However many wait, each comes within a minute, and not all at once; and before its end.
func TestLaneIsNotTooLong(t *testing.T) {
	at := time.Unix(1000, 0)
	l := newLanes(16)
	head, _ := l.enter("a", true, time.Hour, at)
	head.denied(time.Minute, 10*time.Second, "", at)
	head.done()
	spread := map[time.Duration]bool{}
	for range 1000 {
		_, wait := l.enter("a", true, time.Hour, at)
		if wait < retryMost/2 || wait > retryMost {
			t.Fatalf("put off for %v, want half a minute to a whole one", wait)
		}
		spread[wait.Round(time.Second)] = true
	}
	if len(spread) < 20 {
		t.Errorf("they come in %d different seconds", len(spread))
	}
	if _, wait := l.enter("a", true, 10*time.Second, at); wait != 5*time.Second {
		t.Errorf("one that ends in 10s is put off for %v, want 5s", wait)
	}
}

// No tenant has more than a quarter of the workers at the upstream.
func TestTenantHasAQuarter(t *testing.T) {
	at := time.Unix(1000, 0)
	for workers, want := range map[int]int{1: 1, 4: 1, 7: 1, 16: 4} {
		l := newLanes(workers)
		var last *turn
		for i := range want {
			if last, _ = l.enter("a", false, time.Hour, at); last == nil {
				t.Fatalf("of %d workers a tenant has %d, want %d", workers, i, want)
			}
			last.begins(at)
		}
		for i := range 3 {
			if over, wait := l.enter("a", false, time.Hour, at); over != nil || wait != retryLeast+time.Duration(i)*crowded {
				t.Errorf("of %d workers a tenant has more than %d, or is put off for %v", workers, want, wait)
			}
		}
		last.done()
		if next, _ := l.enter("a", false, time.Hour, at); next == nil {
			t.Errorf("of %d workers: none has a turn as one is done", workers)
		}
	}
}

// Lanes that nobody needs are forgotten; while all are needed, others have their turn too.
func TestLanesAreBounded(t *testing.T) {
	at := time.Unix(1000, 0)
	l := newLanes(16)
	for i := range mostLanes + 10 {
		turn, _ := l.enter(fmt.Sprint(i), true, time.Hour, at)
		if turn == nil {
			t.Fatalf("tenant %d has no turn", i)
		}
		turn.denied(time.Second, time.Second, "", at)
		turn.done()
	}
	if n := len(l.of); n != mostLanes {
		t.Errorf("%d lanes, want %d", n, mostLanes)
	}
	at = at.Add(time.Minute)
	if turn, _ := l.enter("last", true, time.Hour, at); turn == nil || len(l.of) != 1 {
		t.Errorf("%v, %d lanes; want the last alone", turn, len(l.of))
	}
}

func TestPace(t *testing.T) {
	window := &limit.Rate{Limit: 100, Window: time.Minute}
	bucket := &limit.Rate{Limit: 50, Window: 10 * time.Second, Drain: limit.Drain{Refill: 5, Per: time.Second}}
	for name, tt := range map[string]struct {
		d           limit.Decision
		wait, every time.Duration
	}{
		"a window":    {limit.Decision{Rate: window, Cost: 1, RetryAfter: 7 * time.Second}, 7 * time.Second, 600 * time.Millisecond},
		"its cost":    {limit.Decision{Rate: window, Cost: 10, RetryAfter: 7 * time.Second}, 7 * time.Second, 6 * time.Second},
		"a huge cost": {limit.Decision{Rate: window, Cost: 1 << 53, RetryAfter: 7 * time.Second}, 7 * time.Second, retryMost},
		"a bucket":    {limit.Decision{Rate: bucket, Cost: 1, RetryAfter: 150 * time.Millisecond}, 150 * time.Millisecond, 200 * time.Millisecond},
		"no wait":     {limit.Decision{Rate: window, Cost: 1}, retryLeast, 600 * time.Millisecond},
		"slots":       {limit.Decision{Rate: &limit.Rate{Limit: 3, Lease: time.Minute}, Cost: 1, RetryAfter: time.Minute}, 0, 0},
		"never":       {limit.Decision{Cost: 1}, retryMost, 0},
	} {
		if wait, every := pace(&tt.d); wait != tt.wait || every != tt.every {
			t.Errorf("%s: %v, every %v; want %v, every %v", name, wait, every, tt.wait, tt.every)
		}
	}
}

// A thousand requests of each of three tenants, of whose each one passes in a second, take
// nothing between their turns: the limiter is asked once a turn, and JetStream reads few.
func TestWaitingIsCheap(t *testing.T) {
	each := 1000
	if testing.Short() {
		each = 200
	}
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	var put sync.WaitGroup
	for tenant := range 3 {
		put.Go(func() {
			for range each {
				if err := q.Put(context.Background(), request(fmt.Sprint(tenant))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	put.Wait()
	var mu sync.Mutex
	opens, asked, done := map[string]time.Time{}, 0, map[string]int{}
	work(t, q, func(_ context.Context, a *Attempt) Outcome {
		mu.Lock()
		defer mu.Unlock()
		asked++
		now := time.Now()
		if wait := opens[a.Tenant].Sub(now); wait > 0 {
			return Outcome{Wait: wait, Every: time.Second}
		}
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		opens[a.Tenant] = now.Add(time.Second)
		done[a.Tenant]++
		return Outcome{Status: 200}
	})
	delivered(t, q, uint64(3*each)) // each once
	mu.Lock()
	began, asks, before := time.Now(), asked, done["0"]+done["1"]+done["2"]
	mu.Unlock()
	c, err := q.js.Consumer(t.Context(), q.stream, "replay")
	if err != nil {
		t.Fatal(err)
	}
	reads := c.CachedInfo().Delivered.Consumer
	const turns = 5
	proc.Until(t, 60*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if n := done["0"] + done["1"] + done["2"]; n < before+3*turns {
			return errors.New("there were fewer turns than there should be")
		}
		return nil
	})
	if c, err = q.js.Consumer(t.Context(), q.stream, "replay"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	took, asks := time.Since(began), asked-asks
	reads = c.CachedInfo().Delivered.Consumer - reads
	t.Logf("%d turns took %v: the limiter was asked %d times, and %d requests were read", 3*turns, took, asks, reads)
	if most := 3 * int(2*took.Seconds()+2); asks > most {
		t.Errorf("the limiter was asked %d times in %v, want %d at the most", asks, took, most)
	}
	// Those that came before it was known how fast they pass are read once more soon.
	if most := uint64(6*each) + uint64(float64(3*each)/30*took.Seconds()); reads > most {
		t.Errorf("%d requests were read in %v, want %d at the most", reads, took, most)
	}
}
