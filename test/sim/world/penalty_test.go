package world

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
)

// punishing is five a second, and a minute of penalty.
func punishing() []limit.Document {
	docs := rules(limit.RateSpec{Limit: 5, Per: time.Second})
	docs[0].Rules[0].Penalty = limit.Penalty{For: time.Minute}
	return docs
}

// offend asks an edge for more than there ever is: a denial that charges nothing.
func offend(t *testing.T, n *edge.Node, now time.Time, user string) {
	t.Helper()
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Cost = 6
	if d := n.Check(now, req); d.Allowed {
		t.Fatalf("6 of 5 a second: %+v, want denied", d)
	}
}

// TestPenaltyHoldsEverywhere: a user who was denied at one edge is kept out of
// all edges of all regions, for the minute and no longer, though nothing of the
// limit is used anywhere.
func TestPenaltyHoldsEverywhere(t *testing.T) {
	w := newWorld(t, punishing())
	check(w, "eu-2", "u") // live there; not at the others
	w.Advance(start.Add(5 * time.Second))
	denied := w.Now()
	offend(t, w.Node("eu-1"), denied, "u")
	w.Touch()
	deny := func(after, wait time.Duration) {
		t.Helper()
		w.Advance(denied.Add(after))
		for _, e := range w.Edges() {
			if d := check(w, e, "u"); d.Allowed || d.RetryAfter != wait {
				t.Errorf("%s, %v after the denial: %+v, want denied for %v", e, after, d, wait)
			}
			if d := check(w, e, "other"+e); !d.Allowed {
				t.Errorf("%s: another user is denied: %+v", e, d)
			}
		}
	}
	deny(300*time.Millisecond, 59700*time.Millisecond)
	deny(30*time.Second, 30*time.Second)
	deny(time.Minute-1, 1)
	w.Advance(denied.Add(time.Minute))
	for _, e := range w.Edges() {
		if d := check(w, e, "u"); !d.Allowed {
			t.Errorf("%s, a minute after the denial: %+v, want allowed", e, d)
		}
	}
}

// TestPenaltyOfARegionStaysThere: edges of other regions go on admitting.
func TestPenaltyOfARegionStaysThere(t *testing.T) {
	docs := punishing()
	docs[0].Rules[0].Rates[0].Scope = "region"
	w := newWorld(t, docs)
	offend(t, w.Node("eu-1"), w.Now(), "u")
	w.Touch()
	w.Advance(start.Add(time.Second))
	for e, want := range map[string]bool{"eu-1": false, "eu-2": false, "us-1": true, "us-2": true} {
		if d := check(w, e, "u"); d.Allowed != want {
			t.Errorf("%s: %+v, want allowed %v", e, d, want)
		}
	}
}

// TestPenaltyOutlivesACut: what was told in vain is told when regions meet again.
func TestPenaltyOutlivesACut(t *testing.T) {
	w := newWorld(t, punishing())
	w.Cut("eu", true)
	offend(t, w.Node("eu-1"), w.Now(), "u")
	w.Touch()
	w.Advance(start.Add(10 * time.Second))
	if d := check(w, "us-1", "u"); !d.Allowed {
		t.Fatalf("us-1 behind a cut: %+v, want allowed", d)
	}
	w.Cut("eu", false)
	w.Advance(start.Add(13 * time.Second))
	for _, e := range w.Edges() {
		if d := check(w, e, "u"); d.Allowed || d.RetryAfter != 47*time.Second {
			t.Errorf("%s after the cut: %+v, want denied for the 47 s that are left", e, d)
		}
	}
}

// TestPenaltyOutlivesTheAggregator: the next one has it from the store, though the
// edge that denied is gone; and a frame that is lost is told again.
func TestPenaltyOutlivesTheAggregator(t *testing.T) {
	p := &pair{t: t, now: start}
	store := memstore.New(memstore.Config{Now: func() time.Time { return p.now }, Seed: 1})
	aggregator := func(incarnation uint64) {
		t.Helper()
		agg, err := regional.New(regional.Config{Region: "eu", Name: "a", Lanes: 1, Incarnation: incarnation}, store)
		if err != nil {
			t.Fatal(err)
		}
		if err := agg.Sync(context.Background(), p.now); err != nil {
			t.Fatal(err)
		}
		p.agg = agg
	}
	aggregator(1)
	node := func(name string) *edge.Node {
		n := p.node(name, limit.RateSpec{Limit: 1, Per: time.Second}) // until it has the rules
		set, problems := limit.Compile(punishing()...)
		if set == nil {
			t.Fatal(problems)
		}
		n.SetRules(set)
		return n
	}
	first := node("e1")
	hit(first, p.now, "other")
	p.pump(first, 0) // it knows by its region's that its clock is right
	offend(t, first, p.now, "u")
	for _, o := range first.Flush(p.now) { // they never arrive
		first.Lost(p.now, o.Lane, o.Seq)
	}
	p.now = p.now.Add(time.Second)
	p.pump(first, 0)

	p.now = p.now.Add(10 * time.Second) // no count of it is left anywhere
	aggregator(2)
	second := node("e2")
	if d := hit(second, p.now, "u"); !d.Allowed {
		t.Fatalf("before it has asked: %+v, want allowed", d)
	}
	p.pump(second, 0)
	if d := hit(second, p.now, "u"); d.Allowed || d.RetryAfter != 49*time.Second {
		t.Fatalf("after it has asked: %+v, want denied for the 49 s that are left", d)
	}
	if d := hit(second, start.Add(time.Minute), "u"); !d.Allowed {
		t.Fatalf("after the minute: %+v, want allowed", d)
	}
}
