package regional_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// A region asks the homes no more often than it must, however often edges ask it.
func TestHomesAreAskedNowAndThen(t *testing.T) {
	f := newFour(t)
	asks := 0
	for range 100 { // ten seconds
		(&edge{name: "e"}).tell(f.us, f.key)
		f.us.now = f.us.now.Add(100 * time.Millisecond)
		if f.us.now.Equal(start.Add(100 * time.Millisecond)) {
			(&edge{name: "e"}).tell(f.us, f.key, charge(start, 1)) // or every question is the first
		}
		for _, o := range f.us.Exports(f.us.now) {
			var up deltasync.Up
			if err := up.UnmarshalBinary(o.Payload); err != nil {
				t.Fatal(err)
			}
			totals := 0
			for _, s := range up.Sections {
				totals += len(s.Deltas)
			}
			asks += totals
			if err := f.us.Receive(f.us.now, o, replyAs(t, o.Peer, o.Seq, make([]deltasync.Totals, totals)...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asks < 2*9 || asks > 2*14 {
		t.Errorf("in ten seconds both homes were asked %d times, want about ten each", asks)
	}
}

// Questions leave half of an outbox to what is counted.
func TestQuestionsLeaveRoom(t *testing.T) {
	f := newFour(t)
	f.us.ShrinkOutboxes(8)
	for key := range deltasync.Key(100) {
		(&edge{name: "e"}).tell(f.us, key+1000)
	}
	if got, most := f.us.Waiting(), 3*8/2; got > most || got < most/2 {
		t.Errorf("%d questions wait, want %d at most", got, most)
	}
}

// A region that lost everything is told again of what it is home to, and of what is
// near its limit; of other keys nobody told it before.
func TestWipedRegionsAreToldAgain(t *testing.T) {
	f := newFour(t)
	seed := uint64(1)
	wipe := func(r **region) {
		seed++
		store := memstore.New(memstore.Config{Now: func() time.Time { return f.now }, Seed: seed})
		name := (*r).name
		a, err := regional.New(regional.Config{Boot: still, Region: name, Name: "a1", Peers: others(names(4), name), Lanes: 1, Incarnation: seed, StoreTimeout: time.Second, Targets: regional.TargetsHomes}, store)
		if err != nil {
			t.Fatal(err)
		}
		*r = &region{Aggregator: a, t: t, name: name, now: f.now, store: store}
		(*r).sync(nil)
	}
	told := func(to *region) (n int) {
		for range 5 {
			n += f.pass()[f.ap.name+" "+to.name]
		}
		return n
	}
	for _, r := range []**region{&f.first, &f.us} {
		wipe(r) // its first epoch is that of a store
	}
	e := &edge{name: "e"}
	e.tell(f.ap, f.key, charge(start, 5))
	if n := told(f.us); n != 0 {
		t.Errorf("us is told %d times of a key that it is no home of", n)
	}
	wipe(&f.first)
	if n := told(f.first); n != 1 {
		t.Errorf("%s lost everything and is told %d times, want once", f.first.name, n)
	}
	wipe(&f.us)
	if n := told(f.us); n != 0 {
		t.Errorf("us lost everything and is told %d times of a key that it is no home of", n)
	}
	e.tell(f.ap, f.key, charge(start, 60))
	if n := told(f.us); n != 1 {
		t.Errorf("us is told %d times that 60 %% are used, want once", n)
	}
	wipe(&f.us)
	if n := told(f.us); n != 1 {
		t.Errorf("us lost everything and is told %d times that 60 %% are used, want once", n)
	}
}

// Where keys compete for places, what homes told of one is stored before others take
// its place: or whoever asks again would never hear of it.
func TestWhatHomesToldOutlivesItsPlace(t *testing.T) {
	f := newFour(t)
	a, err := regional.New(regional.Config{Boot: still, Region: f.us.name, Name: "a1", Peers: others(names(4), f.us.name), Lanes: 1, MaxKeys: 1, Incarnation: 1, StoreTimeout: time.Second, Targets: regional.TargetsHomes}, f.us.store)
	if err != nil {
		t.Fatal(err)
	}
	f.us.Aggregator = a
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 5))
	f.pass()
	const other = 9999
	for n := range uint64(2) {
		(&edge{name: "e"}).tell(f.us, other, charge(start, n+1))
		f.pass()
		f.us.sync(nil)
		if got, want := f.total(f.us), 5*n; got != want {
			t.Errorf("asked %d times, us knows of %d, want %d", n+1, got, want)
		}
		f.pass()
		(&edge{name: "e"}).tell(f.us, other+1, charge(start, n+1)) // it wants the place too
		f.us.sync(nil)
	}
}

// Where two regions do not answer there are keys without homes: that is shown, and is
// over when one is back.
func TestHomesThatAreAwayAreShown(t *testing.T) {
	f := newFour(t)
	lose := func(peers ...string) {
		for range 40 {
			f.us.now = f.us.now.Add(100 * time.Millisecond)
			for _, o := range f.us.Exports(f.us.now) {
				if slices.Contains(peers, o.Peer) {
					f.us.Lost(f.us.now, o)
				} else if err := f.us.Receive(f.us.now, o, replyAs(t, o.Peer, o.Seq)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, tc := range []struct {
		peers []string
		away  bool
	}{{nil, false}, {[]string{f.first.name}, false}, {[]string{f.first.name, f.second.name}, true}, {[]string{f.second.name}, false}} {
		lose(tc.peers...)
		if st := f.us.Stats(f.us.now); st.HomesAway() != tc.away || st.Silent != len(tc.peers) {
			t.Errorf("%v do not answer: %d silent, homes away %v, want %d, %v", tc.peers, st.Silent, st.HomesAway(), len(tc.peers), tc.away)
		}
	}
}
