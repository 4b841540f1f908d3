package edge

import (
	"cmp"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A counter of a strict rate is decided by the rights that this edge holds of the
// limit, and by what it spent of them itself (limit.Spent). Rights come from the
// authority of the key, in its home region, and are good for a lease, which is renewed
// while the key lives. What was ever granted and what was ever returned are told as
// numbers that only grow (deltasync.Claims), and an edge returns by counting a right
// as returned before it says so: no frame that is lost, late or comes twice can make
// two edges hold one right. An edge that dies, or forgets the key, holds its rights
// until the lease is over and what it may have spent is out of the window.

// escrow is what a node has for all its strict counters.
type escrow struct {
	boot  func() time.Duration // of a clock that nobody sets, and that goes on while the machine sleeps
	rand  func() float64
	once  sync.Once     // for nonce
	nonce uint64        // of this process
	lives atomic.Uint64 // of counters; see holder
	due   atomic.Bool   // some shard has claims to tell
	queue waiters       // requests that wait for rights
	lease atomic.Int64  // that the authorities give, as last heard, ns

	mostKept  int32       // counters of a shard that keep a few rights which nobody asks for
	leaves    atomic.Bool // the node does, and wants no rights any more
	forgotten forgotten
}

// holder names one life of a counter at this edge: as deltasync.Claim wants it, it is
// never used again.
func (e *escrow) holder() uint64 {
	e.once.Do(func() { e.nonce = uint64(e.rand()*(1<<53))<<11 ^ uint64(e.rand()*(1<<53)) })
	for {
		if id := e.nonce + e.lives.Add(1)*0x9e3779b97f4a7c15; id != 0 { // odd: no two are alike
			return id
		}
	}
}

// rights are those of one counter.
type rights struct {
	escrow   *escrow
	holder   uint64
	granted  uint64 // ever
	returned uint64 // ever
	until    time.Duration
	spent    limit.Spent
	last     time.Duration // when some were last spent
	born     time.Duration // when this life of the counter began
	wall     int64         // at the last fold
	short    uint64        // cost that was refused since the last claim
	cost     uint64        // that was refused last
	told     uint64        // that it wants, in the last claim
	target   uint64        // what the authority would leave here
	recalled bool          // others need what is above that
	asked    time.Duration // when a claim last left
	answered time.Duration // the claim that was answered last
	unheard  time.Duration // the first claim since then; 0: all are answered
	bare     time.Duration // when the authority said that there is no more for now; 0: it did not, or granted some since
	gave     time.Duration // when rights were last returned
	listed   bool          // stands in shard.claims
	idle     time.Duration // since when nothing is asked for; 0: something is
	log      uint64        // that has what was granted
	home     string        // region of the authority; "": as good as known, the own one
	silent   time.Duration // the first claim that left since it last said anything, or was named; 0: none did
	ceiling  uint64        // the largest that requests have: tiers and overrides may share a key
	epoch    uint32        // of the rules, by then
	seen     time.Duration // when a request last had it
	bound    uint64        // that are not returned, as requests under a lower one went by their part
	unbound  time.Duration // until when
	most     uint64        // that may be spent since it was lowered; see lower
	lowered  time.Duration // when that was; 0: most bounds nothing
	ended    bool          // it spends nothing any more, and the authority hears when what it spent is free
	left     uint64        // when that began
}

// held is how many rights there are now.
func (rt *rights) held(boot time.Duration) uint64 {
	if boot >= rt.until || rt.ended {
		return 0
	}
	return crdt.SatSub(rt.granted, rt.returned)
}

// spend notes a charge. It is made now, or was a moment ago: later is safe.
func (rt *rights) spend(rate *limit.Rate, cost uint64) {
	boot := rt.escrow.boot()
	at, held := limit.Instant{Boot: boot, Wall: rt.wall}, rt.held(boot)
	rt.spent.Spend(rate, cost, held, at)
	rt.last = boot
	if rate.Ceiling < rt.ceiling {
		if boot >= rt.unbound {
			rt.bound = 0
		}
		rt.bound, rt.unbound = max(rt.bound, rt.over(rate.Ceiling, rt.spent.Used(rate, held, at))), boot+rate.Lasts()+rate.Width
	}
}

// spentRights settles what a strict rate was just charged, and says when that was; 0 of
// other rates.
func (r *record) spentRights(rate *limit.Rate) time.Duration {
	if !escrows(rate) || r.block.share == nil || r.block.share.rights == nil {
		return 0
	}
	r.settle()
	return r.block.share.rights.last
}

// part is this edge's part of what is reserved of a limit, rounded up.
func (rt *rights) part(reserve uint64, rate *limit.Rate) uint64 {
	all := max(rt.ceiling, rate.Ceiling)
	held := min(rt.held(rt.escrow.boot()), all)
	return uint64(math.Ceil(float64(reserve) * float64(held) / float64(max(1, all))))
}

// escrows says that counters of the rate are decided by rights.
func escrows(rate *limit.Rate) bool { return rate.Consistency == limit.Strict }

// asks says that rights are granted by somebody else.
func asks(rate *limit.Rate) bool { return rate.Scope != limit.ScopeEdge }

// rights is the record's, made where it has none. What it spent so far, loose or by
// shares, counts as spent now.
func (s *shard) rights(r *record, rate *limit.Rate, now int64) *rights {
	b := r.block
	if b.share == nil {
		b.share = new(share)
	}
	if b.share.rights == nil {
		rt := &rights{escrow: &s.cluster.escrow, holder: s.cluster.escrow.holder(), born: s.cluster.escrow.boot()}
		b.share.rights = rt
		if local := s.spentHere(r, now); local > 0 {
			rt.spend(rate, local)
		}
	}
	return b.share.rights
}

// confineToRights limits an allowance that was just made to the rights, for one
// decision: the next looks at the clock again.
func (s *shard) confineToRights(r *record, rate *limit.Rate, now int64) {
	rt := s.rights(r, rate, now)
	boot := rt.escrow.boot()
	rt.wall, r.until = now, 0
	if s.lower(r, rate, boot, now); !asks(rate) {
		rt.granted, rt.until = crdt.SatAdd(rt.returned, rt.ceiling), math.MaxInt64
	}
	held := rt.held(boot)
	used := rt.spent.Used(rate, held, limit.Instant{Boot: boot, Wall: now})
	r.allowance = min(r.allowance, crdt.SatSub(rt.under(rate.Ceiling, held), used))
	if rt.lowered != 0 {
		r.allowance = min(r.allowance, crdt.SatSub(rt.most, used))
	}
	if asks(rate) && rt.wishes(r.block.share, rate, held, used, now, boot) {
		s.claim(r)
	}
}

// under is how much may be spent of rights by a request with a ceiling: as many in
// proportion to the largest, rounded down, so that those of all edges together are none
// too many.
func (rt *rights) under(ceiling, held uint64) uint64 {
	if ceiling >= rt.ceiling {
		return held
	}
	hi, lo := bits.Mul64(min(held, rt.ceiling), ceiling)
	q, _ := bits.Div64(hi, lo, rt.ceiling)
	return q
}

// over is how many rights there have to be for so much to be spent of them under a ceiling.
func (rt *rights) over(ceiling, spend uint64) uint64 {
	if ceiling >= rt.ceiling {
		return spend
	}
	if ceiling == 0 { // under which nothing is
		return rt.ceiling
	}
	hi, lo := bits.Mul64(min(spend, ceiling), rt.ceiling)
	q, rest := bits.Div64(hi, lo, ceiling)
	return q + min(rest, 1)
}

// lower notes the ceiling of a request. One that is lower than that of others of the same
// key is its own. But once rules have lowered it, or nobody has had the larger one for
// long, the counter spends no more than its part of the lower, before anybody hears of it
// and behind a cut, and returns the other rights as they come free. That ends with the
// first answer to a claim that told the lower limit: from then on the authority grants no
// more than that.
func (s *shard) lower(r *record, rate *limit.Rate, boot time.Duration, now int64) {
	rt := r.block.share.rights
	changed := rt.epoch != rate.Epoch()
	rt.epoch = rate.Epoch()
	switch {
	case rate.Ceiling >= rt.ceiling:
		if rate.Ceiling > rt.ceiling {
			rt.most, rt.lowered = 0, 0
		}
		rt.ceiling, rt.seen = rate.Ceiling, boot
	case changed || boot-rt.seen > rate.Lasts()+time.Duration(rt.escrow.lease.Load()):
		if asks(rate) && !rt.ended {
			most := rt.under(rate.Ceiling, rt.held(boot))
			if rt.lowered != 0 {
				most = min(most, rt.under(rate.Ceiling, rt.most))
			}
			rt.most, rt.lowered = most, boot
			s.claim(r)
		}
		rt.ceiling, rt.seen = rate.Ceiling, boot
	}
	if rt.lowered == 0 {
		return
	}
	if s.returns(r, rt.most, now); rt.answered > rt.lowered && rt.held(boot) <= rt.most {
		rt.most, rt.lowered = 0, 0
	}
}

// wants is how many rights the counter would hold: what is asked for in a window, and
// twice what chance adds to that; and what it could not admit. While others need some it
// keeps none for what may come some time.
func (rt *rights) wants(sh *share, rate *limit.Rate, used uint64) uint64 {
	if rt.escrow.leaves.Load() {
		return 0
	}
	expected := sh.own.Expected(limit.SpansOf(rate.Window), !rt.recalled)
	want := uint64(0)
	if expected >= 0.05 {
		want = uint64(math.Ceil(min(expected+2*math.Sqrt(expected), float64(rate.Ceiling))))
	}
	want = min(max(want, crdt.SatAdd(used, rt.short)), rate.Ceiling)
	return rt.over(rate.Ceiling, want)
}

// wishes says that the authority should hear of the counter now: it has too little for
// what is asked for in half a second.
func (rt *rights) wishes(sh *share, rate *limit.Rate, held, used uint64, now int64, boot time.Duration) bool {
	sh.own.Turn(limit.SpansOf(rate.Window), now)
	if rt.asked == 0 {
		return true
	}
	soon := sh.own.Fast * min(rate.Window, 500*time.Millisecond).Seconds()
	return float64(crdt.SatSub(held, used)) < max(1, soon) && rt.wants(sh, rate, used) > held
}

// refusedRight notes that a cost was asked for and there were no rights for it. Of those
// who wait for theirs each has to have some.
func (s *shard) refusedRight(r *record, cost uint64, waits bool) {
	rt := r.block.share.rights
	if rt.cost = cost; waits {
		rt.short = crdt.SatAdd(rt.short, cost)
	} else {
		rt.short = max(rt.short, cost)
	}
	s.claim(r)
}

// expects says that rights may come within the rate's wait that would do for a request
// which has none: the authority was not asked yet, has not answered, or seeks some. If
// it said that there are none, it would have told of others for as long as it believes
// what this edge wants; and if it is not heard of for so long, nobody waits for it.
func (rt *rights) expects(rate *limit.Rate, need uint64) bool {
	boot := rt.escrow.boot()
	switch {
	case rate.StrictWait == 0 || need > rate.Ceiling || rt.held(boot) >= rt.ceiling:
		return false
	case rt.bare != 0 && boot-rt.bare < believed:
		return false
	}
	return rt.unheard == 0 || boot-rt.unheard < rate.StrictWait || boot-rt.asked > claimTimeout
}

// rightsWait is how long a request has none of a strict limit, if no more come; where some may,
// nobody knows, and it is 0.
func (b *block) rightsWait(need uint64) time.Duration {
	if b.share == nil || b.share.rights == nil {
		return 0
	}
	rt := b.share.rights
	boot := rt.escrow.boot()
	held := rt.held(boot)
	if held < rt.ceiling && (rt.bare == 0 || boot-rt.bare >= believed) {
		return 0
	}
	return rt.spent.FreesFor(b.rate, need, held, limit.Instant{Boot: boot, Wall: rt.wall})
}

// believed is how long an authority believes what an edge said that it wants, and tells
// it unasked of what it may have (escrow: fresh).
const believed = time.Second

// claim lists a counter of which the authority should hear.
func (s *shard) claim(r *record) {
	rt := r.block.share.rights
	if !rt.listed {
		rt.listed = true
		s.claims = append(s.claims, r.key)
		s.cluster.escrow.due.Store(true)
	}
}

// gap is how long after a claim the next may follow: an answer may have brought less
// than is needed.
func (rt *rights) gap(c *cluster) time.Duration {
	if rt.gave > rt.asked { // somebody waits for it
		return 0
	}
	if rt.answered == rt.asked && rt.short > 0 {
		return c.urgent
	}
	return c.interval
}

// due takes a counter's claim if it is time for it; else it is listed on.
func (s *shard) dueClaim(r *record, boot time.Duration, now int64) (c deltasync.Claim, home string, ok bool) {
	sh, rate := r.block.share, r.block.rate
	rt := sh.rights
	if rt.asked != 0 && boot-rt.asked < rt.gap(s.cluster) {
		return c, "", false
	}
	held := rt.held(boot)
	used := rt.spent.Used(rate, held, limit.Instant{Boot: boot, Wall: now})
	c = deltasync.Claim{
		Key: r.key, Holder: rt.holder, Limit: rt.ceiling, Lasts: rate.Lasts(),
		Granted: rt.granted, Returned: rt.returned, Want: rt.wants(sh, rate, used), Regional: rate.Scope == limit.ScopeRegion,
		Bound: rt.stays(rate, held, now, boot),
	}
	if rt.ended {
		c.Want, c.Bound, c.Ends = 0, rt.left, rt.ends(rate, rt.left, now, boot)
	}
	if rt.unheard == 0 || boot-rt.asked > claimTimeout {
		rt.unheard = boot
	}
	switch {
	case rt.silent == 0:
		rt.silent = boot
	case rt.home != "" && boot-rt.silent > time.Duration(rt.escrow.lease.Load()):
		rt.home, rt.silent = "", 0 // it may be that the key has another by now: the region knows, or is that
	}
	rt.asked, rt.short, rt.told, rt.listed = boot, 0, c.Want, false
	return c, rt.home, true
}

// void has a counter hold nothing, and ask anew.
func (s *shard) void(r *record) {
	rt := r.block.share.rights
	rt.holder, rt.granted, rt.returned, rt.until, rt.gave, rt.log = rt.escrow.holder(), 0, 0, 0, 0, 0
	rt.ended, rt.left = false, 0
	s.claim(r)
}

// hearGrant takes in what the authority says of a counter in a frame: that of its home, or
// of this region while nothing else is known. What another grants is none of this key's.
func (s *shard) hearGrant(r *record, g *deltasync.Grant, f *deltasync.Grants, region string, now int64) {
	if r.sparse() || r.block.share == nil || r.block.share.rights == nil || r.block.share.rights.holder != g.Holder {
		return // of another life
	}
	rt := r.block.share.rights
	if f.Region != cmp.Or(rt.home, region) {
		return
	}
	boot := rt.escrow.boot()
	said := time.Duration(f.Echo)
	if f.Echo == 0 {
		said = time.Duration(g.Echo)
	}
	if said > boot || boot-said >= f.Lease { // it may be that somebody else has them since
		return
	}
	switch {
	case g.Home != "":
		rt.silent = 0
		if rt.home != g.Home {
			rt.home, rt.asked, rt.short = g.Home, 0, max(rt.short, 1)
			s.claim(r)
		}
		return
	case g.Flags&deltasync.GrantVoid != 0:
		s.void(r)
		return
	case f.Log != rt.log && rt.granted > 0 && boot >= rt.until:
		// What the log before knew is lost. That the lease had ended may have been
		// known there, and others been granted what was held; here it is not.
		s.void(r)
		return
	}
	if g.Granted > rt.granted {
		rt.bare = 0
	}
	rt.log, rt.granted = f.Log, max(rt.granted, g.Granted)
	if f.Echo != 0 {
		rt.until, rt.answered, rt.unheard = max(rt.until, said+f.Lease), max(rt.answered, said), 0
		rt.silent = 0
		if rt.held(boot) < rt.told && g.Flags&deltasync.GrantSought == 0 {
			rt.bare = boot
		}
	}
	rt.target, rt.recalled = g.Target, g.Flags&deltasync.GrantRecall != 0
	if rt.escrow.leaves.Load() { // it was asked for before
		s.finish(r, now)
		return
	}
	if rt.recalled {
		sh, rate := r.block.share, r.block.rate
		used := rt.spent.Used(rate, rt.held(boot), limit.Instant{Boot: boot, Wall: now})
		sh.own.Turn(limit.SpansOf(rate.Window), now)
		s.yield(r, used, rt.wants(sh, rate, used), now)
	}
}
