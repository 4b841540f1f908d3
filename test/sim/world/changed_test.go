package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// wide is a cluster of so many regions, each of one PoP with so many edges.
func wide(t *testing.T, regions, edges int, rates ...limit.RateSpec) *World {
	t.Helper()
	return wideOf(t, regions, edges, func(*Config) {}, rates...)
}

// wideOf is wide with other settings.
func wideOf(t *testing.T, regions, edges int, set func(*Config), rates ...limit.RateSpec) *World {
	t.Helper()
	cfg := Config{Rules: rules(rates...), Start: start}
	for r := range regions {
		reg := Region{Name: fmt.Sprint("r", r)}
		for e := range edges {
			reg.Edges = append(reg.Edges, fmt.Sprintf("r%d-%d", r, e))
		}
		cfg.Regions = append(cfg.Regions, reg)
	}
	set(&cfg)
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A limit and a refill are changed at all edges while a key is in use: all regions take
// that over, though others say meanwhile what was in force before.
func TestChangedTermsAreTakenOver(t *testing.T) {
	for _, n := range [][2]int{{1, 3}, {2, 1}, {2, 3}, {3, 1}, {3, 3}} {
		bucket := func(refill uint64) limit.RateSpec {
			return limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: 60, Refill: limit.Flow{Units: refill, Per: time.Second}}
		}
		w := wide(t, n[0], n[1], bucket(4))
		asked, allowed := 0, 0
		for i := range 1200 { // 6.7 a second
			w.Advance(start.Add(time.Duration(i) * 150 * time.Millisecond))
			if i == 400 {
				if err := w.SetRules("", rules(bucket(7))); err != nil {
					t.Fatal(err)
				}
			}
			ok := check(w, w.Edges()[i%len(w.Edges())], "u").Allowed
			if i >= 600 {
				asked++
				if ok {
					allowed++
				}
			}
		}
		if allowed < asked {
			t.Errorf("%d regions of %d edges: %d of %d admitted at 6.7/s, half a minute after 4/s became 7/s", n[0], n[1], allowed, asked)
		}

		w = wide(t, n[0], n[1], limit.RateSpec{Name: "r", Limit: 10_000, Per: time.Hour})
		allowed = 0
		ask := func(i int) {
			if check(w, w.Edges()[i%len(w.Edges())], "u").Allowed {
				allowed++
			}
		}
		for i := range w.Edges() {
			ask(i)
		}
		w.Advance(w.Now().Add(5 * time.Second))
		if err := w.SetRules("", rules(limit.RateSpec{Name: "r", Limit: 400, Per: time.Hour})); err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			w.Advance(w.Now().Add(10 * time.Millisecond))
			ask(i)
		}
		if allowed > 420 {
			t.Errorf("%d regions of %d edges: %d admitted after 10000 an hour became 400", n[0], n[1], allowed)
		}
	}
}

// A hostile PoP names a key first, with slices of another width, and its region tells
// the others of it: each gives that up for what its own PoPs tell.
func TestWidthOfAnotherRegionIsGivenUp(t *testing.T) {
	w := wide(t, 3, 2, limit.RateSpec{Limit: 100, Per: time.Minute})
	shape := deltasync.Shape{Generation: 7, Width: 9 * 24 * time.Hour, Slices: 1, Limit: 100}
	key := keyOf(w, "u")
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "r0", Pop: "evil", Name: "e", Node: deltasync.NodeID("r0", "evil", "e"),
		Incarnation: 1, Lanes: 1, Seq: 1, SentAt: w.Now().UnixNano(),
		Sections: []deltasync.Section{{Shape: shape, Deltas: []deltasync.Delta{{Key: key, Cells: []crdt.Cell{{Slice: crdt.Slice(w.Now().UnixNano() / int64(shape.Width)), Charges: 1}}}}}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Inject("r0", deltasync.EdgeSubject("r0", 0, "evil", "e"), b, func(*Server, []byte) {})
	w.Advance(w.Now().Add(2 * time.Second))
	allowed := 0
	for i := range 600 {
		w.Advance(w.Now().Add(50 * time.Millisecond))
		if check(w, w.Edges()[i%6], "u").Allowed {
			allowed++
		}
	}
	if allowed > 110 {
		t.Errorf("%d of 600 admitted at 100 a minute", allowed)
	}
}
