package edge

import (
	"testing"
	"time"
)

// News that waits for the budget is late, here and so elsewhere: by the usual wait for
// shares, by the longest that is likely for bounds, and not at all once nothing waits.
func TestBacklog(t *testing.T) {
	var b backlog
	now := start.UnixNano()
	pass := func(d time.Duration) int64 { now += int64(d); return now }
	for range 40 {
		b.waits(pass(20 * time.Millisecond))
		b.waits(pass(20 * time.Millisecond))
		b.goes(pass(60 * time.Millisecond))
	}
	if usual := time.Duration(b.usual.Load()); usual < 75*time.Millisecond || usual > 80*time.Millisecond {
		t.Errorf("usually %v, want 80 ms", usual)
	}
	if most := b.most(now); most < 300*time.Millisecond || most > 320*time.Millisecond {
		t.Errorf("%v at the most, want four times 80 ms", most)
	}
	b.waits(pass(20 * time.Millisecond))
	if most := b.most(pass(time.Second)); most != time.Second {
		t.Errorf("%v at the most, and a second it waits already", most)
	}
	if most := b.most(now - int64(time.Hour)); most > 320*time.Millisecond {
		t.Errorf("%v at the most after the clock was set back", most)
	}
	if most := b.most(now + int64(time.Hour)); most != forgetShare {
		t.Errorf("%v at the most after the clock was set forth, want %v", most, forgetShare)
	}
	for range 60 {
		b.goes(pass(100 * time.Millisecond))
	}
	if most := b.most(now); most > 5*time.Millisecond {
		t.Errorf("%v at the most, and nothing waits", most)
	}
}

// What a node may not send is what waits; a budget that is spent by replies has nothing wait.
func TestBacklogOfANode(t *testing.T) {
	n := newNode(t, Config{Budget: 1000}, perUser(aHundred))
	n.budget.Spend(5000)
	now := start
	n.Flush(now)
	if n.cluster.backlog.since.Load() != 0 {
		t.Error("something waits where nothing was asked for")
	}
	check(n, now, "u")
	now = now.Add(100 * time.Millisecond)
	if out := n.Flush(now); len(out) > 1 || len(out) == 1 && len(upOf(t, out).Sections) > 0 {
		t.Fatalf("%d frames beyond the budget", len(out))
	}
	if since := n.cluster.backlog.since.Load(); since != now.UnixNano() {
		t.Errorf("something waits since %d, want %d", since, now.UnixNano())
	}
	delay := n.cluster.delay()
	for range 6 {
		now = now.Add(time.Second)
		n.Flush(now)
	}
	if later := n.cluster.delay(); n.cluster.backlog.since.Load() != 0 || later <= delay {
		t.Errorf("once the budget allows it: since %d; news takes %v, before it waited %v", n.cluster.backlog.since.Load(), later, delay)
	}
}
