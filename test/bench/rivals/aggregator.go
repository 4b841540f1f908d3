package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/sync"
)

// reply is the answer to a frame: for every key of it what totals says others
// counted.
func reply(out edge.Outgoing, now time.Time, totals func(deltasync.Delta) deltasync.Totals) ([]byte, error) {
	var up deltasync.Up
	if err := up.UnmarshalBinary(out.Payload); err != nil {
		return nil, fmt.Errorf("read the edge's frame: %w", err)
	}
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: up.Region, Node: deltasync.NodeID(up.Region, "", ""), Seq: up.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: now.UnixNano(), SentAt: now.UnixNano(),
		StoreEpoch: 1, LiveEdges: 2, LiveRegions: 2, Regions: 2, Between: 80 * time.Millisecond,
	}
	for i := range up.Sections {
		for _, d := range up.Sections[i].Deltas {
			down.Totals = append(down.Totals, totals(d))
		}
	}
	payload, err := down.AppendBinary(nil)
	if err != nil {
		return nil, fmt.Errorf("answer %d keys: %w", len(down.Totals), err)
	}
	return payload, nil
}

// introduce has an edge hear that there are others: until then its rates are as loose ones.
// It counts one of a key that nobody else asks for.
func introduce(n *edge.Node, path string, now time.Time) error {
	ask(n, n.Rules().Only(), now, path, "the first that anybody asks for")
	frames, err := settle(n, now.Add(time.Second), nobody)
	if err == nil && frames == 0 {
		err = errors.New("the edge told nothing, and heard of nobody")
	}
	return err
}

// settle flushes and answers until the edge has nothing more to tell, and
// returns the number of frames.
func settle(n *edge.Node, now time.Time, totals func(deltasync.Delta) deltasync.Totals) (frames int, err error) {
	for {
		out := n.Flush(now)
		if len(out) == 0 {
			return frames, nil
		}
		for _, o := range out {
			payload, err := reply(o, now, totals)
			if err != nil {
				return frames, err
			}
			if err := n.Receive(now, o.Lane, payload); err != nil {
				return frames, fmt.Errorf("take in the answer: %w", err)
			}
			frames++
		}
	}
}

// nobody else counted anything.
func nobody(deltasync.Delta) deltasync.Totals { return deltasync.Totals{} }

// others counted as much as we say, in as many of the newest slices.
func others(charges uint64, slices int) func(deltasync.Delta) deltasync.Totals {
	return func(d deltasync.Delta) (t deltasync.Totals) {
		if len(d.Cells) == 0 {
			return t
		}
		last := d.Cells[len(d.Cells)-1].Slice
		for s := last - crdt.Slice(slices-1); s <= last; s++ {
			t.Peers = append(t.Peers, crdt.Cell{Slice: s, Charges: charges})
		}
		return t
	}
}
