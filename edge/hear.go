package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// hear joins a reply's totals for one key. They leave out the counts stored
// under this life, so they are all others', earlier lives of ours included. What
// is not live here any more, as it was only asked for, the view remembers.
func (n *Node) hear(h *hearing, d *deltasync.Delta, life uint32, shape *deltasync.Shape, totals *deltasync.Totals) {
	s := n.shard(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.living(d.Key, life)
	if r == nil {
		if s.find(d.Key) == nil {
			n.rememberReply(s, h, d, shape, totals)
			n.giveBackHeard(s, nil, d.Key, h.left, h.now)
		}
		return
	}
	if d.Tells() && r.flags&owed == 0 && r.sentAt() != 0 && h.left-r.sentBy() > int64(unexported)/2 {
		s.sentLate(r, h.left)
	}
	b := r.block
	cells := totals.Peers
	if b.rate.Scope == limit.ScopeGlobal && len(totals.Others) > 0 {
		cells = s.plus(totals.Others, totals.Peers)
	}
	n.learn(s, r, h, cells, totals.Carry)
	if totals.Share != nil && s.shares(r.block.rate) { // what was learnt may have given it another block
		s.hearShare(r, h, d, totals.Share)
	}
	if !r.sparse() && (d.Heard == 0 || r.block.heardAt != 0) { // else it is what changed since a former life of the record had asked
		r.block.heardAt = h.left
		later := r.block.held == nil || h.left >= r.block.held.born // asked, than what it is held by was told
		s.excuse(r, h.now, later && h.stored && (h.anew == 0 || lapsed(h.now, h.anew, r.block.rate.Lingers())))
	}
	s.obey(r, totals.Until, h.now)
	n.giveBackHeard(s, r, d.Key, h.left, h.now)
}

// rememberReply is remember of a reply; s.mu is held. Where the key had been heard of when it was
// asked for, that is what changed since: a view that has forgotten the rest does not have all that
// the key is blocked for.
func (n *Node) rememberReply(s *shard, h *hearing, d *deltasync.Delta, shape *deltasync.Shape, totals *deltasync.Totals) {
	cells := totals.Peers
	if !shape.Regional {
		cells = s.plus(totals.Others, totals.Peers)
	}
	if len(cells) > 0 || totals.Until > h.now || !totals.Carry.Zero() {
		_, _, known := n.remember(h.now, shape, &deltasync.HotKey{Key: d.Key, Totals: *totals}, cells, h.regions)
		if was := s.blocked.exact(d.Key); was != nil && d.Heard != 0 && !known {
			was.what &^= covered
		}
	}
}

// learn joins what others counted. If that rose, the next decision folds, and
// eviction and the sweep see at once how much of the limit is used.
func (n *Node) learn(s *shard, r *record, h *hearing, cells []crdt.Cell, carry crdt.Carry) {
	b := r.block
	cells = h.counting(b.rate, cells)
	if r.sparse() {
		if !slices.ContainsFunc(cells, func(c crdt.Cell) bool { return !c.Zero() }) {
			r.hears(h.now, h.regions)
			return
		}
		b = s.whole(r)
	}
	r.settle()
	rose := b.others.JoinAll(cells)
	// cells were in scratch that inherit may use: they are joined by now.
	if s.inherit(b, carry, h.now) {
		rose = true
	}
	r.hears(h.now, h.regions)
	if rose {
		b.cede(h.now)
		r.until = 0
		r.allowance = min(r.allowance, b.rate.Room(s.measure(r, h.now))) // it tells what merged has no room for
		s.excuse(r, h.now, false)
		s.weigh(r.block)
	}
}

// maxAhead is how far ahead of our clock a slice may be and still count.
const maxAhead = time.Second

// plus is the sums by slice of two ascending lists, in the shard's scratch.
func (s *shard) plus(a, b []crdt.Cell) []crdt.Cell {
	s.scratch = s.scratch[:0]
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || i < len(a) && a[i].Slice < b[j].Slice:
			s.scratch = append(s.scratch, a[i])
			i++
		case i == len(a) || b[j].Slice < a[i].Slice:
			s.scratch = append(s.scratch, b[j])
			j++
		default:
			s.scratch = append(s.scratch, a[i].Plus(b[j]))
			i++
			j++
		}
	}
	return s.scratch
}

// fetchAhead is how many keys ahead a record is brought near while a reply is
// heard: it was last seen when its delta was drained.
const fetchAhead = 4

// hearing is what all that is heard with a reply or a push has in common.
type hearing struct {
	now     int64
	left    int64 // when that left that the reply is to
	regions uint16
	told    int64 // when it was said, by the aggregator's clock
	stored  bool  // by an aggregator that has its store, and knows it
	anew    int64 // when that was first another one than before; 0: never

	// Slices of rate from reach to horizon count: keys of one come in rows.
	rate           *limit.Rate
	reach, horizon crdt.Slice
}

// counting is the part of cells, which ascend, that counts.
func (h *hearing) counting(rate *limit.Rate, cells []crdt.Cell) []crdt.Cell {
	if h.rate != rate {
		h.rate, h.reach, h.horizon = rate, rate.Reach(h.now), rate.SliceAt(h.now+int64(maxAhead))
	}
	for len(cells) > 0 && cells[0].Slice < h.reach {
		cells = cells[1:]
	}
	for len(cells) > 0 && cells[len(cells)-1].Slice > h.horizon {
		cells = cells[:len(cells)-1]
	}
	return cells
}
