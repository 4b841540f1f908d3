package edge

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// ReceiveHot takes in a push: totals of keys near their limit, every edge's
// counts included. Of keys that are not live here the view keeps them, so that
// a key spread thinly over many edges finds its limit used up at its first
// request.
func (n *Node) ReceiveHot(now time.Time, payload []byte) error {
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(payload); err != nil {
		n.stats.unread(err, &n.stats.badPushes)
		return fmt.Errorf("push: %w", err)
	}
	if hot.Region != n.cfg.Region {
		n.stats.foreign.Add(1)
		return fmt.Errorf("push: it is of region %q, want %q", hot.Region, n.cfg.Region)
	}
	n.stats.pushes.Add(1)
	n.cluster.joined.Store(true)
	n.hearAll(n.clock.Present(now), &hot)
	return nil
}

// hearAll takes in the totals of a push, and says of how many keys they are.
func (n *Node) hearAll(now int64, hot *deltasync.Hot) (keys int) {
	for i := range hot.Sections {
		sec := &hot.Sections[i]
		for k := range sec.Keys {
			n.hearHot(now, hot.SentAt, &sec.Shape, &sec.Keys[k], uint16(min(hot.LiveRegions, 1<<16-1)))
		}
		keys += len(sec.Keys)
	}
	return keys
}

// remember joins totals of a key that is not live here to what the view has of
// it, and returns both, and whether that was something: counts of ours that were forgotten unsent
// are only there. The key's shard is locked.
func (n *Node) remember(now int64, shape *deltasync.Shape, hot *deltasync.HotKey, cells []crdt.Cell, regions uint16) (all []crdt.Cell, carry crdt.Carry, known bool) {
	if n.handedOn(n.shard(hot.Key), hot.Key, shape.Generation) {
		return cells, hot.Carry, false
	}
	var both crdt.Vector
	seen := n.seen(hot.Key)
	for _, c := range seen.Cells {
		both.Join(c)
	}
	for _, c := range cells {
		both.Join(c)
	}
	until := max(seen.Until, hot.Until)
	all, carry = both.Cells(nil), seen.Carry.Later(hot.Carry)
	n.cfg.View.Set(hot.Key, Totals{Cells: all, Carry: carry, Until: until, Heard: now, Regions: regions, Here: seen.Here},
		max(n.countsFor(shape), time.Duration(min(until-now, int64(limit.MaxWindow)))))
	return all, carry, len(seen.Cells) > 0
}

// countsFor is how long what is told of keys of a shape may count here.
func (n *Node) countsFor(shape *deltasync.Shape) time.Duration {
	counts := shape.Window() + shape.Width
	if rates := n.rates.Load(); rates != nil {
		if rate := (*rates)[shape.Generation]; rate != nil {
			counts = max(counts, rate.Lingers(), rate.Memory)
		}
	}
	return counts
}

// tellsAll says that cells, which were pushed, are all that the region has of a key, and not what changed.
func tellsAll(rate *limit.Rate, shape *deltasync.Shape, told int64, cells []crdt.Cell) bool {
	return rate.Bucket() || len(cells) > 0 && cells[0].Slice < rate.SliceAt(shape.PushedFrom(told))
}

func (n *Node) hearHot(now, told int64, shape *deltasync.Shape, hot *deltasync.HotKey, regions uint16) {
	s := n.shard(hot.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	cells := hot.Peers
	if !shape.Regional {
		cells = s.plus(hot.Others, hot.Peers)
	}
	r := s.find(hot.Key)
	if r == nil {
		rate := n.ofShape(shape)
		whole := rate != nil && tellsAll(rate, shape, told, cells)
		all, carry, known := n.remember(now, shape, hot, cells, regions)
		if rate != nil {
			s.heed(hot.Key, rate, all, carry, known, whole, now)
		}
		return
	}
	// What the region holds of us is at most what we hold ourselves, so the
	// rest is at most what others counted: still a lower bound.
	s.whole(r)
	r.settle()
	for i := range cells {
		cells[i] = cells[i].Less(r.block.own.Get(cells[i].Slice))
	}
	if held := r.block.held; held != nil && !tellsAll(r.block.rate, shape, told, cells) {
		held.covered = false // a view that has forgotten the rest has this alone, once the record is forgotten
	}
	h, heard := &hearing{now: now, regions: regions, told: told}, r.heard
	if n.learn(s, r, h, cells, hot.Carry); s.cluster.silent(now) {
		r.heard = heard // what the region does not know of us hides as much of others
	}
	if hot.Share != nil && s.shares(r.block.rate) {
		s.hearShare(r, h, nil, hot.Share)
	}
	s.obey(r, hot.Until, now)
}
