package escrow_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What a life spent that is over comes free as that leaves the window, whoever has the lane by then and
// however often it is said, and never sooner.
func TestEndsComeFreeOneByOne(t *testing.T) {
	for name, c := range map[string]struct{ moved, again bool }{"": {}, "the lane changes hands": {moved: true}, "said again": {again: true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			a := o.authority()
			claim := func(edge string, k deltasync.Claim) deltasync.Grant {
				t.Helper()
				k.Limit, k.Lasts = 100, time.Hour
				return o.claimOfEdge(a, edge, k)
			}
			claim("other", deltasync.Claim{Holder: 99}) // the log begins
			o.boot += 3 * time.Hour
			g := claim("e1", deltasync.Claim{Holder: 1, Want: 90})
			left := deltasync.Claim{
				Holder: 1, Granted: g.Granted, Returned: g.Granted - 60, Bound: 60,
				Ends: []deltasync.End{{Cost: 30, In: 50 * time.Minute}, {Cost: 20, In: 30 * time.Minute}, {Cost: 10, In: 0}},
			}
			claim("e1", left)
			began := o.boot
			if c.again {
				o.boot += time.Second
				if g := claim("e1", left); g.Flags&deltasync.GrantVoid != 0 || g.Granted != left.Granted {
					t.Errorf("said again it is answered %+v, want what was granted", g)
				}
			}
			if c.moved {
				a = o.authority()
			}
			for _, at := range []struct {
				since time.Duration
				most  uint64
			}{{5 * time.Second, 40}, {50 * time.Second, 50}, {30 * time.Minute, 50}, {30*time.Minute + 50*time.Second, 70}, {50 * time.Minute, 70}, {50*time.Minute + 50*time.Second, 100}} {
				o.boot = began + at.since
				holder := uint64(o.boot)
				if g := claim("e2", deltasync.Claim{Holder: holder, Want: 100}); g.Granted != at.most {
					t.Errorf("after %v another is granted %d, want %d", at.since, g.Granted, at.most)
				} else {
					claim("e2", deltasync.Claim{Holder: holder, Granted: g.Granted, Returned: g.Granted})
				}
			}
		})
	}
}

// However often edges are started anew, a key has a bounded number of holdings, and nothing is free too soon
// or kept for longer than a window.
func TestEndsAreBounded(t *testing.T) {
	const all = 100_000
	o := newOffice(t)
	a := o.authority()
	claim := func(edge string, k deltasync.Claim) deltasync.Grant {
		t.Helper()
		k.Limit, k.Lasts = all, time.Hour
		return o.claimOfEdge(a, edge, k)
	}
	claim("other", deltasync.Claim{Holder: 1 << 40}) // the log begins
	o.boot += 3 * time.Hour
	holder := uint64(0)
	for range 60 { // each two minutes, for two windows
		o.boot += 2 * time.Minute
		holder++
		g := claim("e1", deltasync.Claim{Holder: holder, Want: 800})
		if g.Flags&deltasync.GrantVoid != 0 || g.Granted < 800 {
			t.Fatalf("life %d is granted %+v, want what it wants", holder, g)
		}
		left := deltasync.Claim{Holder: holder, Granted: g.Granted, Returned: g.Granted - 800, Bound: 800}
		for i := range 8 {
			left.Ends = append(left.Ends, deltasync.End{Cost: 100, In: time.Hour - time.Duration(i)*15*time.Second})
		}
		claim("e1", left)
	}
	spent := uint64(30 * 800) // in the last hour
	switch g := claim("e2", deltasync.Claim{Holder: 1 << 41, Want: all}); {
	case g.Granted > all-spent:
		t.Errorf("another is granted %d, want at most %d: %d count yet", g.Granted, all-spent, spent)
	case g.Granted < all-spent*6/5:
		t.Errorf("another is granted %d, want about %d: no more than %d count", g.Granted, all-spent, spent)
	}
}
