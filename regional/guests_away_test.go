package regional_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/tierstore"
	"github.com/spillgate/spillgate/sync"
)

// answered has the other regions answer all that us asks them.
func (f *four) answered() {
	f.t.Helper()
	for _, o := range f.us.Exports(f.now) {
		f.receive(o)
	}
}

// receive has another region answer a frame of us.
func (f *four) receive(o regional.Outgoing) {
	f.t.Helper()
	to := map[string]*region{f.first.name: f.first, f.second.name: f.second, f.ap.name: f.ap}[o.Peer]
	if err := f.us.Receive(f.now, o, to.Handle(f.t.Context(), f.now, o.Subject, o.Payload)); err != nil {
		f.t.Fatal(err)
	}
}

// with is a section with the same delta of each of some keys.
func with(shape deltasync.Shape, d deltasync.Delta, keys []deltasync.Key) deltasync.Section {
	sec := deltasync.Section{Shape: shape}
	for _, d.Key = range keys {
		sec.Deltas = append(sec.Deltas, d)
	}
	return sec
}

// Guests of a half of the store that goes away leave room for those of the other half,
// and come again when it is back.
func TestGuestsOfAHalfThatIsAwayMakeWay(t *testing.T) {
	f := newFour(t)
	f.now = time.Now()
	short := &watched{Store: memstore.New(memstore.Config{Seed: 1})}
	f.us.store = tierstore.New(short, memstore.New(memstore.Config{Seed: 2}))
	f.few(f.us, regional.Config{Boot: still, MaxKeys: 80}) // 20 guests
	tick := func(d time.Duration) {
		f.now = f.now.Add(d)
		for _, r := range []*region{f.first, f.second, f.ap, f.us} {
			r.now = f.now
		}
	}
	tick(0)
	f.us.sync(nil)
	var keys []deltasync.Key
	for key := deltasync.Key(1); len(keys) < 60; key++ {
		if slices.Contains(f.us.Homes(key), f.first.name) && !slices.Contains(f.us.Homes(key), f.us.name) {
			keys = append(keys, key)
		}
	}
	gone, there := keys[:30], keys[30:]
	hit := func(shape deltasync.Shape) deltasync.Delta {
		return deltasync.Delta{Cells: []crdt.Cell{{Slice: crdt.Slice(f.now.UnixNano() / int64(shape.Width)), Charges: 1}}}
	}
	asked := deltasync.Delta{Flags: deltasync.FlagTouch}
	(&edge{name: "e"}).send(f.first, with(minute, hit(minute), gone), with(day, hit(day), there))
	(&edge{name: "f"}).send(f.us, of(day, f.now, 1<<30, 80))
	f.us.sync(nil)

	asks := &edge{name: "asks"}
	asks.send(f.us, with(minute, asked, gone))
	f.answered()
	short.gone = true
	if n := f.us.Guests(); n != 20 {
		t.Fatalf("%d guests, want as many as there is room for", n)
	}
	known := func(shape deltasync.Shape, keys []deltasync.Key) (n int) {
		for _, totals := range asks.send(f.us, with(shape, asked, keys)).Totals {
			n += int(charges(totals.Others))
		}
		return n
	}
	for range 6 {
		known(day, there)
		f.answered()
		f.us.sync(regional.ErrStore)
		tick(200 * time.Millisecond)
	}
	if n := known(day, there); n != len(there) {
		t.Errorf("us knows of %d of %d keys of the half that is there", n, len(there))
	}
	if st := f.us.Stats(f.now); st.Unstored > f.us.Guests() {
		t.Errorf("%d keys wait for the store, want no more than the %d guests", st.Unstored, f.us.Guests())
	}
	short.gone = false
	for range 6 {
		f.us.sync(nil)
		known(minute, gone)
		f.answered()
		tick(200 * time.Millisecond)
	}
	f.us.sync(nil)
	if n := known(minute, gone); n != len(gone) || f.us.Guests() != 0 {
		t.Errorf("us knows of %d of %d keys of the half that is back, and has %d guests, want none", n, len(gone), f.us.Guests())
	}
}

// Guests that keep out nobody stay while the store is away: they are written when it is
// back.
func TestGuestsWaitForTheStore(t *testing.T) {
	f := newFour(t)
	b := &broken{Store: f.us.store}
	f.us.store = b
	f.few(f.us, regional.Config{Boot: still, MaxKeys: 1})
	(&edge{name: "e"}).tell(f.first, f.key, charge(start, 30))
	(&edge{name: "f"}).tell(f.us, 9999, charge(start, 30))
	f.us.Pushes(f.now)
	f.us.sync(nil)
	(&edge{name: "asks"}).tell(f.us, f.key)
	f.answered()
	b.down = true
	f.us.sync(regional.ErrStore)
	if n := f.us.Guests(); n != 1 {
		t.Fatalf("%d guests are left, want the one that waits", n)
	}
	b.down = false
	f.us.sync(nil)
	if got := f.total(f.us); got != 30 {
		t.Errorf("us knows of %d, want 30", got)
	}
}

// between does something as a store is about to be written: when the second deadline of
// a Sync is made, which comes after the keys were taken off the list.
type between struct {
	context.Context
	deadlines int
	do        func()
}

func (b *between) Deadline() (time.Time, bool) {
	if b.deadlines++; b.deadlines == 2 {
		b.do()
	}
	return time.Time{}, false
}

// A guest that is pushed just before it is written is stored all the same: where it owes
// its penalty too, where it owes counts alone, and where that write is called off.
func TestGuestPushedWhileItIsAboutToBeWritten(t *testing.T) {
	for name, tc := range map[string]struct{ penaltyStored, calledOff bool }{
		"penalty and counts": {}, "counts": {penaltyStored: true}, "called off": {penaltyStored: true, calledOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFour(t)
			f.few(f.us, regional.Config{Boot: still, MaxKeys: 1})
			until := start.Add(time.Minute).UnixNano()
			e, asks := &edge{name: "e"}, &edge{name: "asks"}
			e.send(f.first, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: f.key, Until: until}}})
			(&edge{name: "f"}).tell(f.us, 9999, charge(start, 30))
			f.us.sync(nil)
			f.us.Pushes(f.now)
			if tc.penaltyStored {
				asks.tell(f.us, f.key)
				f.answered()
				f.us.sync(nil)
			}
			e.tell(f.ap, f.key, charge(start, 90))
			f.ap.tellAll(f.first)
			asks.tell(f.us, f.key)
			f.answered()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pushes := 0
			err := f.us.Sync(&between{Context: ctx, do: func() {
				pushes = len(f.us.Pushes(f.now))
				if tc.calledOff {
					cancel()
				}
			}}, f.now)
			if (err != nil) != tc.calledOff || pushes != 1 {
				t.Fatalf("Sync: %v, and %d pushes, want one in between", err, pushes)
			}
			if tc.calledOff {
				f.us.sync(nil)
			}
			got, err := f.us.store.Load(t.Context(), []regional.Item{{Key: f.key, Width: minute.Width, Slices: minute.Slices}})
			if err != nil {
				t.Fatal(err)
			}
			if sum := stored(t, f.us.store, f.key); sum != 90 || got[0].Until != until {
				t.Errorf("the store has %d, and a penalty until %d; want 90 and %d", sum, got[0].Until, until)
			}
			f.us.sync(nil)
			f.us.Pushes(f.now)
			if n := f.us.Guests(); n != 0 {
				t.Errorf("%d guests stay", n)
			}
		})
	}
}
