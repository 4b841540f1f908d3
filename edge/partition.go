package edge

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What a rate does while this edge is cut off from those who share its limit is its
// on_partition. Shares are kept as soon as an answer is overdue (cluster.silent), which
// costs little if it was merely late. Here is the rest: to admit what others may admit
// too, or to deny everything, takes somebody who has been away for longer.

// staleAfter is how long a region owes an answer before an edge is cut off from it.
func (c *cluster) staleAfter() int64 { return int64(max(time.Second, 10*c.interval)) }

// cutOff says that the edge hears nothing of others who share the rate's limit: nobody
// answers it, or has yet, or its region hears of no more than half of the regions. So
// of the two sides of a cut one at the most is not cut off. An edge that never asked
// anybody is alone by intent.
func (c *cluster) cutOff(rate *limit.Rate, now int64) bool {
	if rate.Scope == limit.ScopeEdge {
		return false
	}
	if since := c.waiting.Load(); since != 0 && (!c.answered.Load() || now-since > c.staleAfter()) {
		return true
	}
	regions := c.regions.Load()
	return rate.Scope != limit.ScopeRegion && regions > 1 && 2*c.live.Load() <= regions
}

// opens says that counters of the rate take no heed of shares, as others cannot be
// heard of.
func (c *cluster) opens(rate *limit.Rate, now int64) bool {
	return rate.OnPartition == limit.PartitionOpen && c.cutOff(rate, now)
}

// unheard is how much of what this edge spent of a counter the others may not have heard
// of, where its share is made only now: all of it, but for a limit that was open for a
// while, which may hold a window of that. Its region has answered all of it then, and long
// ago; the region was told nothing of shares meanwhile.
func (s *shard) unheard(r *record, rate *limit.Rate, now int64) uint64 {
	c, b := s.cluster, r.block
	answered := r.flags&(charged|owed|again) == 0 && b.fullAt != 0 && r.heard >= b.fullAt && now-b.fullAt > int64(c.delay()+c.report())
	if answered && c.opened(rate, now) && c.live.Load() == c.regions.Load() {
		return 0
	}
	return s.spentHere(r, now)
}

// opened says that counters of the rate may hold what was admitted with no heed of
// shares, here or elsewhere: some cannot be heard of, or could not a window ago.
func (c *cluster) opened(rate *limit.Rate, now int64) bool {
	return rate.OnPartition == limit.PartitionOpen && (c.cutOff(rate, now) || c.parted.last() > now-int64(rate.Window)-c.staleAfter())
}

// parted is when regions did not all hear of each other, or this edge's own owed it an
// answer for long: the last time, and for how long before that, as what came in too much
// may not have drained since.
type parted struct {
	mu           sync.Mutex
	began, ended int64 // 0: never
	before       int64 // that it lasted before it began again, ns
	lost         int   // regions, at the most
}

// surelyDrained is after how long nothing is thought to be left of it.
const surelyDrained = 10 * time.Minute

// note takes in that so many regions were not heard of, from an instant to now.
func (p *parted) note(from, now int64, lost int, apart time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.ended, p.before, p.lost = p.with(from, now, lost, apart)
}

// with is what would be noted; what is further apart are two times.
func (p *parted) with(from, now int64, lost int, apart time.Duration) (began, ended, before int64, most int) {
	switch gap := time.Duration(from - p.ended); {
	case p.ended == 0 || gap > surelyDrained:
		return from, now, 0, lost
	case gap > apart:
		return from, now, p.before + p.ended - p.began, max(p.lost, lost)
	}
	return p.began, now, p.before, max(p.lost, lost)
}

func (p *parted) last() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// keptOf fills in what an outlook of a bucket is to know of how regions were cut off from
// each other, or this edge is from its own.
func (c *cluster) keptOf(o *limit.Outlook, now int64) {
	p := &c.parted
	p.mu.Lock()
	defer p.mu.Unlock()
	began, ended, before, lost := p.began, p.ended, p.before, p.lost
	if c.silent(now) {
		began, ended, before, lost = p.with(c.waiting.Load(), now, 1, time.Duration(c.staleAfter()))
	}
	met := now - ended
	if met > int64(surelyDrained) {
		return
	}
	o.Lost = max(o.Lost, lost)
	if met > c.staleAfter() {
		o.Parted, o.Met = time.Duration(before+ended-began), time.Duration(met)
	} else {
		o.Parted = time.Duration(before + now - began)
	}
}

// closes is that they admit nothing.
func (c *cluster) closes(rate *limit.Rate, now int64) bool {
	return rate.OnPartition == limit.PartitionClosed && c.cutOff(rate, now)
}

// confineToContact ends an allowance of a rate that is closed while others cannot be
// heard of: soon, as nothing tells when that begins.
func (s *shard) confineToContact(r *record, rate *limit.Rate, now int64) {
	if rate.OnPartition != limit.PartitionClosed || rate.Scope == limit.ScopeEdge {
		return
	}
	r.until = min(r.until, now+int64(s.cluster.interval))
	if s.cluster.closes(rate, now) {
		r.allowance, r.until = 0, 0
	}
}

// closed is how much of a margin above a limit is not to be used: none of it while all
// are heard of, all of it once the edge is cut off, or its region hears of no other. What
// is admitted above a limit is admitted on trust that nobody else does so too.
func (c *cluster) closed(rate *limit.Rate, now int64) float64 {
	if margin(rate) == 0 || rate.OnPartition == limit.PartitionOpen {
		return 0
	}
	part := 0.0
	if since := c.waiting.Load(); since != 0 {
		late := c.late()
		part = min(1, max(0, float64(now-since-late)/float64(c.staleAfter()-late)))
	}
	if regions := c.regions.Load(); regions > 1 && rate.Scope != limit.ScopeRegion {
		part = max(part, float64(regions-c.live.Load())/float64(regions-1))
	}
	return part
}

// contactWait is how long a request waits at the least that is denied as nobody else
// can be heard of.
const contactWait = time.Second
