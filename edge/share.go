package edge

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A counter of an adaptive rate is decided by this edge's share of what is left of
// the limit, as the others know it (SRB; design.md §2.4): what its allowance may be
// is limit.Grant's to say. Its owner in the region tells the share's parts with
// totals; what was charged here since the last of these comes off it.

// cluster is what a node knows of how many others there are, and how far away.
type cluster struct {
	rand     func() float64
	hurry    *atomic.Bool
	urgent   time.Duration
	interval time.Duration
	regions  atomic.Int32 // that there are; 0: neither told nor expected
	live     atomic.Int32 // of these, that the region hears of, itself counted
	joined   atomic.Bool  // whether others were told of anything, or asked, or heard, ever
	answered atomic.Bool  // likewise
	edges    atomic.Int32 // of the region, likewise
	between  atomic.Int64 // from region to region, one way, ns
	waiting  atomic.Int64 // since when the region owes an answer, as it has said nothing since; 0: it does not
	within   atomic.Int64 // from here to the region's aggregators, one way, ns
	backlog  backlog
	parted   parted
	back     atomic.Int64 // when last an answer came that was overdue
	escrow   escrow
}

// expect takes others to be there before any was heard of.
func (c *cluster) expect(regions, edges int) {
	if regions == 0 && edges == 0 {
		return
	}
	c.regions.Store(int32(max(1, regions)))
	c.edges.Store(int32(max(1, edges)))
	c.live.Store(1)
}

// heard takes note of a reply that came at now.
func (c *cluster) heard(d *deltasync.Down, now int64) {
	since := c.waiting.Swap(0)
	if since != 0 && now-since > c.late() {
		c.back.Store(now)
	}
	switch {
	case since != 0 && now-since > c.staleAfter():
		c.parted.note(since, now, max(1, d.Regions-d.LiveRegions), time.Duration(c.staleAfter()))
	case d.LiveRegions < d.Regions:
		c.parted.note(now, now, d.Regions-d.LiveRegions, time.Duration(c.staleAfter()))
	}
	c.answered.Store(true)
	c.live.Store(int32(min(d.LiveRegions, 1<<16)))
	c.regions.Store(int32(min(d.Regions, 1<<16))) // an aggregator of the build before does not say, and tells no shares: loose
	c.edges.Store(int32(min(d.LiveEdges, 1<<20)))
	c.between.Store(int64(d.Between))
	if way := (now - d.EchoSentAt - (d.SentAt - d.ReceivedAt)) / 2; way >= 0 && way < int64(time.Second) {
		before := c.within.Load()
		c.within.Store(before + (way-before)/8)
	}
}

// sent notes that a frame left.
func (c *cluster) sent(now int64) { c.waiting.CompareAndSwap(0, now) }

// silent says that the region does not answer.
func (c *cluster) silent(now int64) bool {
	since := c.waiting.Load()
	return since != 0 && now-since > c.late()
}

// alone says that an edge goes by its part of a limit: its region does not answer, or has
// not answered what it tells of that since it does again. What is pushed meanwhile is too
// low, as nothing tells which of the edge's charges are in it.
func (c *cluster) alone(now, answered int64) bool {
	back := c.back.Load()
	return c.silent(now) || back > answered && now-back < int64(10*c.interval)
}

// owed says that an answer is late enough for the region to take this edge to be silent
// before it is alone by its own clock.
func (c *cluster) owed(now int64) bool {
	since := c.waiting.Load()
	return since != 0 && now-since > c.late()/2
}

// late is how long an answer may take.
func (c *cluster) late() int64 { return 3*int64(c.interval) + 2*c.within.Load() + int64(c.urgent) }

// delay is how long it takes for the others to hear of what is charged here.
func (c *cluster) delay() time.Duration {
	return time.Duration(c.between.Load()*11/10+2*c.within.Load()) + 2*c.urgent + time.Duration(c.backlog.usual.Load())
}

// unknown is the share of a counter of which nothing was told, with so much charged.
func (c *cluster) unknown(rate *limit.Rate, mine uint64, now int64) limit.Share {
	regions := c.regions.Load()
	if rate.Scope == limit.ScopeRegion {
		regions = 1
	}
	return limit.Share{
		Omega: 1 / float64(max(1, regions)), Weight: 1 / float64(max(1, c.edges.Load())), Edges: c.count(rate),
		Mine: float64(mine), Closed: c.closed(rate, now), Delay: c.delay(), Report: c.report(), Alone: (c.silent(now) || !c.answered.Load()) && rate.OnPartition != limit.PartitionOpen, Unkept: true,
	}
}

// count is how many edges may charge what the rate limits, as far as is known: other
// regions are taken to have as many as this one.
func (c *cluster) count(rate *limit.Rate) float64 {
	edges := float64(max(1, c.edges.Load()))
	if rate.Scope == limit.ScopeRegion {
		return edges
	}
	return edges * float64(max(1, c.regions.Load()))
}

// far says that a counter is so far from its limit that nobody need be told a share of
// it, and what may be spent then with so much charged, all that its block has: little, while
// regions are cut off, by all edges together that are heard of, and of a bucket in the time that
// it takes to drain, as each side would have all of the refill. Nothing of it is urgent, so that
// others hear of it an interval later.
func (c *cluster) far(rate *limit.Rate, level limit.Level, b *block, mine uint64, now int64) (cost uint64, far bool) {
	share := c.unknown(rate, mine, now)
	share.Delay += c.interval
	g, used := rate.Grant(level, &share), rate.Rounded(level)
	if rate.OnPartition == limit.PartitionShare && rate.Scope != limit.ScopeRegion && c.live.Load() < c.regions.Load() {
		all := uint64(max(1, c.edges.Load())) * uint64(max(1, c.live.Load()))
		few := max(1, rate.Limit/20/all) // of all edges here: a region that is not heard of may have most of the limit
		if rate.Bucket() {
			used = max(used, since(&b.own, rate.SliceAt(now-int64(rate.Window))))
		}
		return min(g.Cost, crdt.SatSub(few, used)), g.Free && used < few
	}
	return g.Cost, g.Free && 4*used < rate.Limit // else it soon matters what others ask for
}

// amidCut leaves a counter that was far from its limit no more than an equal part of that before it
// has to have a share, where others who share the limit are cut off, from the region or with that
// from this edge: what it was left before that was known would be left on each side.
func (s *shard) amidCut(r *record, rate *limit.Rate, now int64) {
	c := s.cluster
	if !r.sparse() && r.block.share != nil || !s.shares(rate) || rate.OnPartition != limit.PartitionShare {
		return
	}
	if rate.Scope != limit.ScopeRegion && c.live.Load() < c.regions.Load() || c.silent(now) {
		part := uint64(math.Ceil(float64(rate.Ceiling) / c.count(rate)))
		r.allowance = min(r.allowance, crdt.SatSub(part, r.known()))
	}
}

// stale is how old news of other regions is when it comes.
func (c *cluster) stale() time.Duration {
	return time.Duration(c.between.Load()+2*c.within.Load()) + c.interval/2
}

func (c *cluster) report() time.Duration { return c.interval + 2*time.Duration(c.within.Load()) }

// shares says that counters of the rate are decided by shares.
func (s *shard) shares(rate *limit.Rate) bool {
	return rate.Consistency == limit.Adaptive && rate.Scope != limit.ScopeEdge && s.cluster.regions.Load() > 0
}

// share is what is known for a counter's share.
type share struct {
	told     deltasync.Share
	toldAt   int64   // by the aggregator's clock; 0: never
	heardAt  int64   // by the corrected clock of this machine
	answered int64   // likewise, when the region last said so knowing what was charged here
	acked    float64 // demand of this edge, as its region last acknowledged it
	asked    float64 // by which it is weighed: no more than was acknowledged before that, so that weights rise late
	own      limit.Demand
	spent    uint64      // here, since the share was made
	mine     uint64      // of that, what was charged since told was
	grant    limit.Grant // as last made
	marks    [4]mark     // when it was last told, the latest last
	aside    aside       // of a bucket
	rights   *rights     // of a strict rate; then own is all that is used of the others
}

// mark is how much was spent when that was told.
type mark struct {
	at    int64
	spent uint64
	asked float64
}

// spend notes a charge.
func (sh *share) spend(cost uint64) {
	sh.spent += cost
	sh.mine += cost
	sh.own.Ask(cost)
}

// refusedAsk notes that costs were asked for and not charged: what is charged though it
// is denied, or as it is tried, is noted with the charge, and who waits for rights asks once more.
func (n *Node) refusedAsk(c *counter, waits bool) {
	if c.lends || c.record.block.share == nil {
		return
	}
	if !c.chargedDenied() && !c.tried && !waits {
		c.record.block.share.own.Ask(c.cost)
	}
	if c.over && c.record.block.share.rights != nil && asks(c.rate) {
		n.shard(c.key).refusedRight(c.record, c.cost, waits)
	}
}

// shareWait is how long a request waits, at the least, that has room but for the
// share: until more of that may be there.
func (s *shard) shareWait(rate *limit.Rate) time.Duration {
	return min(s.cluster.interval, rate.Window)
}

// report is what the region is told of the demand, with so much charged that is not
// settled yet.
func (sh *share) report(b *block, fresh uint64, now int64) *deltasync.Demand {
	rate, since := b.rate, time.Duration(0)
	if b.memory != nil {
		since = rate.Lasted(&b.memory.exact, now)
	} else if !rate.Exact() {
		since = rate.Lasted(nil, now)
	}
	sh.own.Turn(limit.SpansOf(rate.Window), now)
	copy(sh.marks[:], sh.marks[1:])
	sh.marks[len(sh.marks)-1] = mark{now, sh.spent + fresh, sh.own.Steady(limit.SpansOf(rate.Window))}
	return &deltasync.Demand{Fast: float32(sh.own.Fast), Mid: float32(sh.own.Mid), Slow: float32(sh.own.Slow), Window: float32(sh.own.Window), Since: float32(since.Seconds())}
}

// hearShare takes in what was told for the share, in a reply to d or, without one,
// in a push.
func (s *shard) hearShare(r *record, h *hearing, d *deltasync.Delta, told *deltasync.Share) {
	if r.sparse() || r.block.share == nil { // it does not matter yet
		return
	}
	r.settle()
	sh := r.block.share
	if h.told < sh.toldAt && (d == nil || sh.toldAt-h.told < int64(time.Second)) {
		return // what came sooner was said later, or a clock was set back; pushes may wait for long where an edge is slow to take them
	}
	if d == nil && (s.cluster.owed(h.now) || s.cluster.alone(h.now, sh.answered)) {
		return // it is of those whom the region hears of: what this edge has is kept beside
	}
	sh.told, sh.toldAt, sh.heardAt = *told, h.told, h.now
	if d != nil {
		sh.answered = h.now
		for i := len(sh.marks) - 1; i >= 0; i-- {
			if m := sh.marks[i]; m.at != 0 && m.at <= h.left {
				sh.mine, sh.asked, sh.acked = sh.spent-m.spent, min(m.asked, sh.acked), m.asked
				break
			}
		}
	}
	r.until = 0
}

// confineToShare limits an allowance that was just made to the share.
func (s *shard) confineToShare(r *record, rate *limit.Rate, level limit.Level, now int64) {
	b := r.block
	est := rate.Rounded(level)
	if s.cluster.opens(rate, now) {
		if b.share != nil {
			b.share.grant = limit.Grant{}
		}
		return
	}
	if b.share == nil {
		if cost, far := s.cluster.far(rate, level, b, s.spentHere(r, now), now); far {
			r.allowance = min(r.allowance, cost)
			return
		}
		s.beginShare(r, rate, now)
	}
	s.regrant(r, rate, level, now)
	if half := b.share.grant.Half; half > 0 {
		r.allowance = min(r.allowance, half)
	} else if est < rate.Ceiling {
		s.hurry(r)
	}
}

// beginShare has a whole record be decided by its share from now on.
func (s *shard) beginShare(r *record, rate *limit.Rate, now int64) {
	b := r.block
	b.share = &share{mine: s.unheard(r, rate, now)}
	b.share.own.Ask(b.own.Get(b.slice).Charges)
	b.share.own.Turn(limit.SpansOf(rate.Window), now-int64(s.cluster.interval))
}

// regrant makes what a share grants anew, and has it be the allowance.
func (s *shard) regrant(r *record, rate *limit.Rate, level limit.Level, now int64) {
	b, sh, est := r.block, r.block.share, rate.Rounded(level)
	sh.own.Turn(limit.SpansOf(rate.Window), now)
	p := sh.parts(s.cluster, rate, est, s.spentHere(r, now), now)
	sh.aside = sh.aside.turn(rate, &p, b, est, now)
	sh.grant = rate.Grant(level, &p)
	r.allowance = sh.grant.Cost
}

// hurry has others hear soon of what was charged.
func (s *shard) hurry(r *record) {
	if r.block.share.mine > 0 && r.flags&urgent == 0 {
		s.enlist(r, pressing)
		r.flags |= urgent
		s.cluster.hurry.Store(true)
	}
}

// stretch makes room for a request that its allowance has too little for: there may
// be more than that, of which others should hear; or it may pass by chance. What is
// needed beyond the cost, as some is reserved, has to be left of the limit, and this
// edge's part of it of the share: then the allowance is for this request alone.
func (s *shard) stretch(r *record, rate *limit.Rate, cost, need uint64, now int64) {
	if r.sparse() || r.block.share == nil || r.block.punished(now) || r.block.confined() != nil && r.left(rate) < need {
		return
	}
	cost = min(cost, need)
	if rt := r.block.share.rights; rt != nil && escrows(rate) {
		if need > cost && r.left(rate) >= need && r.allowance >= crdt.SatAdd(cost, rt.part(need-cost, rate)) {
			r.allowance = need
		}
		return
	}
	if !s.shares(rate) {
		return
	}
	switch g := &r.block.share.grant; {
	case g.Cost >= need:
		r.allowance = min(g.Cost, r.left(rate))
		s.hurry(r)
	case need > cost && r.left(rate) < need:
	case need > cost && g.Spares(cost, need-cost):
		r.allowance, r.until = need, 0
		s.hurry(r)
	case s.lucky(g, cost, need):
		r.allowance, r.until = need, 0
	}
}

// lucky says that a request passes by chance, of whose limit some is reserved.
func (s *shard) lucky(g *limit.Grant, cost, need uint64) bool {
	if cost > 1 && cost > g.Left {
		return false
	}
	chance := g.Chance(cost, need-cost)
	return chance > 0 && s.cluster.rand() < chance
}

// left is what is left of the ceiling, as far as is known: more than the allowance
// where that is a share.
func (r *record) left(rate *limit.Rate) uint64 {
	if rate.Consistency < limit.Adaptive { // as of most; this much is inlined
		return r.allowance
	}
	return r.unshared(rate)
}

// unshared is left of a counter that is decided by shares, or by rights.
func (r *record) unshared(rate *limit.Rate) uint64 {
	b := r.block
	if r.flags&refused != 0 && b.denied.cost == penalty {
		return r.allowance
	}
	left := crdt.SatSub(rate.Ceiling, r.known())
	if r.scale == full && b.held != nil && !b.held.idle() { // asked of few: the block is another miss
		left = min(left, b.held.left(rate))
	}
	return max(r.allowance, left)
}

// forgetShare is how long after it was told a share is as good as unknown: its region
// has forgotten by then who asked for what of the key, if it still has a place there. Or
// the clock was set. For so long it is kept for an edge that is cut off alone, and then no
// more than one of all, by who had the key then: whoever took it over since keeps nothing.
const forgetShare = deltasync.ShareKept

// parts is the share as it stands. What nobody else has seen counts while it counts at
// all: of a key that nothing is told of, as its region is away or has no room for it,
// this edge has its part in each window anew.
func (sh *share) parts(c *cluster, rate *limit.Rate, est, local uint64, now int64) limit.Share {
	mine := min(sh.mine, local)
	age := time.Duration(now - sh.heardAt)
	if sh.toldAt == 0 || age.Abs() > forgetShare {
		p := c.unknown(rate, mine, now)
		p.Own, p.Heard = sh.own, sh.lately(rate, now)
		if rate.OnPartition == limit.PartitionOpen || !p.Alone && !c.alone(now, sh.answered) {
			return p
		}
		p.Alone, p.Mine = true, float64(local)
		if had := sh.part(c, rate); sh.toldAt != 0 && had < p.Omega*p.Weight {
			p.Omega, p.Weight = had, 1
		}
		return p
	}
	p := limit.Share{
		Omega: min(1, float64(sh.told.Omega)), Edges: c.count(rate), Unseen: float64(sh.told.Unseen), Mine: float64(mine),
		Less: ofRate(sh.told.Kept, rate), Doubt: ofRate(sh.told.Doubt, rate), Closed: c.closed(rate, now), Demand: float64(sh.told.Demand), Own: sh.own, Delay: c.delay(), Report: c.report(),
	}
	if age > max(3*c.interval, 2*c.stale()) { // by now they have
		p.Unseen = 0
	}
	p.Window = limit.Relaxed(float64(sh.told.Window), p.Demand, rate.Window, age)
	if age <= 3*c.interval {
		others := float64(est) - float64(local) // in a window
		p.Hidden = min(max(0, others/rate.Window.Seconds()), max(0, p.Demand-sh.own.Fast)) * (c.stale() + age).Seconds()
	}
	p.Fresh = age <= 3*c.interval
	// What they spent leaves the window, and is theirs again.
	whole := p.Less + ofRate(sh.told.Spent, rate)
	p.Less = max(p.Less, whole-float64(crdt.SatSub(est, local)))
	if rate.OnPartition == limit.PartitionOpen {
		p.Less = 0
	} else if c.alone(now, sh.answered) {
		p.Alone, p.Mine, p.Heard, p.Less = true, float64(local), sh.lately(rate, now), whole
	}
	p.Weight = sh.weight(c, rate)
	return p
}

// ofRate is a part of the limit as it was told, and was reckoned of the limit: of a queue, in
// which max_wait has less than that wait, so much less.
func ofRate(told uint64, rate *limit.Rate) float64 {
	return float64(told) * min(1, float64(rate.Ceiling)/float64(max(1, rate.Limit)))
}

// lately says that others were heard of within a window, so that the level tells what they
// spent.
func (sh *share) lately(rate *limit.Rate, now int64) bool {
	return sh.toldAt != 0 && time.Duration(now-sh.heardAt).Abs() < rate.Window
}

// weight is this edge's part of its region's, as was told last.
func (sh *share) weight(c *cluster, rate *limit.Rate) float64 {
	edges := float64(max(1, c.edges.Load()))
	least := limit.LeastWeight(rate.Limit, rate.Window, int(c.regions.Load()))
	return min(1, (sh.asked+least/edges)/(max(float64(sh.told.Sum), sh.asked)+least))
}

// part is this edge's part of the limit, as was told last.
func (sh *share) part(c *cluster, rate *limit.Rate) float64 {
	kept := min(1, (float64(sh.told.Kept)+float64(sh.told.Spent))/float64(max(1, rate.Limit)))
	return sh.weight(c, rate) * min(1, float64(sh.told.Omega)) * (1 - kept)
}
