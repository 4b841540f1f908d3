package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// A tick does not hold up a lane with many keys for as long as all of them take:
// it looks at a part, and the next one at the rest. None is left out, also while
// others come and go.
func TestTickComesAround(t *testing.T) {
	alone.Mark(t)
	r := newRegion(t, "eu", newStore(&start))
	e := &edge{name: "e1"}
	const keys = 40_000
	for first := deltasync.Key(1); first <= keys; first += 5000 {
		e.send(r, many(start, first, 5000))
	}
	r.now = start.Add(3 * time.Minute)
	for key := deltasync.Key(1); key <= keys; key += 1000 { // these live on
		e.tell(r, key, charge(r.now, 1))
	}
	const alive = keys / 1000
	held := func() int { return r.Stats(r.now).Keys }
	r.Tick(r.now)
	if got := held(); got <= alive || got >= keys {
		t.Errorf("%d of %d keys after a tick, want some dropped and some left", got, keys)
	}
	for key := deltasync.Key(keys + 1); key <= keys+10; key++ {
		e.tell(r, key, charge(r.now, 1))
	}
	r.Tick(r.now)
	r.Tick(r.now)
	if got := held(); got != alive+10 {
		t.Errorf("%d keys after three ticks, want the %d that live", got, alive+10)
	}
	e2 := &edge{name: "e2"}
	if got := charges(e2.tell(r, 1001).Totals[0].Peers); got != 1 {
		t.Errorf("a key that lives on has %d charges, want 1", got)
	}
}

// Keys are found again wherever others were dropped.
func TestTickWithFewKeys(t *testing.T) {
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, MaxKeys: 3}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	r.Tick(r.now)
	e := &edge{name: "e1"}
	for round := range uint64(5) {
		first := deltasync.Key(10 * (round + 1))
		for key := first; key < first+3; key++ {
			if down := e.tell(r, key, crdt.Cell{Slice: slice(r.now), Charges: 1}); down.Status != deltasync.StatusOK {
				t.Fatalf("round %d, key %d: %v, want room for three", round, key, down.Status)
			}
		}
		r.now = r.now.Add(3 * time.Minute)
		r.Tick(r.now)
		if got := r.Stats(r.now).Keys; got != 0 {
			t.Fatalf("round %d: %d keys after all retired", round, got)
		}
	}
}
