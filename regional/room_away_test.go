package regional_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// Who finds room while the store is away.

// While the store is away nothing is put out for keys that are new and far from
// their limit: they are refused. Those that matter take the place of those that
// do not, and only of these.
func TestWithoutTheStoreOnlyWhatMattersMakesRoom(t *testing.T) {
	mem := newStore(&start)
	b := &broken{Store: mem}
	r := small(t, regional.Config{Boot: still, MaxKeys: 40}, b)
	e := &edge{name: "e1"}
	e.used(r, 1, 1, 10) // stored
	e.used(r, 30, 11, 10)
	b.down = true
	if down := e.used(r, 1, 21, 10); down.Status != deltasync.StatusStoreDown || len(down.Refused) != 0 {
		t.Fatalf("ten more with the store away: %v, refused %v; want store_down and none", down.Status, down.Refused)
	}
	e.used(r, 30, 31, 10)
	if down := e.used(r, 24, 100, 3); !slices.Equal(down.Refused, []uint32{0, 1, 2}) {
		t.Errorf("new keys at 24 %%: refused %v, want all", down.Refused)
	}
	if down := e.used(r, 25, 200, 20); len(down.Refused) != 0 || down.Status != deltasync.StatusStoreDown {
		t.Errorf("20 new keys at 25 %%: %v, refused %v; want store_down, and none", down.Status, down.Refused)
	}
	r.now = r.now.Add(time.Second)
	if down := e.used(r, 90, 300, 3); !slices.Equal(down.Refused, []uint32{0, 1, 2}) {
		t.Errorf("new keys at 90 %% when all matter: refused %v, want all", down.Refused)
	}
	st := r.Stats(r.now)
	if st.Keys != 40 || st.EvictedUnstored != 20 || st.Evicted != 0 || st.Full != 6 {
		t.Errorf("%+v, want 40 keys, 20 that made room and 6 refused", st)
	}
	if n := holds(r, 11, 10) + holds(r, 31, 10) + holds(r, 200, 20); n != 40 {
		t.Errorf("%d of 40 keys that matter are held", n)
	}
	b.down = false
	if err := r.Sync(context.Background(), r.now); err != nil {
		t.Fatal(err)
	}
	if down := e.used(r, 1, 400, 10); down.Status != deltasync.StatusOK {
		t.Errorf("new keys with the store back: %v, want OK", down.Status)
	}
	for _, key := range []deltasync.Key{11, 20, 31, 40, 200, 219} {
		if stored(t, mem, key) == 0 {
			t.Errorf("key %d is not stored in the end", key)
		}
	}
}

// While the store is away keys come and go: the list of what it lacks does not
// grow for that.
func TestListOfUnstoredIsBounded(t *testing.T) {
	b := &broken{Store: newStore(&start), down: true}
	r := small(t, regional.Config{Boot: still, MaxKeys: 10}, b)
	e := &edge{name: "e1"}
	for round := range deltasync.Key(50) {
		e.used(r, 1, 1+10*round, 10)
		r.now = r.now.Add(3 * time.Minute)
		r.Tick(r.now)
	}
	if st := r.Stats(r.now); st.Keys != 0 || st.Unstored > 30 {
		t.Errorf("%d keys held, %d on the list of those to be stored; want none, and few", st.Keys, st.Unstored)
	}
}

// Keys that are held grow no further when there is no room, whoever comes.
func TestEntriesFindNoRoomBeyondTheBudget(t *testing.T) {
	const budget = 256 << 10
	b := &broken{Store: newStore(&start), down: true}
	reg := prometheus.NewRegistry()
	r := small(t, regional.Config{Boot: still, MaxBytes: budget, Registerer: reg}, b)
	e, refused := &edge{name: "e1"}, 0
	for life := range uint32(60) {
		sec := many(start, 1, 100)
		sec.Life = life
		refused += len(e.send(r, sec).Refused)
	}
	st := r.Stats(start)
	if st.Keys != 100 || st.Bytes > budget*11/10 || st.Bytes < budget*8/10 || refused == 0 {
		t.Errorf("%d keys in %d bytes, %d deltas refused; want 100 in %d at the most, and many", st.Keys, st.Bytes, refused, budget)
	}
	if why := refusedFor(t, reg); why["bytes_full"] != refused || why["entries_full"] != 0 {
		t.Errorf("refused for %v, want bytes_full %d times: no key has many entries", why, refused)
	}
}

// Keys whose counts nothing else has, as the store is away, take a tenth more than
// there is room for, in whatever number of slices they are counted: then those that
// use least of their limit are turned away, and at last any.
func TestSlicesFindNoRoomBeyondTheBudget(t *testing.T) {
	alone.Mark(t)
	const budget = 256 << 10
	for _, limit := range []uint64{1 << 40, 1 << 31} { // of which half is used at once
		r := small(t, regional.Config{Boot: still, MaxBytes: budget}, &broken{Store: newStore(&start), down: true})
		e, first := &edge{name: "e1"}, 0
		for i := range 40 {
			r.now = start.Add(time.Duration(i) * minute.Width)
			for key := deltasync.Key(1); key < 1000; key += 100 {
				sec := many(r.now, key, 100)
				sec.Shape.Limit = limit
				for j := range sec.Deltas {
					sec.Deltas[j].Cells = []crdt.Cell{charge(r.now, 1<<30)} // takes its bytes
				}
				e.send(r, sec)
			}
			st := r.Stats(r.now)
			if first == 0 {
				first = st.Keys
			}
			if st.Bytes > budget/100*111 || st.Keys > first {
				t.Fatalf("limit %d, slice %d: %d keys in %d bytes, want the %d of the first slice at the most in %d and a tenth", limit, i, st.Keys, st.Bytes, first, budget)
			}
		}
		if st := r.Stats(r.now); st.EvictedUnstored == 0 || st.Keys < first/2 || st.Bytes < budget {
			t.Errorf("limit %d: %d of %d keys are left in %d bytes, want most, and %d full", limit, st.Keys, first, st.Bytes, budget)
		}
	}
}
