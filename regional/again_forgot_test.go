package regional_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// forgotWhileTold is a region with room for one key, which has sent us that so much of 100
// is used of key 9, and forgot it before the answer.
func forgotWhileTold(t *testing.T, used uint64) (eu *region, store *broken, sent regional.Outgoing, up deltasync.Up) {
	t.Helper()
	now := start
	store = &broken{Store: newStore(&now)}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, MaxKeys: 1}, store)
	if err != nil {
		t.Fatal(err)
	}
	eu = &region{Aggregator: a, t: t, name: "eu", now: start}
	eu.sync(nil)
	for range 3 { // or it would read its lane as one that it gained
		eu.inherit(nil)
		eu.now = eu.now.Add(time.Millisecond)
	}
	long := deltasync.Shape{Generation: 7, Width: time.Minute, Slices: 10, Limit: 100}
	count := func(key deltasync.Key, n uint64) {
		(&edge{name: "e1", seq: n}).send(eu, deltasync.Section{Shape: long, Deltas: []deltasync.Delta{{Key: key,
			Cells: []crdt.Cell{{Slice: crdt.Slice(start.UnixNano() / int64(time.Minute)), Charges: n}}}}})
	}
	count(9, used)
	sent, up = only(t, eu)
	eu.Pushes(eu.now)
	eu.sync(nil)
	count(8, 60)
	if len(eu.Vectors(9)) > 0 {
		t.Fatal("the key is still known: the test sees nothing")
	}
	return eu, store, sent, up
}

// What a peer refused is told again though it was forgotten while the frame was under
// way: it is read from the store.
func TestRefusedKeyThatWasForgottenIsToldAgain(t *testing.T) {
	for name, used := range map[string]uint64{"listed": 30, "on no list": 10} {
		eu, _, sent, up := forgotWhileTold(t, used)
		refuse(t, eu, sent, up, deltasync.StatusOverloaded, 0)
		told := 0
		for range 10 {
			if slices.Contains((far{epoch: 1}).second(t, eu), 9) {
				told++
			}
			eu.inherit(nil)
		}
		if told != 1 {
			t.Errorf("%s: the key is told %d times again, want once", name, told)
		}
	}
}

// So it is where the store fails for some seconds just then.
func TestRefusedKeyIsReadOnceTheStoreIsBack(t *testing.T) {
	for name, used := range map[string]uint64{"listed": 30, "on no list": 10} {
		eu, store, sent, up := forgotWhileTold(t, used)
		refuse(t, eu, sent, up, deltasync.StatusOverloaded, 0)
		told := 0
		for second := range 20 {
			if slices.Contains((far{epoch: 1}).second(t, eu), 9) {
				told++
			}
			if store.down = second < 5; store.down {
				_, _ = eu.Inherit(t.Context(), eu.now), eu.Sync(t.Context(), eu.now) // fail
				continue
			}
			eu.sync(nil)
			eu.inherit(nil)
		}
		if told != 1 {
			t.Errorf("%s: the key is told %d times again, want once", name, told)
		}
	}
}

// reads is a store that remembers which keys were read from it.
type reads struct {
	*broken
	keys map[deltasync.Key]bool
}

func (r reads) Load(ctx context.Context, items []regional.Item) ([]regional.Item, error) {
	out, err := r.broken.Load(ctx, items)
	for _, it := range items {
		r.keys[it.Key] = r.keys[it.Key] || err == nil
	}
	return out, err
}

// Nor is any lost of those that were read in vain, where a pass begins anew as another
// is refused.
func TestRefusedKeysOutlastAPassThatBeginsAnew(t *testing.T) {
	const lanes = 64
	now := start
	store := reads{&broken{Store: newStore(&now)}, map[deltasync.Key]bool{}}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: lanes, Incarnation: 1, StoreTimeout: time.Second}, store)
	if err != nil {
		t.Fatal(err)
	}
	eu := &region{Aggregator: a, t: t, name: "eu", now: start}
	rest := func() { eu.now = eu.now.Add(2 * time.Second) }
	for range 3 { // or it would read its lanes as some that it gained
		eu.sync(nil)
		eu.inherit(nil)
		rest()
	}
	keys := map[int]deltasync.Key{}
	for k := uint64(1); len(keys) < lanes; k++ {
		key := deltasync.Key(k * 0x9E3779B97F4A7C15)
		keys[key.Lane(lanes)] = key
	}
	eu.Refuse(slices.Collect(maps.Values(keys)), minute)
	store.down = true
	_ = eu.Inherit(t.Context(), eu.now) // reads half of them
	if n := len(store.keys); n == 0 || n == lanes {
		t.Fatalf("%d of %d keys were read in vain: the test sees nothing", n, lanes)
	}
	store.down = false
	eu.sync(nil)
	eu.Refuse([]deltasync.Key{keys[0] + 1}, minute)
	for range 5 {
		eu.inherit(nil)
		rest()
	}
	for _, key := range keys {
		if !store.keys[key] {
			t.Errorf("key %x is never read", key)
		}
	}
}

// A peer that goes on refusing, or is without its store, has such keys read for it less
// and less often.
func TestForgottenKeysAreReadSeldomForARefusingPeer(t *testing.T) {
	for name, peer := range map[string]far{"refuses": {epoch: 1, lacks: 9}, "without its store": {epoch: 1, away: true}} {
		eu, _, sent, up := forgotWhileTold(t, 10)
		refuse(t, eu, sent, up, deltasync.StatusOverloaded, 0)
		told := 0
		for range 60 {
			if slices.Contains(peer.second(t, eu), 9) {
				told++
			}
			eu.inherit(nil)
		}
		if told < 3 || told > 8 {
			t.Errorf("%s: the key is told %d times in a minute, want to be told again, and seldom", name, told)
		}
	}
}

// Of such keys no more are remembered than there is room for; of the others those that
// are listed are read.
func TestRefusedKeysThatAreRememberedAreBounded(t *testing.T) {
	eu, _, sent, up := forgotWhileTold(t, 10)
	refuse(t, eu, sent, up, deltasync.StatusOverloaded, 0)
	if n := eu.Refused(); n != 1 {
		t.Fatalf("%d keys are remembered, want the one", n)
	}
	before := eu.Stats(eu.now).Bytes
	for key := deltasync.Key(100); key < 100+2*regional.MostRefused; key++ {
		(&edge{name: "e2"}).tell(eu, key, charge(start, 10))
		sent, up := only(t, eu)
		eu.sync(nil)
		(&edge{name: "e3"}).tell(eu, key+1000, charge(start, 60))
		refuse(t, eu, sent, up, deltasync.StatusOverloaded, 0)
		eu.sync(nil)
		eu.Pushes(eu.now)
		for _, o := range eu.Exports(eu.now) {
			var up deltasync.Up
			if err := up.UnmarshalBinary(o.Payload); err != nil {
				t.Fatal(err)
			}
			refuse(t, eu, o, up, deltasync.StatusOK)
		}
		eu.now = eu.now.Add(100 * time.Millisecond)
	}
	if n := eu.Refused(); n != regional.MostRefused {
		t.Errorf("%d keys are remembered, want %d", n, regional.MostRefused)
	}
	if eu.Stats(eu.now).Bytes <= before {
		t.Error("they take no memory, as it is told")
	}
}
