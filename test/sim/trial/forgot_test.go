package trial

import (
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// An edge was asked twice, swept the key both times before its region answered, and
// its view forgot both answers: it believes nothing when it is asked next, and hears.
func TestViewsThatForgetTwiceAreAskedAgain(t *testing.T) {
	r := Run(Options{Seed: 38462, Without: []Fault{Loss, OneWay, CrashServer, StoreDown, NewRegion}})
	if r.Err != nil {
		t.Error(r.Err)
	}
}

// Edges are asked again about what their views forgot, and about nothing else.
func TestOnlyWhatViewsForgotIsAskedAgain(t *testing.T) {
	for _, forgets := range []float64{0, 1} {
		p := &plan{
			regions: 1, edges: 2, servers: 1, lanes: 1, users: 1, has: map[Fault]bool{Forget: true},
			rates: []limit.RateSpec{rateOf("r", "sub_windows", 20)},
		}
		cfg := p.config(start)
		cfg.Forgets = forgets
		w, err := world.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		tr := &trial{plan: p, w: w, keys: map[deltasync.Key]*counter{}, heard: map[heardBy]*heard{}, contacts: map[life]*contact{}, loaded: map[string]version{}}
		if err := tr.meet(); err != nil {
			t.Fatal(err)
		}
		c := tr.counters[0]
		w.Advance(start.Add(settling))
		req := w.Node("eu-1").Rules().Only().NewRequest()
		req.Set("user", c.user)
		req.Cost = 15
		if d := w.Node("eu-1").Check(w.Now(), req); !d.Allowed {
			t.Fatalf("eu-1 denies %+v", d)
		}
		req.Release()
		w.Advance(w.Now().Add(settling)) // all edges are pushed what it was
		if got := tr.lacks("eu-2", c.user); got != (forgets == 1) || tr.lacks("eu-1", c.user) {
			t.Fatalf("a view that forgets %v of all it is given: eu-2 lacks a push: %v; or eu-1 what it counted", forgets, got)
		}
		before := w.Now()
		if err := tr.askAgain(); err != nil || tr.err != nil {
			t.Fatal(err, tr.err)
		}
		if asked := w.Now().After(before); asked != (forgets == 1) {
			t.Errorf("a view that forgets %v of all it is given: asked again %v", forgets, asked)
		}
		_, others, _ := w.Node("eu-2").Cells(c.key)
		if forgets == 1 && net(others) != 15 {
			t.Errorf("eu-2 was asked again, and believes %+v, want 15", others)
		}
		if forgets == 0 && len(others) > 0 {
			t.Errorf("eu-2 has %+v, as of a key that was asked for", others)
		}
	}
}
