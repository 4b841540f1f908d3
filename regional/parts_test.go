package regional_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/tierstore"
	"github.com/spillgate/spillgate/sync"
)

// watched is a half of a store that a test takes away, freezes and counts.
type watched struct {
	*memstore.Store
	gone, frozen bool
	merged       int // items
}

func (s *watched) fails(ctx context.Context) error {
	if s.frozen {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", regional.ErrStore, ctx.Err())
	}
	if s.gone {
		return fmt.Errorf("%w: unplugged", regional.ErrStore)
	}
	return nil
}

func (s *watched) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	s.merged += len(batch)
	return s.Store.Merge(ctx, batch)
}

func (s *watched) Epoch(ctx context.Context) (uint64, error) {
	if err := s.fails(ctx); err != nil {
		return 0, err
	}
	return s.Store.Epoch(ctx)
}

// halved is a region over a store of two halves, in step with it.
func halved(t *testing.T) (r *region, short, long *watched) {
	t.Helper()
	short, long = &watched{Store: memstore.New(memstore.Config{Seed: 1})}, &watched{Store: memstore.New(memstore.Config{Seed: 2})}
	r = newRegion(t, "eu", tierstore.New(short, long))
	r.now = time.Now()
	r.sync(nil)
	return r, short, long
}

// sync checks what Sync says.
func (r *region) sync(want error) {
	r.t.Helper()
	if err := r.Sync(r.t.Context(), r.now); (err == nil) != (want == nil) {
		r.t.Errorf("Sync: %v, want %v", err, want)
	}
}

// day is the shape of 100 a day, whose counts live in the long half.
var day = deltasync.Shape{Generation: 8, Width: 36 * time.Minute, Slices: 40, Limit: 100}

// of is a section with one hit on each of n keys of a shape.
func of(shape deltasync.Shape, at time.Time, first deltasync.Key, n int) deltasync.Section {
	sec := many(at, first, n)
	sec.Shape = shape
	for i := range sec.Deltas {
		sec.Deltas[i].Cells = []crdt.Cell{{Slice: crdt.Slice(at.UnixNano() / int64(shape.Width)), Charges: 1}}
	}
	return sec
}

// What is of the half that is there is stored at once, whichever that is.
func TestOneHalfAwayHoldsUpNoOther(t *testing.T) {
	for name, test := range map[string]struct{ gone, there deltasync.Shape }{
		"the short one": {minute, day}, "the long one": {day, minute},
	} {
		r, gone, there := halved(t)
		if test.gone == day {
			gone, there = there, gone
		}
		e := &edge{name: "e1"}
		gone.gone = true
		for i := range deltasync.Key(3) { // unnoticed, noticed by the frame, and by Sync
			down := e.send(r, of(test.gone, r.now, 1000*(i+1), 300), of(test.there, r.now, 200+i, 1))
			if down.Status != deltasync.StatusStoreDown {
				t.Errorf("%s: frame %d is answered %v, want store_down", name, i, down.Status)
			}
			if got := there.Keys(); got != int(i)+1 {
				t.Errorf("%s: %d keys in the other half after frame %d, want %d", name, got, i, i+1)
			}
			r.sync(regional.ErrStore)
		}
		// A key that is not on the way with a frame is written by Sync all the same.
		there.gone = true
		e.send(r, of(test.there, r.now, 300, 1))
		r.sync(regional.ErrStore)
		there.gone = false
		r.sync(regional.ErrStore)
		if got := there.Keys(); got != 4 {
			t.Errorf("%s: %d keys in the other half when it is back, want 4", name, got)
		}
		if st := r.Stats(r.now); !st.StoreDown || st.Unstored != 900 {
			t.Errorf("%s: store down %v, %d keys unstored, want 900 for the half that is away", name, st.StoreDown, st.Unstored)
		}
		if down := e.send(r, of(test.there, r.now, 301, 1)); down.Status != deltasync.StatusStoreDown {
			t.Errorf("%s: a frame of the other half alone is answered %v, want store_down, lest it goes to and fro", name, down.Status)
		}
		gone.gone = false
		r.sync(nil)
		if st := r.Stats(r.now); st.StoreDown || st.Unstored != 0 || gone.Keys() != 900 {
			t.Errorf("%s: store down %v, %d keys unstored, %d in the half that is back; want 900 there", name, st.StoreDown, st.Unstored, gone.Keys())
		}
		if down := e.send(r, of(test.gone, r.now, 400, 1)); down.Status != deltasync.StatusOK {
			t.Errorf("%s: in the end a frame is answered %v, want ok", name, down.Status)
		}
	}
}

// One half's lost memory is written again, the other's is not touched; edges hear
// of it as of any.
func TestOnlyTheHalfThatLostCountsIsWrittenAgain(t *testing.T) {
	r, short, long := halved(t)
	e := &edge{name: "e1"}
	e.send(r, of(minute, r.now, 1, 300), of(day, r.now, 1001, 20))
	before := e.send(r).StoreEpoch
	r.sync(nil)
	for _, half := range []struct {
		lost, other *watched
		keys        int
	}{{long, short, 20}, {short, long, 300}} {
		half.lost.merged, half.other.merged = 0, 0
		half.lost.Wipe()
		r.sync(nil)
		if half.lost.merged != half.keys || half.lost.Keys() != half.keys || half.other.merged != 0 {
			t.Errorf("%d keys were written to the half that lost %d, and %d to the other", half.lost.merged, half.keys, half.other.merged)
		}
		after := e.send(r).StoreEpoch
		if after == before {
			t.Errorf("a half lost %d keys, and edges are told the same epoch", half.keys)
		}
		before = after
	}
	if st := r.Stats(r.now); st.StoreLost != 2 {
		t.Errorf("%d losses of the store are told, want 2", st.StoreLost)
	}
}

// A half that freezes costs one frame the time that frames wait, and is not asked
// by frames again; the other is not taken for frozen too.
func TestFrozenHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, short, long := halved(t)
		e := &edge{name: "e1"}
		long.frozen = true
		before := time.Now()
		e.send(r, of(day, before, 1, 1), of(minute, before, 1001, 1000))
		if took := time.Since(before); took != time.Second { // its StoreTimeout
			t.Errorf("the first frame waited %v, want StoreTimeout", took)
		}
		for i := range deltasync.Key(3) {
			before = time.Now()
			keys := short.Keys()
			e.send(r, of(day, before, 2+i, 1), of(minute, before, 5001+i, 1))
			if took := time.Since(before); took != 0 || short.Keys() != keys+1 {
				t.Errorf("a later frame waited %v, and the other half went from %d to %d keys", took, keys, short.Keys())
			}
		}
		before = time.Now()
		r.sync(regional.ErrStore)
		if took := time.Since(before); took != time.Second || short.Keys() != 1003 {
			t.Errorf("Sync took %v, and the other half has %d keys; want StoreTimeout and all, 1003", took, short.Keys())
		}
		long.frozen = false
		r.sync(nil)
		if st := r.Stats(r.now); st.StoreDown || st.Unstored != 0 || long.Keys() != 4 {
			t.Errorf("thawed: store down %v, %d unstored, %d keys; want 4", st.StoreDown, st.Unstored, long.Keys())
		}
	})
}
