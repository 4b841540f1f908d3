package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// Between two intervals only lanes leave that have something urgent.
func TestUrgentExportsLeaveTheOthers(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	e.send(eu, hits(start, 1, 1))
	if out := eu.ExportsUrgent(start); len(out) != 0 {
		t.Errorf("%d frames leave, and nothing is urgent", len(out))
	}
	urgent := hits(start, 60, 2)
	urgent.Deltas[0].Flags = deltasync.FlagUrgent
	e.send(eu, urgent)
	if out := eu.ExportsUrgent(start); len(out) != 1 {
		t.Errorf("%d frames leave, want the one of the lane that has something urgent", len(out))
	}
}

// A link carries no more than its budget, a second saved up and a frame, and the
// other regions' links are their own.
func TestExportsKeepTheirBudget(t *testing.T) {
	alone.Mark(t)
	const rate = 10_000
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us", "ap"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Budget: rate}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	eu, e := &region{Aggregator: a, t: t, name: "eu", now: start, store: newStore(&start)}, &edge{name: "e1"}
	sent, waited := map[string]int{}, map[string]bool{}
	for i := range 200 { // 20 s
		eu.now = eu.now.Add(100 * time.Millisecond)
		e.send(eu, hits(start, uint64(1+i), upTo(2000)...))
		out := eu.Exports(eu.now)
		for _, o := range out {
			sent[o.Peer] += len(o.Payload)
			eu.Lost(eu.now, o)
		}
		for _, peer := range []string{"us", "ap"} {
			waited[peer] = waited[peer] || len(out) == 0
		}
	}
	for _, peer := range []string{"us", "ap"} {
		if most := 21*rate + 2*deltasync.MaxFrame; sent[peer] > most || sent[peer] < 15*rate || !waited[peer] {
			t.Errorf("%d bytes to %s in 20 s, want about %d, and frames that wait", sent[peer], peer, 20*rate)
		}
	}
	if _, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Budget: -1}, newStore(&start)); err == nil {
		t.Error("a budget below zero is taken")
	}
}

// Where the budget is too small for all lanes each has its turn: a lane that is always
// asked first, and always has something to tell, would leave nothing for the others.
func TestLanesTakeTurnsInABudget(t *testing.T) {
	const lanes, seconds = 4, 30
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: lanes, Incarnation: 1, StoreTimeout: time.Second,
		Budget: 1000}, newStore(&start)) // a frame takes about as much, and its reply
	if err != nil {
		t.Fatal(err)
	}
	keys := make([][]deltasync.Key, lanes)
	for i := range uint64(20 * lanes) {
		key := deltasync.Key(i<<32 + 1)
		keys[key.Lane(lanes)] = append(keys[key.Lane(lanes)], key)
	}
	now := start
	var told [lanes]int
	for i := range seconds * 10 {
		now = now.Add(100 * time.Millisecond)
		for lane := range lanes {
			up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: deltasync.NodeID("eu", "p", "e1"), Incarnation: 1,
				Lane: lane, Lanes: lanes, Seq: uint64(i + 1), SentAt: now.UnixNano(), Sections: []deltasync.Section{hits(start, uint64(i+1), keys[lane]...)}}
			b, err := up.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if down := decode(t, a.Handle(t.Context(), now, deltasync.EdgeSubject("eu", lane, "p", "e1"), b)); down.Status != deltasync.StatusOK {
				t.Fatalf("lane %d: %v", lane, down.Status)
			}
		}
		for _, o := range a.Exports(now) {
			var up deltasync.Up
			if err := up.UnmarshalBinary(o.Payload); err != nil {
				t.Fatal(err)
			}
			if len(up.Sections) > 0 {
				told[o.Lane]++
			}
			answer(t, a, now, o)
		}
	}
	frames := 0
	for _, n := range told {
		frames += n
	}
	if frames > lanes*10*seconds/4 {
		t.Fatalf("%d frames with counts in %d s, by lane %v: the budget was enough for all", frames, seconds, told)
	}
	for lane, n := range told {
		if n < frames/lanes*3/4 || n == 0 {
			t.Errorf("%d of %d frames with counts are of lane %d, want as many as of each: %v", n, frames, lane, told)
		}
	}
}
