package regional_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// gives tells of an edge of a PoP what it charged and gave back in the present slice.
func gives(r *region, pop, name string, charges, refunds uint64) deltasync.Down {
	r.t.Helper()
	e := &edge{name: name, pop: pop}
	return e.tell(r, 9, crdt.Cell{Slice: slice(start), Charges: charges, Refunds: refunds})
}

// What one edge charged another may give back; of what other PoPs charged, a PoP may
// give back one limit at most, however many edges it calls its own.
func TestRefundsOfAPoPAreBounded(t *testing.T) {
	const limit = 100
	for _, tt := range []struct {
		name    string
		tell    func(*region) deltasync.Down // the last answer
		net     int                          // of 250 that others charged, and what is told
		refused bool
	}{
		{"its own", func(r *region) deltasync.Down { return gives(r, "q", "m", 30, 30) }, 250, false},
		{"of an edge of its PoP", func(r *region) deltasync.Down {
			gives(r, "q", "n", 200, 0)
			return gives(r, "q", "m", 0, 200)
		}, 250, false},
		{"and of that one again", func(r *region) deltasync.Down {
			gives(r, "q", "n", 200, 0)
			gives(r, "q", "m", 0, 200)
			return gives(r, "q", "n", 200, 200)
		}, 150, true},
		{"of another PoP", func(r *region) deltasync.Down { return gives(r, "q", "m", 0, 40) }, 210, false},
		{"a limit of other PoPs", func(r *region) deltasync.Down { return gives(r, "q", "m", 0, 100) }, 150, false},
		{"more than that", func(r *region) deltasync.Down { return gives(r, "q", "m", 0, 240) }, 150, true},
		{"by many edges", func(r *region) (last deltasync.Down) {
			for i := range 9 {
				last = gives(r, "q", fmt.Sprint("m", i), 0, 60)
			}
			return last
		}, 150, true},
		{"by many lives", func(r *region) (last deltasync.Down) {
			e := &edge{name: "m", pop: "q"}
			for life := range uint32(9) {
				last = e.live(r, life, 9, crdt.Cell{Slice: slice(start), Refunds: 60})
			}
			return last
		}, 150, true},
		{"in many slices", func(r *region) (last deltasync.Down) {
			e := &edge{name: "m", pop: "q"}
			last = e.tell(r, 9, crdt.Cell{Slice: slice(start) - 2, Refunds: 1 << 60})
			e.tell(r, 9, crdt.Cell{Slice: slice(start) - 1, Refunds: 70}, crdt.Cell{Slice: slice(start), Refunds: 60})
			return last
		}, 250, true}, // all in a slice where there is nothing
		{"so much that it overflows", func(r *region) (last deltasync.Down) {
			for i := range 9 {
				last = gives(r, "q", fmt.Sprint("m", i), 1<<63, 1<<63)
			}
			return last
		}, 250 + 9*16*limit, true}, // what each may inflate
		{"little by little", func(r *region) (last deltasync.Down) {
			e := &edge{name: "m", pop: "q"}
			for i := range uint64(40) {
				last = e.tell(r, 9, crdt.Cell{Slice: slice(start), Refunds: 5 + 5*i})
			}
			return last
		}, 150, true},
	} {
		r := newRegion(t, "eu", newStore(&start))
		gives(r, "p", "e1", 90, 0)
		gives(r, "p", "e2", 160, 0)
		down := tt.tell(r)
		if refused := down.Status == deltasync.StatusForbidden && len(down.Refused) == 1; refused != tt.refused || !refused && down.Status != deltasync.StatusOK {
			t.Errorf("%s: answered %v, refused %v", tt.name, down.Status, down.Refused)
		}
		net := uint64(0)
		for _, c := range (&edge{name: "asker"}).tell(r, 9).Totals[0].Peers {
			net += c.Net()
		}
		if net != uint64(tt.net) {
			t.Errorf("%s: %d are used, want %d", tt.name, net, tt.net)
		}
		if st := r.Stats(start); (st.Clamped > 0) != tt.refused {
			t.Errorf("%s: %d clamped", tt.name, st.Clamped)
		}
	}
}

// A PoP that lies names a key first, with a limit that gives it room for any refund. It
// may give back no more of what others charge than the smallest limit that is told, and
// next to nothing before they do.
func TestRefundsGoByTheSmallestLimit(t *testing.T) {
	large := minute
	large.Limit = 1 << 50
	lies := func(r *region, name string, refunds uint64) deltasync.Down {
		cells := []crdt.Cell{{Slice: slice(start), Refunds: refunds}}
		return (&edge{name: name, pop: "q"}).send(r, deltasync.Section{Shape: large, Deltas: []deltasync.Delta{{Key: 9, Cells: cells}}})
	}
	for _, tt := range []struct {
		name  string
		tells func(*region)
		net   uint64 // of 250 that others charge
	}{
		{"before anybody charged", func(r *region) {
			lies(r, "m", 1<<40)
			gives(r, "p", "e1", 250, 0)
		}, 234},
		{"and again", func(r *region) {
			lies(r, "m", 1<<40)
			gives(r, "p", "e1", 250, 0)
			lies(r, "m", 1<<40)
			lies(r, "n", 1<<40)
		}, 150},
		{"of others who count alone", func(r *region) {
			gives(r, "p", "e1", 250, 0)
			for i := range 9 {
				gives(r, "q", fmt.Sprint("o", i), 1, 1) // and vote
				lies(r, fmt.Sprint("m", i), 1<<40)
			}
		}, 150},
		{"as they charge", func(r *region) {
			for charged := uint64(10); charged <= 250; charged += 10 {
				gives(r, "p", "e1", charged, 0)
				lies(r, "m", 1<<40)
			}
		}, 150},
	} {
		r := newRegion(t, "eu", newStore(&start))
		tt.tells(r)
		net := uint64(0)
		for _, c := range (&edge{name: "asker"}).tell(r, 9).Totals[0].Peers {
			net += c.Net()
		}
		if net != tt.net {
			t.Errorf("%s: %d are used, want %d", tt.name, net, tt.net)
		}
	}
}

// A refund that comes before the charge is told again, and taken then.
func TestRefundBeforeItsCharge(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	if down := gives(r, "p", "e2", 0, 300); down.Status != deltasync.StatusForbidden {
		t.Fatalf("nothing was charged: %v, want forbidden", down.Status)
	}
	gives(r, "p", "e1", 300, 0)
	if down := gives(r, "p", "e2", 0, 300); down.Status != deltasync.StatusOK {
		t.Errorf("it was charged: %v, want OK", down.Status)
	}
	for _, c := range (&edge{name: "asker"}).tell(r, 9).Totals[0].Peers {
		if c.Charges != 300 || c.Refunds != 300 {
			t.Errorf("%+v, want 300 charged and given back", c)
		}
	}
}

// What another region gave back of what this one charged is not used, wherever that is
// known: by the region itself or by a home. Else a crossing would be pushed that is none
// to the edges, and not the one that comes later. So it is where a region took its own
// counts back.
func TestRefundsOfOtherRegionsAreNotUsed(t *testing.T) {
	const key = 9
	for _, targets := range []regional.Targets{regional.TargetsMesh, regional.TargetsHomes} {
		now, all := start, names(5)
		var regions []*region
		for _, name := range all {
			regions = append(regions, newHome(t, &now, targets, name, all))
		}
		far := max(0, slices.IndexFunc(all, func(name string) bool { return !slices.Contains(regions[0].Homes(key), name) })) // of a mesh all are
		regions[0], regions[far] = regions[far], regions[0]                                                                   // so that the one that charges is no home
		spread := func() {
			for range 4 {
				for _, r := range regions {
					(&edge{name: "asks"}).tell(r, key) // to be told of what homes know
					r.tellAll(regions...)
				}
			}
		}
		e := &edge{name: "e1"}
		e.tell(regions[0], key, charge(start.Add(-minute.Width), 5), charge(start, 40))
		spread()
		(&edge{name: "u1"}).tell(regions[1], key, charge(start.Add(-2*minute.Width), 1), crdt.Cell{Slice: slice(start), Refunds: 30})
		spread()
		for _, r := range regions {
			if got := r.Used(r.now, key); got != 16 {
				t.Errorf("%s: %d are used to %s, want 46 less 30", targets, got, r.name)
			}
			if got := pushed(r); got != 0 {
				t.Errorf("%s: %d pushes by %s, want none: never was half of the limit used", targets, got, r.name)
			}
		}
		e.tell(regions[0], key, charge(start, 70))
		if got := pushed(regions[0]); got != 0 {
			t.Errorf("%s: %d pushes at 46 of 100, want none", targets, got)
		}
		e.tell(regions[0], key, charge(start, 75))
		if got := pushed(regions[0]); got != 1 {
			t.Errorf("%s: %d pushes at 51 of 100, want one", targets, got)
		}
		spread()
		regions[0] = newHome(t, &now, targets, regions[0].name, all)
		regions[0].now = regions[1].now
		(&edge{name: "e2"}).tell(regions[0], key, charge(start.Add(minute.Width), 2))
		spread()
		if got := regions[0].Used(regions[0].now, key); got != 53 {
			t.Errorf("%s: %d are used where the own counts were taken back, want 53", targets, got)
		}
	}
}

// What a PoP's edges gave back counts where an aggregator begins anew: a hostile one could
// otherwise give back a limit more each time.
func TestRefundsCountForThePoPAfterARestart(t *testing.T) {
	store := newStore(&start)
	r := newRegion(t, "eu", store)
	gives(r, "p", "honest", 100, 0)
	if down := gives(r, "q", "m", 0, 100); down.Status != deltasync.StatusOK {
		t.Fatalf("a limit is given back once: %v, want OK", down.Status)
	}
	r.sync(nil)
	r = newRegion(t, "eu", store)
	gives(r, "p", "honest", 200, 0)
	for _, tt := range []struct {
		who            string
		charges, gives uint64
		want           deltasync.Status
		charged, given uint64
	}{
		{"n", 0, 100, deltasync.StatusForbidden, 200, 100},
		{"o", 40, 40, deltasync.StatusOK, 240, 140}, // its own
		{"m", 0, 100, deltasync.StatusOK, 240, 140}, // again
		{"n", 0, 100, deltasync.StatusForbidden, 240, 140},
	} {
		down := gives(r, "q", tt.who, tt.charges, tt.gives)
		var sum crdt.Cell
		for _, c := range (&edge{name: "asker"}).tell(r, 9).Totals[0].Peers {
			sum = sum.Plus(c)
		}
		if down.Status != tt.want || sum.Charges != tt.charged || sum.Refunds != tt.given {
			t.Errorf("%s charges %d and gives back %d: %v, %+v, want %v, %d charged and %d given back", tt.who, tt.charges, tt.gives, down.Status, sum, tt.want, tt.charged, tt.given)
		}
	}
}
