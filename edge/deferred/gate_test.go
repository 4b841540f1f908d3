package deferred

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// world has requests of tenants wait for one limit, which lets one pass in so long, at an edge,
// on a clock of its own.
type world struct {
	t     *testing.T
	lanes *lanes
	every time.Duration
	by    string // what the limit is called
	opens time.Time
	now   time.Time
	asked int            // how often the limit was
	done  map[string]int // by tenant
	reads int
	come  []*waiter
}

type waiter struct {
	tenant string
	at     time.Time
	fresh  bool
}

func newWorld(t *testing.T, every time.Duration, by string) *world {
	at := time.Unix(1000, 0)
	return &world{t: t, lanes: newLanes(16), every: every, by: by, opens: at, now: at, done: map[string]int{}}
}

func (w *world) put(tenant string, n int) {
	for range n {
		w.come = append(w.come, &waiter{tenant, w.now, true})
	}
}

// run has it last so long, by steps.
func (w *world) run(lasts time.Duration) {
	const step = 5 * time.Millisecond
	for end := w.now.Add(lasts); w.now.Before(end); w.now = w.now.Add(step) {
		stay := w.come[:0]
		for _, r := range w.come {
			if r.at.After(w.now) || !w.read(r) {
				stay = append(stay, r)
			}
		}
		w.come = stay
	}
}

// read has one be read; true: it is done.
func (w *world) read(r *waiter) bool {
	w.reads++
	turn, wait := w.lanes.enter(r.tenant, r.fresh, time.Hour, w.now)
	r.fresh = false
	if turn == nil {
		r.at = w.now.Add(max(retryLeast, wait))
		return false
	}
	defer turn.done()
	w.asked++
	if wait := w.opens.Sub(w.now); wait > 0 {
		turn.denied(max(wait, retryLeast), w.every, w.by, w.now)
		r.at = w.now.Add(max(wait, retryLeast))
		return false
	}
	turn.begins(w.now)
	w.opens = w.now.Add(w.every)
	w.done[r.tenant]++
	return true
}

func (w *world) total() (n int) {
	for _, done := range w.done {
		n += done
	}
	return n
}

// A thousand keys that wait for one limit ask it a few times for each that passes, and not a
// thousand times; and it is used as much as by one.
func TestSharedLimitIsAskedOnce(t *testing.T) {
	w := newWorld(t, time.Second, "shared")
	for i := range 1000 {
		w.put(fmt.Sprint(i), 2)
	}
	w.run(2 * time.Second)
	asked, reads, done := w.asked, w.reads, w.total()
	w.run(100 * time.Second)
	asked, reads, done = w.asked-asked, w.reads-reads, w.total()-done
	t.Logf("in 100s %d passed, the limit was asked %d times, %d were read", done, asked, reads)
	if done < 85 {
		t.Errorf("%d passed in 100s, of one a second", done)
	}
	if asked > 400 {
		t.Errorf("the limit was asked %d times as %d passed", asked, done)
	}
	if most := 100 * 2000 / 20; reads > most {
		t.Errorf("%d were read in 100s, want %d at the most", reads, most)
	}
}

// A key of which many wait leaves others their part of a limit that they share; and has all of
// it when nobody else is there.
func TestSharedLimitIsFair(t *testing.T) {
	w := newWorld(t, 100*time.Millisecond, "shared")
	w.put("busy", 2000)
	w.run(time.Second)
	for i := range 20 {
		w.put(fmt.Sprint(i), 5)
	}
	w.run(20 * time.Second)
	if n := w.total() - w.done["busy"]; n < 70 {
		t.Errorf("%d of 100 of the others' passed in 20s, beside %d of the busy one's", n, w.done["busy"])
	}
	w.run(time.Minute)
	if n := w.total() - w.done["busy"]; n < 100 {
		t.Errorf("%d of 100 of the others' passed", n)
	}
	w.run(2 * time.Minute) // the others are forgotten
	before := w.done["busy"]
	w.run(30 * time.Second)
	if n := w.done["busy"] - before; n < 200 {
		t.Errorf("%d of the one that is left passed in 30s, of 300", n)
	}
}

// Gates at which nobody stands are forgotten; while there are as many as may be, tenants have
// their own.
func TestGatesAreBounded(t *testing.T) {
	at := time.Unix(1000, 0)
	l := newLanes(16)
	turn, _ := l.enter("a", true, time.Hour, at)
	for i := range mostLanes + 10 {
		turn.denied(time.Second, time.Second, fmt.Sprint(i), at)
	}
	if n := len(l.gates); n != mostLanes {
		t.Errorf("%d gates, want %d", n, mostLanes)
	}
	turn.denied(time.Second, time.Second, "last", at.Add(3*retryMost))
	if turn.done(); len(l.gates) != 1 || l.of["a"].gate != l.gates["last"] {
		t.Errorf("%d gates, want the last alone", len(l.gates))
	}
}

// What denies requests of several tenants is called the same for all, and else for each.
func TestLimitsAreNamed(t *testing.T) {
	shared := limit.RuleSpec{Name: "shared", Group: "all", Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}
	own := limit.RuleSpec{Name: "own", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}}
	f := NewFront(behind(t, &upstream{}, shared, own), FrontConfig{})
	by := func(client string) string {
		r := request(client)
		r.Client = client + ":4711"
		return f.Send(t.Context(), &Attempt{r, func() error { return nil }}).By
	}
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		if name := by(client); name != "" {
			t.Errorf("what passes is denied by %q", name)
		}
	}
	third, fourth := by("192.0.2.3"), by("192.0.2.4")
	if third == "" || third != fourth {
		t.Errorf("one limit is called %q and %q", third, fourth)
	}
	f = NewFront(behind(t, &upstream{}, own), FrontConfig{})
	by("192.0.2.1")
	by("192.0.2.2")
	if first, second := by("192.0.2.1"), by("192.0.2.2"); first == "" || first == second {
		t.Errorf("limits of two clients are called %q and %q", first, second)
	}
	f.cfg.Room = func() bool { return false }
	if name := by("192.0.2.9"); name == "" {
		t.Error("an upstream that has no room is not named")
	}
}
