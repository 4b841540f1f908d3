package regional_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// few gives a region of four an aggregator with less room, over the same store; keys have
// homes unless cfg says otherwise.
func (f *four) few(r *region, cfg regional.Config) {
	f.t.Helper()
	cfg.Region, cfg.Name, cfg.Peers, cfg.Lanes, cfg.Incarnation = r.name, "a1", others(names(4), r.name), 1, 1
	cfg.StoreTimeout = time.Second
	if cfg.Targets == "" {
		cfg.Targets = regional.TargetsHomes
	}
	a, err := regional.New(cfg, r.store)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Aggregator = a
}

// What homes told of a key that has lost its place meanwhile is stored, and pushed with
// what the store has of the region, and takes no memory then.
func TestWhatHomesToldOfKeysWithoutPlaceIsPushed(t *testing.T) {
	const hot = 9999
	f := newFour(t)
	f.few(f.us, regional.Config{Boot: still, MaxKeys: 1})
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 30))
	f.pass()
	(&edge{name: "e"}).tell(f.us, f.key, charge(start, 30))
	(&edge{name: "f"}).tell(f.us, hot, charge(start, 30))
	f.us.Pushes(f.now)
	before := f.us.Stats(f.now).Bytes
	f.pass()
	f.us.sync(nil)
	var pushed []deltasync.HotKey
	for _, p := range f.us.Pushes(f.now) {
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			t.Fatal(err)
		}
		for _, s := range hot.Sections {
			pushed = append(pushed, s.Keys...)
		}
	}
	if len(pushed) != 1 || pushed[0].Key != f.key || charges(pushed[0].Others) != 30 || charges(pushed[0].Peers) != 30 {
		t.Errorf("us pushed %v, want 30 of others and 30 of its own of key %d", pushed, f.key)
	}
	if st := f.us.Stats(f.now); f.us.Guests() != 0 || st.Keys != 1 || st.Bytes > before+1024 || st.Unstored != 0 {
		t.Errorf("us is left with %d guests, %d keys, %d bytes, %d keys to store, want 0, 1, %d, 0", f.us.Guests(), st.Keys, st.Bytes, st.Unstored, before)
	}
	if got := f.total(f.us); got != 60 {
		t.Errorf("us answers %d, want 60", got)
	}
}

// In a mesh too: what a region told while another was away, and has forgotten since, the
// other hears when it tells something of the key.
func TestWhatIsAnsweredOfAMeshWithoutPlaceIsKept(t *testing.T) {
	const hot = 9999
	f := newFour(t)
	f.few(f.ap, regional.Config{Boot: still, Targets: regional.TargetsMesh})
	f.few(f.us, regional.Config{Boot: still, Targets: regional.TargetsMesh, MaxKeys: 1})
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 30))
	f.ap.Exports(f.now)                                                      // it is not heard
	f.few(f.ap, regional.Config{Boot: still, Targets: regional.TargetsMesh}) // nor told again
	(&edge{name: "e"}).tell(f.us, f.key, charge(start, 1))
	(&edge{name: "f"}).tell(f.us, hot, charge(start, 30))
	f.us.Pushes(f.now)
	if got := f.total(f.us); got != 1 {
		t.Fatalf("us answers %d before it has told anybody, want its own", got)
	}
	f.pass()
	f.us.sync(nil)
	if got := f.total(f.us); got != 31 {
		t.Errorf("us answers %d, want its 1 and the 30 of ap", got)
	}
	f.us.Pushes(f.now)
	if got := f.us.Guests(); got != 0 {
		t.Errorf("%d guests stay", got)
	}
}

// A place that happens to be free when homes answer is soon another's: what they told is
// in the store by then.
func TestWhatHomesToldWherePlacesRunShortIsStored(t *testing.T) {
	f := newFour(t)
	f.few(f.us, regional.Config{Boot: still, MaxKeys: 8})
	f.us.sync(nil) // all is written at first
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 30))
	f.pass()
	filler := &edge{name: "f"}
	filler.used(f.us, 90, 1<<20, 6)
	f.us.Pushes(f.now)
	f.total(f.us) // asks the homes
	f.pass()
	f.us.sync(nil)
	filler.used(f.us, 90, 1<<21, 8)
	f.us.Pushes(f.now)
	f.now = f.now.Add(time.Second)
	if got := f.total(f.us); got != 30 {
		t.Errorf("us answers %d, want the 30 of ap, which homes told", got)
	}
}

// A reply may tell of more keys than there is room for guests: homes are asked again of
// the rest, until all are known; and guests take their part of the room, no more.
func TestGuestsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg    regional.Config
		filled int // keys that take the places
		asked  int
		guests int
	}{
		"by number": {regional.Config{Boot: still, MaxKeys: 8}, 8, 40, 2},
		"by bytes":  {regional.Config{Boot: still, MaxBytes: 1 << 18}, 600, 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFour(t)
			f.few(f.us, tc.cfg)
			var keys []deltasync.Key
			for key := deltasync.Key(1); len(keys) < tc.asked; key++ {
				if !slices.Contains(f.us.Homes(key), f.us.name) {
					keys = append(keys, key)
				}
			}
			for _, key := range keys {
				(&edge{name: "e"}).tell(f.ap, key, charge(start, 5))
			}
			for range 5 {
				f.pass()
			}
			filler := &edge{name: "f"}
			for n := range tc.filled {
				filler.used(f.us, 30, deltasync.Key(1<<20+n), 1)
				if n%100 == 0 {
					f.pass()
				}
			}
			for range 5 {
				f.pass()
			}
			sec := deltasync.Section{Shape: minute}
			for _, key := range keys {
				sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch})
			}
			e, most, bytes := &edge{name: "asks"}, 0, 0
			e.send(f.us, sec)
			for range 40 {
				for _, o := range f.us.Exports(f.now) {
					to := map[string]*region{f.first.name: f.first, f.second.name: f.second, f.ap.name: f.ap}[o.Peer]
					if err := f.us.Receive(f.now, o, to.Handle(t.Context(), f.now, o.Subject, o.Payload)); err != nil {
						t.Fatal(err)
					}
					most, bytes = max(most, f.us.Guests()), max(bytes, f.us.Stats(f.now).Bytes)
				}
				f.us.sync(nil)
				f.now = f.now.Add(100 * time.Millisecond)
				f.us.now = f.now
			}
			if left := f.us.Guests(); most == 0 || most > tc.guests || left != 0 {
				t.Errorf("%d guests at once, %d in the end, want at most %d, and none", most, left, tc.guests)
			}
			if room := int(tc.cfg.MaxBytes / 4 * 3); room > 0 && bytes > room+4096 {
				t.Errorf("the lane takes %d bytes, want at most %d", bytes, room)
			}
			if n := f.us.Waiting(); n != 0 {
				t.Errorf("%d questions wait though all is known", n)
			}
			for i, totals := range e.send(f.us, sec).Totals {
				if charges(totals.Others) != 5 {
					t.Fatalf("us knows of %d of key %d, want 5", charges(totals.Others), keys[i])
				}
			}
		})
	}
}
