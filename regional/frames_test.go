package regional_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// No frame is ever above MaxFrame, however many keys have changed, slices they have
// and regions there are, and however large the counts are; and all is told by many.
func TestFramesFit(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { framesFit(t, rand.New(rand.NewPCG(seed, 5))) })
	}
}

func framesFit(t *testing.T, rnd *rand.Rand) {
	now := start
	var log bytes.Buffer
	var peers []string
	for i := range 24 {
		peers = append(peers, fmt.Sprint("region-", i))
	}
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: peers, Lanes: 1, Incarnation: 1, Targets: regional.TargetsMesh,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), StoreTimeout: time.Minute}, newStore(&now))
	if err != nil {
		t.Fatal(err)
	}
	fits := func(what string, frame []byte) {
		t.Helper()
		if len(frame) == 0 || len(frame) > deltasync.MaxFrame {
			t.Fatalf("%s of %d bytes, want 1 to %d", what, len(frame), deltasync.MaxFrame)
		}
	}
	// Some keys of as many slices as there may be, each after as many of some slices as
	// fill half a push; all counts are as large as may be believed.
	truth := map[deltasync.Key]*crdt.Vector{}
	var boxes [5]*deltasync.Outbox // of edges, and of a region
	for i := range boxes {
		boxes[i] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxInFlight: 1})
	}
	for key := deltasync.Key(1); key <= 300; key++ {
		shape, n := minute, 10
		if key%60 == 0 {
			shape.Width, shape.Slices, n = 60*time.Millisecond, 1024, 1024
		}
		shape.Limit = 1 << 46 // an edge is believed no more than 16 times that
		last := crdt.Slice(now.UnixNano() / int64(shape.Width))
		var cells []crdt.Cell
		for i := range n {
			cells = append(cells, crdt.Cell{Slice: last - crdt.Slice(n-1-i), Charges: 1<<47/uint64(n) + rnd.Uint64N(1<<30), Refunds: 1<<45/uint64(n) - rnd.Uint64N(1<<20)})
		}
		truth[key] = &crdt.Vector{}
		for i, box := range boxes {
			told := slices.Clone(cells)
			for j := range told {
				if i == len(boxes)-1 { // of a region nothing is clamped
					told[j].Charges, told[j].Refunds = 1<<63, 1<<63
				} else {
					truth[key].Add(told[j])
				}
			}
			if !box.Put(shape, 0, deltasync.Delta{Key: key, Cells: told}) {
				t.Fatal("an outbox is full")
			}
		}
	}
	send := func(box *deltasync.Outbox, subject string, head deltasync.Up) {
		head.Incarnation, head.Lanes = 1, 1
		for up := box.Next(head); up != nil; up = box.Next(head) {
			up.SentAt = now.UnixNano()
			b, err := up.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			fits("a frame that is sent", b)
			reply := a.Handle(context.Background(), now, subject, b)
			fits("a reply", reply)
			if st := decode(t, reply).Status; st != deltasync.StatusOK {
				t.Fatalf("answered with %v", st)
			}
			box.Done(up.Seq)
		}
	}
	for i, box := range boxes[:4] {
		name := fmt.Sprint("e", i)
		send(box, deltasync.EdgeSubject("eu", 0, "p", name),
			deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: name, Node: deltasync.NodeID("eu", "p", name)})
	}
	send(boxes[4], deltasync.RegionSubject("eu", 0, "region-0"),
		deltasync.Up{Kind: deltasync.KindRegion, Region: "region-0", Name: "a1", Node: deltasync.NodeID("region-0", "", "")})
	pushed := map[deltasync.Key]bool{}
	for _, p := range a.Pushes(now) {
		fits("a push", p.Payload)
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			t.Fatal(err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				pushed[k.Key] = true
			}
		}
	}
	if len(pushed) != len(truth) {
		t.Errorf("%d keys were pushed, want %d", len(pushed), len(truth))
	}
	told := map[string]map[deltasync.Key]*crdt.Vector{}
	frames := 0
	for range 200 {
		now = now.Add(20 * time.Millisecond)
		for _, o := range a.Exports(now) {
			fits("an export", o.Payload)
			frames++
			if rnd.IntN(4) == 0 {
				a.Lost(now, o)
				continue
			}
			hear(t, told, &o)
			answer(t, a, now, o)
		}
	}
	for _, p := range peers {
		for key, want := range truth {
			got := told[p][key]
			if got == nil || fmt.Sprint(got.Cells(nil)) != fmt.Sprint(want.Cells(nil)) {
				t.Fatalf("%s was told %v of key %d, want %v", p, got, key, want.Cells(nil))
			}
		}
	}
	if frames < 2*len(peers) || log.Len() > 0 {
		t.Errorf("%d frames to %d regions, log: %s", frames, len(peers), &log)
	}
}

// A key of as many cells as there may be goes in a push of its own where one before has
// filled nearly half: together they would be above MaxFrame, and the push be dropped. Only
// what regions tell is as large, as nothing of it is clamped.
func TestLargestKeysGoInPushesOfTheirOwn(t *testing.T) {
	var log bytes.Buffer
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), StoreTimeout: time.Minute}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	eu, e := &region{Aggregator: a, t: t, name: "eu", now: start}, &edge{name: "e1"}
	shape := minute
	shape.Width, shape.Slices = 60*time.Millisecond, 1024
	last := crdt.Slice(start.UnixNano() / int64(shape.Width))
	largest := func(n int) (cells []crdt.Cell) {
		for i := range n {
			cells = append(cells, crdt.Cell{Slice: last - crdt.Slice(n-1-i), Charges: 1 << 63, Refunds: 1 << 63})
		}
		return cells
	}
	want := map[deltasync.Key]int{1: 1024 + 290, 2: 1024 + 1024} // cells
	for key := deltasync.Key(1); key <= 2; key++ {
		e.send(eu, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: key, Cells: []crdt.Cell{{Slice: last, Charges: 1}}}}})
		o, up := only(t, eu)
		var totals []deltasync.Totals // of one key: a reply for both would be too large
		for _, d := range up.Sections[0].Deltas {
			totals = append(totals, deltasync.Totals{})
			if d.Key == key {
				totals[len(totals)-1] = deltasync.Totals{Peers: largest(1024), Own: largest(want[key] - 1024)}
			}
		}
		if err := eu.Receive(start, o, replyAs(t, "us", up.Seq, totals...)); err != nil {
			t.Fatal(err)
		}
	}
	got := map[deltasync.Key]int{}
	for _, p := range eu.Pushes(start) {
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			t.Fatalf("a push of %d bytes: %v", len(p.Payload), err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				got[k.Key] = len(k.Others) + len(k.Peers)
			}
		}
	}
	if !maps.Equal(got, want) || log.Len() > 0 {
		t.Errorf("cells that were pushed, by key: %v, want %v; log: %s", got, want, &log)
	}
}

// hear takes in what a peer is told.
func hear(t *testing.T, told map[string]map[deltasync.Key]*crdt.Vector, o *regional.Outgoing) {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		t.Fatal(err)
	}
	if told[o.Peer] == nil {
		told[o.Peer] = map[deltasync.Key]*crdt.Vector{}
	}
	for _, s := range up.Sections {
		for _, d := range s.Deltas {
			v := told[o.Peer][d.Key]
			if v == nil {
				v = &crdt.Vector{}
				told[o.Peer][d.Key] = v
			}
			for _, c := range d.Cells {
				v.Join(c)
			}
		}
	}
}

// answer has a peer take all of an export, and know nothing itself.
func answer(t *testing.T, a *regional.Aggregator, now time.Time, o regional.Outgoing) {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		t.Fatal(err)
	}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: o.Peer, Node: deltasync.NodeID(o.Peer, "", ""), Seq: o.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: now.UnixNano(), SentAt: now.UnixNano(), StoreEpoch: 1, Store: 1}
	for _, s := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(s.Deltas))...)
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Receive(now, o, b); err != nil {
		t.Fatal(err)
	}
}
