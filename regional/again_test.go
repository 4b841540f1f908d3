package regional_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// refuse answers a frame in the name of us with a refusal of some deltas.
func refuse(t *testing.T, eu *region, o regional.Outgoing, up deltasync.Up, status deltasync.Status, refused ...uint32) {
	t.Helper()
	down := deltasync.Down{Status: status, Region: "us", Node: deltasync.NodeID("us", "", ""), Seq: up.Seq, StoreEpoch: 1, Refused: refused}
	for _, sec := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(sec.Deltas))...)
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := eu.Receive(eu.now, o, b); err != nil {
		t.Fatalf("Receive: %v", err)
	}
}

// keysOf is the keys of a frame, in order.
func keysOf(up deltasync.Up) (keys []deltasync.Key) {
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			keys = append(keys, d.Key)
		}
	}
	return keys
}

// What a peer refused, and nothing else, is told again with the next Tick, and
// once however often it was refused.
func TestRefusedExportsAreToldAgainOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  deltasync.Status
		refused []uint32
		want    []deltasync.Key
	}{
		{"clock, named", deltasync.StatusClock, []uint32{1}, []deltasync.Key{11}},
		{"overloaded, named", deltasync.StatusOverloaded, []uint32{0, 2}, []deltasync.Key{10, 12}},
		{"shapes, named", deltasync.StatusForbidden, []uint32{2}, []deltasync.Key{12}},
		{"overloaded, of an older build", deltasync.StatusOverloaded, nil, []deltasync.Key{10, 11, 12}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eu := newRegion(t, "eu", newStore(&start), "us")
			e := &edge{name: "e1"}
			for count := uint64(1); count <= 2; count++ {
				for key := deltasync.Key(10); key < 13; key++ {
					e.tell(eu, key, charge(start, count))
				}
				o, up := only(t, eu)
				if got := keysOf(up); !slices.Equal(got, []deltasync.Key{10, 11, 12}) {
					t.Fatalf("keys %v are exported, want 10 to 12", got)
				}
				refuse(t, eu, o, up, tt.status, tt.refused...)
			}
			if out := eu.Exports(eu.now); len(out) != 0 {
				t.Fatalf("%d frames before the next Tick, want none: they would meet the same refusal", len(out))
			}
			eu.now = eu.now.Add(time.Second)
			eu.Tick(eu.now)
			_, up := only(t, eu)
			if got := keysOf(up); !slices.Equal(got, tt.want) {
				t.Fatalf("keys %v are told again, want %v", got, tt.want)
			}
			if got := charges(up.Sections[0].Deltas[0].Cells); got != 2 {
				t.Errorf("key %d is told again with %d, want the newest count, 2", tt.want[0], got)
			}
		})
	}
}

// A refusal of the whole frame is no answer: it counts as lost.
func TestWholeFrameRefused(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 5))
	o, up := only(t, eu)
	for _, status := range []deltasync.Status{deltasync.StatusForbidden, deltasync.StatusUnsupported} {
		down := deltasync.Down{Status: status, Region: "us", Node: deltasync.NodeID("us", "", ""), Seq: up.Seq, StoreEpoch: 1}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := eu.Receive(eu.now, o, b); err == nil {
			t.Errorf("a reply with %v and no delta named is taken", status)
		}
	}
}

// settle exchanges for three seconds, with a Tick ten times as often as in life.
func settle(t *testing.T, from, to *region) {
	t.Helper()
	for range 30 {
		for exchange(t, from, to) > 0 {
		}
		from.now, to.now = from.now.Add(100*time.Millisecond), to.now.Add(100*time.Millisecond)
		from.Tick(from.now)
	}
}

// More keys than an outbox holds reach the peer all the same, though no edge
// tells of them again: after a silence, and when the peer has lost everything.
func TestFullOutboxLosesNothing(t *testing.T) {
	now := start
	clock := memstore.Config{Now: func() time.Time { return now }, Seed: 1}
	eu, us := newRegion(t, "eu", memstore.New(clock), "us"), newRegion(t, "us", memstore.New(clock), "eu")
	eu.ShrinkOutboxes(outbox)
	e := &edge{name: "e1"}
	e.send(eu, hits(start, 3, upTo(crowd)...))
	settle(t, eu, us)
	if st := us.Stats(us.now); st.Keys != crowd {
		t.Fatalf("after a silence us has %d keys of %d", st.Keys, crowd)
	}

	clock.Seed = 99
	us = newRegion(t, "us", memstore.New(clock), "eu")
	us.now = eu.now
	if err := us.Sync(context.Background(), us.now); err != nil { // reads its own store's epoch
		t.Fatal(err)
	}
	e.send(eu, hits(start, 3, crowd+1)) // makes eu hear the new epoch
	settle(t, eu, us)
	if st := us.Stats(us.now); st.Keys != crowd+1 {
		t.Fatalf("us forgot all and has %d keys again of %d", st.Keys, crowd+1)
	}
}
