package regional_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// outbox is the room of an outbox in tests of what happens when one is full: half
// of it is more than is told under one lock.
const outbox = 1000

// crowd is more keys than two outboxes take.
const crowd = 5 * outbox / 2

// hits is so many hits of each of some keys, in slices so long that none
// retires meanwhile.
func hits(at time.Time, charges uint64, keys ...deltasync.Key) deltasync.Section {
	sec := deltasync.Section{Shape: deltasync.Shape{Generation: 7, Width: time.Minute, Slices: 10, Limit: 100}}
	cells := []crdt.Cell{{Slice: crdt.Slice(at.UnixNano() / int64(time.Minute)), Charges: charges}}
	for _, key := range keys {
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key, Cells: cells})
	}
	return sec
}

// upTo is the keys from 1 to n.
func upTo(n int) []deltasync.Key {
	keys := make([]deltasync.Key, n)
	for i := range keys {
		keys[i] = deltasync.Key(i + 1)
	}
	return keys
}

// far is another region as eu knows it: by its answers.
type far struct {
	epoch   uint64
	refuses bool          // all that it is told
	lacks   deltasync.Key // it refuses this one
	away    bool          // its store
}

// answer answers all that eu exports now, and returns the keys.
func (f far) answer(t *testing.T, eu *region) (told []deltasync.Key) {
	t.Helper()
	for _, o := range eu.Exports(eu.now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatalf("decode export: %v", err)
		}
		keys := keysOf(up)
		told = append(told, keys...)
		f.reply(t, eu, o, up.Seq, keys)
	}
	if len(told) > 0 { // an answer makes room for more frames
		told = append(told, f.answer(t, eu)...)
	}
	return told
}

func (f far) reply(t *testing.T, eu *region, o regional.Outgoing, seq uint64, keys []deltasync.Key) {
	t.Helper()
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: "us", Node: deltasync.NodeID("us", "", ""), Seq: seq,
		StoreEpoch: f.epoch, Totals: make([]deltasync.Totals, len(keys)),
	}
	for i, key := range keys {
		if f.refuses || f.lacks == key {
			down.Status = deltasync.StatusOverloaded
			down.Refused = append(down.Refused, uint32(i))
		}
	}
	if f.away {
		down.Status = deltasync.StatusStoreDown
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := eu.Receive(eu.now, o, b); err != nil {
		t.Fatalf("Receive: %v", err)
	}
}

// second is answer, and what a second brings.
func (f far) second(t *testing.T, eu *region) (told []deltasync.Key) {
	t.Helper()
	told = f.answer(t, eu)
	eu.now = eu.now.Add(time.Second)
	eu.Tick(eu.now)
	return told
}

// A peer that goes on refusing is left alone for longer and longer, and what
// changes is told at once all the same. Once it takes, the next refusal is told
// again with the next Tick.
func TestRefusingPeerIsToldLessAndLessOften(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	full, roomy := far{epoch: 1, refuses: true}, far{epoch: 1}
	e.send(eu, hits(start, 1, 1, 2, 3))
	var at []int // the seconds in which they are told
	for second := range 64 {
		switch keys := full.second(t, eu); len(keys) {
		case 0:
		case 3:
			at = append(at, second)
		default:
			t.Fatalf("after %ds keys %v are told, want all three or none", second, keys)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 47, 63}; !slices.Equal(at, want) {
		t.Fatalf("told after %v seconds, want %v", at, want)
	}
	e.send(eu, hits(start, 1, 9))
	if keys := roomy.second(t, eu); !slices.Equal(keys, []deltasync.Key{9}) {
		t.Fatalf("while the peer is left alone keys %v are told, want what changed, 9", keys)
	}
	for second := 1; len(roomy.answer(t, eu)) == 0; second++ {
		if second == 16 {
			t.Fatal("the peer is left alone for longer than 16 s")
		}
		roomy.second(t, eu)
	}
	e.send(eu, hits(start, 2, 1, 2, 3)) // in the same second
	for i, peer := range []far{full, roomy} {
		if keys := peer.second(t, eu); !slices.Equal(keys, []deltasync.Key{1, 2, 3}) {
			t.Fatalf("%ds after a first refusal keys %v are told, want 1 to 3", i, keys)
		}
	}
}

// What a peer refused and has retired says nothing of what it will refuse now;
// nor does what one refused that lost its store since, nor a clock that was set
// back.
func TestLongRestIsForgotten(t *testing.T) {
	tired := func(t *testing.T) *region { // of telling: it rests for 16 s
		t.Helper()
		eu := newRegion(t, "eu", newStore(&start), "us")
		eu.ShrinkOutboxes(outbox)
		(&edge{name: "e1"}).send(eu, hits(start, 1, upTo(crowd)...))
		for range 34 {
			far{epoch: 1, refuses: true}.second(t, eu)
		}
		return eu
	}
	t.Run("retired", func(t *testing.T) {
		eu := tired(t)
		for range 2 {
			eu.now = eu.now.Add(time.Hour)
			eu.Tick(eu.now)
		}
		(&edge{name: "e2"}).send(eu, hits(eu.now, 1, 9))
		for second, want := range []int{1, 1, 0, 1} {
			if got := len(far{epoch: 1, refuses: true}.second(t, eu)); got != want {
				t.Errorf("after %ds %d keys are told, want %d, as if it refused for the first time", second, got, want)
			}
		}
	})
	t.Run("clock set back", func(t *testing.T) {
		eu := tired(t)
		eu.now = eu.now.Add(-time.Minute)
		eu.Tick(eu.now)
		if got := len(far{epoch: 1}.answer(t, eu)); got == 0 {
			t.Error("nothing is told after a Tick: it rests for a minute longer")
		}
	})
	t.Run("lost its store", func(t *testing.T) {
		eu := tired(t)
		(&edge{name: "e2"}).send(eu, hits(start, 1, crowd+1)) // makes eu hear the new epoch
		told := map[deltasync.Key]bool{}
		for range 5 {
			for _, key := range (far{epoch: 2}).second(t, eu) {
				told[key] = true
			}
		}
		if want := crowd + 1; len(told) != want {
			t.Errorf("%d keys are told within 5 s, want all %d", len(told), want)
		}
	})
}

// What is told again takes half of an outbox, so that there is room for what
// edges count meanwhile.
func TestToldAgainLeavesRoom(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), far{epoch: 1}
	eu.ShrinkOutboxes(outbox)
	(&edge{name: "e1"}).send(eu, hits(start, 1, upTo(crowd)...))
	for second, want := range []int{outbox, outbox / 2, outbox / 2, outbox / 2, 0} {
		if got := len(us.second(t, eu)); got != want {
			t.Errorf("after %ds %d keys are told, want %d", second, got, want)
		}
	}
}

// A reply that is cut short is asked for the rest though the outbox was full:
// the frame left room for it.
func TestCutReplyIsAskedForTheRestOfAFullOutbox(t *testing.T) {
	eu, us, e := newRegion(t, "eu", newStore(&start), "us"), far{epoch: 1}, &edge{name: "e1"}
	eu.ShrinkOutboxes(outbox)
	e.send(eu, hits(start, 1, upTo(10)...))
	o, up := only(t, eu)
	e.send(eu, hits(start, 1, upTo(crowd)...))
	us.reply(t, eu, o, up.Seq, []deltasync.Key{1})
	told := us.answer(t, eu)
	for _, key := range keysOf(up)[1:] {
		if !slices.Contains(told, key) {
			t.Errorf("key %d, which the reply left out, is not asked about", key)
		}
	}
}
