package main

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/sync"
)

// region is an aggregator that keeps, by life, what the edge told of the keys
// that came before the flood: what it tells one that was forgotten and comes
// back.
type region struct {
	keep map[deltasync.Key]map[uint32]*crdt.Vector
}

// mostKept bounds what the region keeps: it shares the process with the edge.
const mostKept = 22_000

func newRegion() *region { return &region{keep: map[deltasync.Key]map[uint32]*crdt.Vector{}} }

// answer takes in a frame and replies to it.
func (r *region) answer(n *edge.Node, now time.Time, f edge.Outgoing) error {
	var up deltasync.Up
	if err := up.UnmarshalBinary(f.Payload); err != nil {
		return fmt.Errorf("read the edge's frame: %w", err)
	}
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: up.Region, Node: deltasync.NodeID(up.Region, "", ""), Seq: up.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: now.UnixNano(), SentAt: now.UnixNano(), StoreEpoch: 1, LiveEdges: 1, LiveRegions: 1,
	}
	for i := range up.Sections {
		for _, d := range up.Sections[i].Deltas {
			down.Totals = append(down.Totals, r.merge(d, up.Sections[i].Life))
		}
	}
	payload, err := down.AppendBinary(nil)
	if err != nil {
		return fmt.Errorf("answer %d keys: %w", len(down.Totals), err)
	}
	return n.Receive(now, f.Lane, payload)
}

// merge joins a delta and returns what other lives of the edge counted.
func (r *region) merge(d deltasync.Delta, life uint32) (t deltasync.Totals) {
	lives := r.keep[d.Key]
	if lives == nil {
		if len(r.keep) >= mostKept {
			return t
		}
		lives = map[uint32]*crdt.Vector{}
		r.keep[d.Key] = lives
	}
	own := lives[life]
	if own == nil {
		own = &crdt.Vector{}
		lives[life] = own
	}
	for _, c := range d.Cells {
		own.Join(c)
	}
	var others crdt.Vector
	for l, v := range lives {
		if l != life {
			for i := range v.Len() {
				others.Add(v.At(i))
			}
		}
	}
	t.Peers = others.Cells(nil)
	return t
}
