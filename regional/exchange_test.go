package regional_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// only is the one export of a region.
func only(t *testing.T, r *region) (regional.Outgoing, deltasync.Up) {
	t.Helper()
	out := r.Exports(r.now)
	if len(out) != 1 {
		t.Fatalf("%d exports of %s, want 1", len(out), r.name)
	}
	var up deltasync.Up
	if err := up.UnmarshalBinary(out[0].Payload); err != nil {
		t.Fatalf("decode export: %v", err)
	}
	return out[0], up
}

// replyAs answers a frame in the name of a region.
func replyAs(t *testing.T, name string, seq uint64, totals ...deltasync.Totals) []byte {
	t.Helper()
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: name, Node: deltasync.NodeID(name, "", ""), Seq: seq, StoreEpoch: 1, Totals: totals,
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatalf("encode reply: %v", err)
	}
	return b
}

func peers(cells ...crdt.Cell) deltasync.Totals { return deltasync.Totals{Peers: cells} }

// A reply counts for the region that it was asked of, or not at all: two
// entries of one region would count it twice.
func TestReplyInAnotherNameIsRefused(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	e := &edge{name: "e1"}
	e.tell(eu, 9, charge(start, 5))
	o, up := only(t, eu)
	if err := eu.Receive(start, o, replyAs(t, "jp", up.Seq, peers(charge(start, 7)))); err == nil {
		t.Fatal("a reply of jp to a frame for us is taken")
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 0 {
		t.Fatalf("after the refused reply eu hears %d of others, want 0", charges(down.Totals[0].Others))
	}
	if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, peers(charge(start, 7)))); err != nil {
		t.Fatalf("the right reply after the wrong one: %v", err)
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 7 {
		t.Fatalf("after the right reply eu hears %d of others, want 7", charges(down.Totals[0].Others))
	}
}

// A reply with more totals than the frame had keys cannot be told which is whose: nothing of
// it is taken, and the frame waits for another.
func TestReplyWithTooManyTotalsIsRefused(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	e := &edge{name: "e1"}
	e.tell(eu, 9, charge(start, 5))
	o, up := only(t, eu)
	if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, peers(charge(start, 7)), peers(charge(start, 8)))); err == nil {
		t.Error("a reply with two totals for one key is taken")
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 0 {
		t.Errorf("after it eu hears %d of others, want 0", charges(down.Totals[0].Others))
	}
	if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, peers(charge(start, 7)))); err != nil {
		t.Errorf("the right reply after it: %v", err)
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 7 {
		t.Errorf("after the right reply eu hears %d of others, want 7", charges(down.Totals[0].Others))
	}
}

// What a peer's reply says is stored like everything else, so that it outlives
// the aggregator.
func TestReplyOfAPeerIsStored(t *testing.T) {
	mem := newStore(&start)
	eu := newRegion(t, "eu", mem, "us")
	if err := eu.Sync(context.Background(), start); err != nil { // a new epoch would have all written
		t.Fatal(err)
	}
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 5))
	o, up := only(t, eu)
	if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, peers(charge(start, 3)))); err != nil {
		t.Fatal(err)
	}
	if err := eu.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, mem, 9); got != 8 {
		t.Fatalf("the store holds %d, want own 5 and the peer's 3", got)
	}
}

// A peer's clock may be wrong: slices more than a second ahead are refused in
// its replies as they are in its frames.
func TestFutureOfAPeersReplyIsRefused(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	eu.now = start.Add(time.Second) // half a second before the next slice
	e := &edge{name: "e1"}
	e.tell(eu, 9, charge(start, 5))
	o, up := only(t, eu)
	reply := replyAs(t, "us", up.Seq, peers(charge(start, 1), charge(start.Add(1500*time.Millisecond), 2), charge(start.Add(3*time.Second), 40)))
	if err := eu.Receive(eu.now, o, reply); err != nil {
		t.Fatal(err)
	}
	if down := e.tell(eu, 9); charges(down.Totals[0].Others) != 3 {
		t.Fatalf("1 now, 2 half a second ahead, 40 two seconds ahead: eu hears %d, want 3", charges(down.Totals[0].Others))
	}
}

// A region's subtotal includes what other aggregators of it have stored: each
// of them speaks for the whole region.
func TestStoredCountsAreExported(t *testing.T) {
	mem := newStore(&start)
	first, second := newRegion(t, "eu", mem, "us"), newRegion(t, "eu", mem, "us")
	us := newRegion(t, "us", newStore(&start), "eu")
	(&edge{name: "e1"}).tell(first, 9, charge(start, 5))
	(&edge{name: "e2"}).tell(second, 9, charge(start, 1))
	exchange(t, second, us) // the first has lost its way to us
	if down := (&edge{name: "u1"}).tell(us, 9); charges(down.Totals[0].Others) != 6 {
		t.Fatalf("us hears %d of eu, want 6: 5 of them were told to the other aggregator", charges(down.Totals[0].Others))
	}
}

// What an edge sends again against losses goes on to the peers, too, though
// nothing of it is new here.
func TestRefreshIsExported(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	e := &edge{name: "e1"}
	e.tell(eu, 9, charge(start, 5))
	exchange(t, eu, us)
	us = newRegion(t, "us", newStore(&start), "eu") // forgot all, and passes for the one before
	e.tell(eu, 9, charge(start, 5))
	exchange(t, eu, us)
	if down := (&edge{name: "u1"}).tell(us, 9); charges(down.Totals[0].Others) != 0 {
		t.Fatalf("us hears %d without a refresh, want 0", charges(down.Totals[0].Others))
	}
	e.send(eu, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{
		{Key: 9, Flags: deltasync.FlagRefresh, Cells: []crdt.Cell{charge(start, 5)}},
	}})
	exchange(t, eu, us)
	if down := (&edge{name: "u2"}).tell(us, 9); charges(down.Totals[0].Others) != 5 {
		t.Fatalf("us hears %d after a refresh, want 5", charges(down.Totals[0].Others))
	}
}

// A peer that has lost everything gets all subtotals again, but for those of
// rates that stay in their region.
func TestNewPeerHearsNothingOfRegionalRates(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	home := minute
	home.Regional = true
	e := &edge{name: "e1"}
	e.send(eu, deltasync.Section{Shape: home, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 5)}}}})
	e.tell(eu, 10, charge(start, 1))
	exchange(t, eu, us)
	us = newRegion(t, "us", memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 99}), "eu")
	if err := us.Sync(context.Background(), start); err != nil { // reads its own store's epoch
		t.Fatal(err)
	}
	e.tell(eu, 11, charge(start, 1)) // makes eu hear the new epoch
	exchange(t, eu, us)
	_, up := only(t, eu)
	seen := map[deltasync.Key]bool{}
	for _, sec := range up.Sections {
		if sec.Shape.Regional {
			t.Errorf("a section of a regional rate is exported: %+v", sec)
		}
		for _, d := range sec.Deltas {
			seen[d.Key] = true
		}
	}
	if seen[9] || !seen[10] || !seen[11] {
		t.Fatalf("sent again: %v, want keys 10 and 11 and not 9", seen)
	}
}
