package regional

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// An edge that takes its leave says so to whoever serves its lanes. Whoever takes a lane over
// a moment later has not heard it, and would keep for it what one has that was cut off (see
// absent.go). So it is noted in the store, as ties are: as if it were a count of a key.

const (
	// leaversWidth and leaversSlices are how long it is known, which is for longer than who
	// left could be sought: deltasync.ShareKept.
	leaversWidth  = 2 * time.Second
	leaversSlices = 15
)

// leavers is which edges took their leave lately.
type leavers struct {
	mu     sync.Mutex           // guards what follows; it is not held while the store is waited for
	left   map[uint64]departure // by node, of mostAskers at the most
	sought bool                 // somebody has to know of those that others heard
	read   int64                // when they were read
}

// departure is an edge's, of an incarnation.
type departure struct {
	incarnation uint64
	at          int64
	stored      bool
}

// note takes down that an edge took its leave. k.mu is held.
func (k *leavers) note(node uint64, d departure) {
	if was, known := k.left[node]; known && was.incarnation >= d.incarnation || !known && len(k.left) >= mostAskers {
		return
	}
	if k.left == nil {
		k.left = map[uint64]departure{}
	}
	k.left[node] = d
}

// leaves takes down that an edge says that it takes its leave.
func (k *leavers) leaves(up *deltasync.Up, now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(up.Node, departure{up.Incarnation, now, false})
}

// knows says that all are known who took their leave by an instant, or has that read.
func (k *leavers) knows(by, now int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sought = k.sought || k.read < by || k.read > now
	return !k.sought
}

// has says that an edge took its leave.
func (k *leavers) has(node, incarnation uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, ok := k.left[node]
	return ok && d.incarnation >= incarnation
}

// leaversItem names where they are kept: no edge makes this of a key of its own.
func (a *Aggregator) leaversItem() Item {
	return Item{Key: deltasync.Key(deltasync.NodeID(a.cfg.Region, "", "leavers")), Width: leaversWidth, Slices: leaversSlices}
}

// keepLeavers notes who took their leave, and reads who others heard, if that is asked for.
func (a *Aggregator) keepLeavers(ctx context.Context, now int64) error {
	k, it, ask := &a.leavers, a.leaversItem(), a.store.Load
	k.mu.Lock()
	for node, d := range k.left {
		switch {
		case now-d.at >= int64(leaversWidth*leaversSlices) || d.at > now+int64(maxAhead):
			delete(k.left, node)
		case !d.stored:
			ask = a.store.Merge
			it.Vectors = append(it.Vectors, Vector{Source: FromEdge, Replica: crdt.Replica{Node: node, Incarnation: d.incarnation << deltasync.LifeBits},
				Cells: []crdt.Cell{{Slice: floorDiv(d.at, leaversWidth), Charges: 1}}})
		}
	}
	needless := len(it.Vectors) == 0 && !k.sought
	k.mu.Unlock()
	if needless {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	answer, err := ask(ctx, []Item{it})
	if err != nil || len(answer) != 1 {
		return fmt.Errorf("who took their leave: %d answers: %w", len(answer), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range it.Vectors {
		if d := k.left[v.Replica.Node]; d.incarnation == v.Replica.Incarnation>>deltasync.LifeBits {
			d.stored = true
			k.left[v.Replica.Node] = d
		}
	}
	for _, v := range answer[0].Vectors {
		if n := len(v.Cells); n > 0 && v.Source == FromEdge {
			k.note(v.Replica.Node, departure{v.Replica.Incarnation >> deltasync.LifeBits, int64(v.Cells[n-1].Slice) * int64(leaversWidth), true})
		}
	}
	k.read, k.sought = now, false
	return nil
}
