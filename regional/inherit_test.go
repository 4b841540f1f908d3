package regional_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// inherit checks what Inherit says.
func (r *region) inherit(want error) {
	r.t.Helper()
	if err := r.Inherit(r.t.Context(), r.now); (err == nil) != (want == nil) {
		r.t.Errorf("Inherit: %v, want %v", err, want)
	}
}

// holds checks which of keys 1 to n an aggregator holds.
func (r *region) holds(n int, want func(key deltasync.Key) bool) {
	r.t.Helper()
	for key := deltasync.Key(1); key <= deltasync.Key(n); key++ {
		if got := len(r.Vectors(key)) > 0; got != want(key) {
			r.t.Errorf("key %d is held: %v, want %v", key, got, want(key))
		}
	}
}

// Of what the dead left in the store, the keys at a quarter of their limit or more
// are read, with what others had told, and exported; none is read twice.
func TestInheritReadsHotKeys(t *testing.T) {
	now := start
	store := newStore(&now)
	before := newRegion(t, "eu", store, "us")
	e := &edge{name: "e1"}
	for key := range deltasync.Key(50) {
		e.tell(before, key+1, charge(start, uint64(key)+1))
	}
	hot := func(key deltasync.Key) bool { return key >= 25 }

	r := newRegion(t, "eu", store, "us")
	r.inherit(nil)
	r.holds(50, hot)
	if got := r.Stats(now).Inherited; got != 26 {
		t.Errorf("%d keys were inherited, want 26", got)
	}
	out := r.Exports(r.now)
	if len(out) != 1 {
		t.Fatalf("%d frames, want one", len(out))
	}
	var up deltasync.Up
	if err := up.UnmarshalBinary(out[0].Payload); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, s := range up.Sections {
		for _, d := range s.Deltas {
			if told++; s.Shape != minute || charges(d.Cells) != uint64(d.Key) {
				t.Errorf("key %d of %+v is exported with %v, want its count", d.Key, s.Shape, d.Cells)
			}
		}
	}
	if told != 26 {
		t.Errorf("%d keys are exported, want 26", told)
	}
	e.tell(before, 60, charge(start, 99))
	r.now = r.now.Add(time.Minute)
	if r.inherit(nil); len(r.Vectors(60)) > 0 {
		t.Error("the list was read again, and no lane was gained")
	}
}

// A key that is near its limit by what is stored of it and what comes now together is
// listed, though neither alone is worth it, and nobody knew of the first.
func TestWhatMakesAKeyHotMayBeInTheStore(t *testing.T) {
	now := start
	store := newStore(&now)
	(&edge{name: "e1"}).tell(newRegion(t, "eu", store, "us"), 7, charge(start, 20)) // of 100
	r := newRegion(t, "eu", store, "us")
	sync := func() {
		if err := r.Sync(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	sync() // the first one writes all anew
	e := &edge{name: "e2"}
	e.tell(r, 7, charge(start, 10))
	e.tell(r, 8, charge(start, 10))
	sync()
	after := newRegion(t, "eu", store, "us")
	after.inherit(nil)
	after.holds(8, func(key deltasync.Key) bool { return key == 7 })
}

// A lane is read again each time that it is gained, keys that are known too; not
// while it is another's.
func TestInheritAsOftenAsGained(t *testing.T) {
	now := start
	store := newStore(&now)
	r, other := newRegion(t, "eu", store), newRegion(t, "eu", store)
	r.inherit(nil)
	e := &edge{name: "e1"}
	e.tell(r, 1, charge(start, 30))
	name := r.yield()
	e.tell(other, 1, charge(start, 90))
	e.tell(other, 2, charge(start, 90))
	r.inherit(nil)
	if got := len(r.Vectors(2)); got > 0 {
		t.Error("it read a lane that is another's")
	}
	r.beat(deltasync.Live{Name: name, Leaving: true})
	r.inherit(nil)
	for key := deltasync.Key(1); key <= 2; key++ {
		if v := r.Vectors(key); len(v) != 1 || charges(v[0].Cells) != 90 {
			t.Errorf("key %d: %v is held, want what the other one stored", key, v)
		}
	}
}

// While the store does not answer nothing is lost by it: all is read once it does.
func TestInheritTriesAgain(t *testing.T) {
	mem := newStore(&start)
	before := newRegion(t, "eu", mem)
	e := &edge{name: "e1"}
	for key := range deltasync.Key(300) {
		e.tell(before, key+1, charge(start, 50))
	}
	store := &listless{broken: broken{Store: mem}}
	r := newRegion(t, "eu", store)
	for _, tt := range []struct {
		what string
		set  func()
	}{
		{"the list cannot be read", func() { store.unlisted = true }},
		{"the keys cannot be read", func() { store.unlisted, store.down = false, true }},
	} {
		tt.set()
		r.inherit(regional.ErrStore)
		asked := store.asked
		r.now = r.now.Add(900 * time.Millisecond)
		if r.inherit(nil); store.asked != asked {
			t.Errorf("%s: it was asked again at once", tt.what)
		}
		r.now = r.now.Add(200 * time.Millisecond)
	}
	store.down = false
	r.sync(nil)
	r.inherit(nil)
	r.holds(300, func(deltasync.Key) bool { return true })
}

// Nor is it lost when another lane is to be read in between.
func TestInheritReadsLanesTogether(t *testing.T) {
	mem := newStore(&start)
	before := newRegion(t, "eu", mem)
	keys := []deltasync.Key{1, 1<<32 | 1}
	for _, key := range keys {
		(&edge{name: "e1"}).tell(before, key, charge(start, 50))
	}
	store := &listless{broken: broken{Store: mem}, unlisted: true}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 2, Incarnation: 2, StoreTimeout: time.Second}, store)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start, store: store}
	r.inherit(regional.ErrStore)
	store.unlisted = false
	r.now = r.now.Add(1100 * time.Millisecond)
	a.Refuse([]deltasync.Key{1<<32 | 2}, minute)
	for range 2 {
		r.inherit(nil)
	}
	for _, key := range keys {
		if v := r.Vectors(key); len(v) != 1 || charges(v[0].Cells) != 50 {
			t.Errorf("lane %d: %v is held, want the 50 that are stored", key.Lane(2), v)
		}
	}
}

// listless is a store that does not list while told not to.
type listless struct {
	broken
	unlisted bool
	asked    int
}

func (s *listless) Hot(ctx context.Context, from int) ([]regional.Noted, int, error) {
	s.asked++
	if s.unlisted {
		return nil, 0, fmt.Errorf("%w: unplugged", regional.ErrStore)
	}
	return s.Store.Hot(ctx, from)
}

// Many keys are read a part at a time, so that the store's other users have
// their turn; buckets come with all of their shape, and what is listed by others
// does no harm.
func TestInheritInParts(t *testing.T) {
	store := newStore(&start)
	before := newRegion(t, "eu", store)
	e := &edge{name: "e1"}
	const keys = 20_000
	sec := deltasync.Section{Shape: minute}
	for key := range deltasync.Key(keys) {
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key + 1, Cells: []crdt.Cell{charge(start, 50)}})
		if len(sec.Deltas) == 1000 {
			e.send(before, sec)
			sec.Deltas = nil
		}
	}
	bucket := deltasync.Shape{Generation: 8, Width: 1500 * time.Millisecond, Slices: 40, Limit: 100, Refill: 1, RefillPer: time.Second, Floor: 30}
	e.send(before, deltasync.Section{Shape: bucket, Deltas: []deltasync.Delta{{Key: keys + 1, Cells: []crdt.Cell{charge(start, 90)}}}})
	strange := regional.Item{Key: keys + 2, Width: time.Second, Slices: 60, Note: "\xff strange", Until: start.Add(time.Hour).UnixNano()}
	if _, err := store.Merge(t.Context(), []regional.Item{strange}); err != nil {
		t.Fatal(err)
	}
	r := newRegion(t, "eu", store)
	calls := 0
	for r.Stats(r.now).Inherited == 0 {
		held := r.Stats(r.now).Keys
		if r.inherit(nil); r.Stats(r.now).Keys-held > 8192 {
			t.Fatalf("%d keys were read at once", r.Stats(r.now).Keys-held)
		}
		if calls++; calls > 10 {
			t.Fatalf("%d keys are held after %d calls", r.Stats(r.now).Keys, calls)
		}
	}
	if got := r.Stats(r.now).Keys; got != keys+1 {
		t.Errorf("%d keys are held, want %d", got, keys+1)
	}
	for _, p := range r.Pushes(r.now) {
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			t.Fatal(err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				if want := map[bool]deltasync.Shape{false: minute, true: bucket}[k.Key > keys]; s.Shape != want {
					t.Fatalf("key %d has the shape %+v, want %+v", k.Key, s.Shape, want)
				}
			}
		}
	}
}

// Listed keys for which there is no place are told to the other regions all the
// same; so they are when a region lost what it was told, though they were forgotten
// here since.
func TestListedKeysWithoutAPlaceAreTold(t *testing.T) {
	now := start
	store := newStore(&now)
	before := newRegion(t, "eu", store, "us")
	e := &edge{name: "e1"}
	for key := range deltasync.Key(50) {
		e.tell(before, key+1, charge(start, 60))
	}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 2, StoreTimeout: time.Second, MaxKeys: 5}, store)
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start, store: store}
	us, anew := far{epoch: 1}, far{epoch: 2}
	if r.inherit(nil); len(us.answer(t, r)) != 50 {
		t.Error("not all listed keys are told, want all 50, with room for 5")
	}
	r.inherit(nil)
	if got := us.answer(t, r); len(got) != 0 {
		t.Errorf("%d keys are told once more", len(got))
	}
	e.tell(r, 1, charge(start, 61))
	told := map[deltasync.Key]bool{}
	for range 5 {
		for _, key := range anew.answer(t, r) {
			told[key] = true
		}
		r.now = r.now.Add(time.Second)
		r.Tick(r.now)
		r.inherit(nil)
	}
	if len(told) != 50 {
		t.Errorf("a region that lost all is told of %d keys, want all 50", len(told))
	}
}

// So are those that another region named before they were read: it had its answer, and
// the others had none.
func TestListedKeysThatWereAskedAboutAreTold(t *testing.T) {
	now := start
	store := newStore(&now)
	(&edge{name: "e1"}).tell(newRegion(t, "eu", store, "us", "ap"), 1, charge(start, 60))
	if told := toldOnceAsked(t, &now, store); len(told) != 1 || charges(told[0].Cells) != 60 {
		t.Errorf("ap is told %+v, want the 60 of eu, once", told)
	}
}

// And those of which a penalty alone is left, as their counts have retired.
func TestListedPenaltyThatWasAskedAboutIsTold(t *testing.T) {
	now := start
	store := newStore(&now)
	penalty := deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: 1, Until: in(time.Hour), Cells: []crdt.Cell{charge(start, 60)}}}}
	(&edge{name: "e1"}).send(newRegion(t, "eu", store, "us", "ap"), penalty)
	now = start.Add(5 * time.Minute)
	if told := toldOnceAsked(t, &now, store); len(told) != 1 || told[0].Until != in(time.Hour) {
		t.Errorf("ap is told %+v, want the penalty, once", told)
	}
}

// toldOnceAsked is what ap is told by eu, which starts over its store, inherits, and was
// named key 1 by us before that.
func toldOnceAsked(t *testing.T, now *time.Time, store regional.Store) []deltasync.Delta {
	t.Helper()
	r, us := newRegion(t, "eu", store, "us", "ap"), newRegion(t, "us", newStore(now), "eu", "ap")
	ap := newRegion(t, "ap", newStore(now), "eu", "us")
	r.now, us.now, ap.now = *now, *now, *now
	(&edge{name: "u1"}).tell(us, 1, charge(*now, 1))
	us.tellAll(r)
	if told := r.tellAll(); len(told) != 0 {
		t.Fatalf("eu tells %+v though nobody of its own touched the key", told)
	}
	for range 2 {
		r.inherit(nil)
	}
	return r.tellAll(ap)
}
