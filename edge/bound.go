package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// How far a limit may be exceeded is worked out only where somebody asks: a request
// with Bounds, or the sample that metrics are made of. It is limit.Bound's to say; here
// is what this edge knows for it. To ask changes nothing.

// tellBound fills in the bound of the counter that decided, as the request leaves it.
func (n *Node) tellBound(now int64, req *limit.Request, counters []counter, d *limit.Decision) {
	for i := range counters {
		if c := &counters[i]; c.rate == d.Rate && c.rule == d.Rule && !c.lends {
			req.Bound = n.shard(c.key).bound(c.record, c.rate, c.cost, now)
			return
		}
	}
}

// bound is how far the limit of a live record may be exceeded, by requests of a cost.
func (s *shard) bound(r *record, rate *limit.Rate, cost uint64, now int64) limit.Bound {
	if rate.Scope == limit.ScopeEdge || rate.Consistency == limit.Strict { // none, be it that nobody was heard
		return limit.Bound{Known: true}
	}
	o, ok := s.cluster.outlook(rate, r.heard, now)
	if !ok {
		return limit.Bound{}
	}
	o.Cost = cost
	var none crdt.Vector
	o.Own, o.Others, o.Fresh = &none, &none, crdt.Cell{Slice: r.block.slice, Charges: r.fresh}
	if r.heard != 0 && rate.Scope == limit.ScopeGlobal {
		o.Lost = max(0, o.Regions-int(r.regions&mostRegions))
	}
	if rate.Bucket() {
		s.cluster.keptOf(&o, now)
	}
	level := limit.Level{Whole: r.fresh}
	if !r.sparse() {
		o.Own, o.Others = &r.block.own, &r.block.others
		level = s.standing(r, rate, now)
	}
	if s.shares(rate) && !s.cluster.opened(rate, now) {
		share := s.cluster.unknown(rate, s.spentHere(r, now), now)
		o.Share = &share
		if !r.sparse() && r.block.share != nil {
			share = r.block.share.parts(s.cluster, rate, rate.Rounded(level), s.spentHere(r, now), now)
			r.block.share.aside.turn(rate, &share, r.block, rate.Rounded(level), now)
		}
	}
	return rate.Bound(level, &o, now)
}

// standing is the level of a record, what was charged since it was folded counted; it
// settles nothing.
func (s *shard) standing(r *record, rate *limit.Rate, now int64) (level limit.Level) {
	if b := r.block; b.memory == nil {
		level = rate.Used(s.sums(b), crdt.Carry{}, now)
	} else {
		level = rate.Measure(&b.memory.exact, s.heard(b), s.sums(b), b.memory.carry, now)
	}
	level.Whole = crdt.SatAdd(level.Whole, r.fresh)
	return level
}

// outlook is what is known of the others, one of whose counters was heard of at some
// time; ok is false where nobody has told yet how many there are.
func (c *cluster) outlook(rate *limit.Rate, heard, now int64) (o limit.Outlook, ok bool) {
	o.Regions, o.Edges = int(c.regions.Load()), max(1, int(c.edges.Load()))
	if o.Regions < 1 {
		return o, false
	}
	way := time.Duration(2 * c.within.Load())
	o.Blur = c.urgent / 2 // one is told a hurry later than another, as it comes
	if rate.Scope == limit.ScopeRegion {
		o.Regions = 1
	} else {
		between := time.Duration(c.between.Load())
		if way += between * 11 / 10; o.Regions > limit.MeshRegions {
			way += between * 11 / 10 // by way of a home
			o.Blur += between/10 + c.urgent
		}
		o.Blur += between / 10 // links differ by that from one frame to the next
	}
	lag := c.backlog.most(now)
	o.Ahead = way + c.interval + c.urgent + lag
	o.Blur += lag
	o.Hidden = rate.Window
	if c.silent(now) {
		o.Mute = time.Duration(now-c.waiting.Load()) + c.interval
	}
	if heard != 0 {
		age := time.Duration(max(0, now-heard))
		o.Hidden = min(rate.Window, age+o.Ahead)
		o.Blur += min(age, rate.Window) * 3 / 4 // a picture that was lost on its way, as others' was not
	}
	return o, true
}
