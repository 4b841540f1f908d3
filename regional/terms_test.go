package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// A PoP can have its own keys forgotten, by more of them, and not when it has to rest from
// one; and it has to rest from so many at once, and no more.
func TestTermsOutliveCounters(t *testing.T) {
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 20}, newStore(&start))
	e := &edge{name: "m", pop: greedy}
	punish := func(key deltasync.Key) bool {
		until := r.now.Add(time.Minute).UnixNano()
		return e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: key, Until: until}}}).Totals[0].Until == until
	}
	if !punish(9) {
		t.Fatal("the first penalty is not heeded")
	}
	r.now = r.now.Add(90 * time.Second)
	before := r.Stats(r.now).Evicted
	floods(r, 10_000, 5000)
	if n := r.Stats(r.now).Evicted - before; n < 1000 {
		t.Fatalf("%d keys made room, there was no flood", n)
	}
	if punish(9) {
		t.Error("after a flood of its own keys a PoP need not rest")
	}
	r.now = start.Add(2*time.Minute + time.Second)
	r.Tick(r.now)
	if !punish(9) {
		t.Error("once it has rested it is not heeded")
	}
	heeded := 1
	for key := deltasync.Key(100_000); key < 102_000; key++ {
		if punish(key) {
			heeded++
		}
	}
	if heeded != 1024 {
		t.Errorf("%d penalties with nothing to show are heeded at once, want 1024", heeded)
	}
	e.tell(r, 8, charge(r.now, minute.Limit))
	if !punish(8) {
		t.Error("nor is one of a key that has used its limit heeded then")
	}
}
