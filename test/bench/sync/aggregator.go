package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// A merge is one slice of one replica of one key; a flush is one key of a frame,
// with so many slices.

// handling is what an aggregator with its store in memory pays.
type handling struct {
	edges, slices int     // that tell of each key in turn, and slices in each flush
	perFlush      float64 // ns of processor
	bytes         float64 // of replies, a flush
}

func (h handling) flushes() float64 { return 1e9 / h.perFlush }
func (h handling) merges() float64  { return h.flushes() * float64(h.slices) }

// handlings are those of P10, and those of P11 by the number of edges.
var handlings = []handling{{edges: 2, slices: 1}, {edges: 2, slices: 5}, {edges: 1, slices: 1}, {edges: 10, slices: 1}, {edges: 100, slices: 1}}

const perFrame = 500 // keys

var minute = deltasync.Shape{Generation: 7, Width: 1500 * time.Millisecond, Slices: 40, Limit: 1e9}

// hub is an aggregator that edges tell of the same keys in turn.
type hub struct {
	*regional.Aggregator
	handling
	now     time.Time
	seq     uint64
	count   uint64
	flushes int
	replies int // bytes
}

// round has every edge tell of new counts of so many keys, and is what that took
// of a processor.
func (h *hub) round(keys int) (spent time.Duration, err error) {
	h.count++
	last := crdt.Slice(h.now.UnixNano() / int64(minute.Width))
	for e := range h.edges {
		name := fmt.Sprint("e", e)
		for first := 0; first < keys; first += perFrame {
			deltas := make([]deltasync.Delta, min(perFrame, keys-first))
			for i := range deltas {
				deltas[i].Key = keyOf(first + i)
				for s := range h.slices {
					deltas[i].Cells = append(deltas[i].Cells, crdt.Cell{Slice: last - crdt.Slice(h.slices-1-s), Charges: h.count})
				}
			}
			h.seq++
			subject, payload, err := frame(h.now, name, h.seq, minute, deltas)
			if err != nil {
				return 0, err
			}
			at := processor()
			reply := h.Handle(context.Background(), h.now, subject, payload)
			spent += processor() - at
			var d deltasync.Down
			if err := d.UnmarshalBinary(reply); err != nil || d.Status != deltasync.StatusOK || len(d.Totals) != len(deltas) {
				return 0, fmt.Errorf("the aggregator answers %v with %d totals for %d keys (%w)", d.Status, len(d.Totals), len(deltas), err)
			}
			h.flushes += len(deltas)
			h.replies += len(reply)
		}
	}
	return spent, nil
}

// keyOf spreads keys as hashes do.
func keyOf(i int) deltasync.Key { return deltasync.Key(uint64(i+1) * 0x9e3779b97f4a7c15) }

func measureAggregator(o options, f *findings) error {
	hubs := make([]*hub, len(handlings))
	for i := range handlings {
		h := &hub{handling: handlings[i], now: time.Unix(1_790_000_000, 0).UTC()}
		store := memstore.New(memstore.Config{Now: func() time.Time { return h.now }})
		var err error
		if h.Aggregator, err = regional.New(regional.Config{Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, store); err != nil {
			return err
		}
		if _, err := h.round(o.keys / h.edges); err != nil { // the keys are new once
			return err
		}
		hubs[i] = h
	}
	samples := make([][]float64, len(hubs))
	for range o.rounds {
		for i, h := range hubs {
			h.flushes, h.replies = 0, 0
			spent, err := h.round(o.keys / h.edges)
			if err != nil {
				return err
			}
			samples[i] = append(samples[i], float64(spent)/float64(h.flushes))
		}
	}
	for i, h := range hubs {
		h.perFlush, h.bytes = median(samples[i]), float64(h.replies)/float64(h.flushes)
		f.handlings = append(f.handlings, h.handling)
	}
	return nil
}
