package edge

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// held confines a record that was admitted while its key was blocked: until
// then so much counts as used, whatever limit it is judged by, and when it eases
// something less. It is local and never sent.
type held struct {
	until int64  // nothing counts any more of what was used before
	eases int64  // what was used before has fallen below the threshold
	born  int64  // the record was, of which it speaks beside the charges since
	used  uint64 // before it was forgotten, and since
	extra uint64 // comes off used when it eases; 0: it has, or never will
	back  uint64 // of used, in the slice that the record was born in: what was given back of before

	rounded int64 // so much later, at the most, than what was put in, and as much as a hold rounds up
	penalty bool  // all that is known is that the key is kept out, until then
	weak    bool  // it matters for a smaller limit only than the one it was charged under last
	told    bool  // the region said so: it speaks of no counts that the region never got
	covered bool  // what the view has is all that it was put in for
	level   bool  // it is in the level of a bucket, and confines by that: see held_level.go
}

// left is what a rate leaves to the record.
func (h *held) left(rate *limit.Rate) uint64 { return crdt.SatSub(rate.Ceiling, h.used) }

// before says that a charge was made before the record was born.
func (h *held) before(c *limit.Charge) bool { return c.At != 0 && c.At < h.born }

// idle says that nothing is used any more, by what it says beside a level.
func (h *held) idle() bool { return h.used == 0 || h.level }

// full stands in record.scale for a record that is confined: it is evicted as one
// that has all of its limit in use, and of no other does a decision read what
// confines it (see record.unshared).
const full = 255

// threshold is the use from which on a key stays limited whatever becomes of
// its record: crowdedShare of the limit, rounded up. It is 0 for a rate that
// admits nothing anyhow.
func threshold(rate *limit.Rate) uint64 { return crowded(min(rate.Limit, rate.Ceiling)) }

// leastThreshold is that of the class of requests that may use least of the limit.
func leastThreshold(rate *limit.Rate) uint64 {
	return crowded(without(min(rate.Limit, rate.Ceiling), rate.Withheld(0)))
}

// without is what a class may use of a limit. One that may use none is nobody's: it is
// never charged.
func without(limit, withheld uint64) uint64 {
	if withheld >= limit {
		return limit
	}
	return limit - withheld
}

// ceases is the threshold that a use falls below next.
func ceases(rate *limit.Rate, used uint64) uint64 {
	if most := threshold(rate); used >= most {
		return most
	}
	return leastThreshold(rate)
}

func crowded(limit uint64) uint64 {
	return limit - limit/100*(100-crowdedShare) - limit%100*(100-crowdedShare)/100
}

// smallest is the least limit that a counter is known to be judged by: that of
// the rate, or of its rule where a tenant, or a request, has a larger one. Keys
// are often one tenant's alone, but they need not be.
func smallest(rate *limit.Rate) uint64 {
	if rate.Base == 0 {
		return rate.Limit
	}
	return min(rate.Limit, rate.Base)
}

// ceilingOf is what the least class that asked of a record may use of the limit: all of it
// where there are no classes. A confined record was near that of the least there is.
func (r *record) ceilingOf(rate *limit.Rate) uint64 {
	most := smallest(rate)
	for class := 0; rate.Withheld(class) > 0; class++ {
		if ceiling := without(most, rate.Withheld(class)); scaleOf(ceiling) >= r.scale || r.scale == full && r.block.held != nil {
			return ceiling
		}
	}
	return most
}

// rescale has a record go by the limit of a rate, or by what is left of that to the least
// class that asked.
func (r *record) rescale(rate *limit.Rate) {
	most := scaleOf(smallest(rate))
	if rate.Withheld(0) == 0 || r.scale == 0 || r.scale >= most {
		r.scale = most
		return
	}
	r.scale = max(r.scale, scaleOf(without(smallest(rate), rate.Withheld(0))))
}

// heedClass notes of a request that was decided what its class may use of the limit.
func (c *counter) heedClass() {
	if r := c.record; c.need > c.cost && r.scale != full {
		r.scale = min(r.scale, scaleOf(without(smallest(c.rate), c.need-c.cost)))
	}
}

// scaleOf is about how large a limit is, a quarter of an octave at a time, so
// that choosing whom to forget reads no block.
func scaleOf(limit uint64) uint8 {
	if limit < 4 {
		return uint8(limit)
	}
	n := bits.Len64(limit)
	return uint8(4*(n-2) + int(limit>>(n-3)&3))
}

// portions is 1/limit by scale, of the smallest limit that has the scale.
var portions = func() (p [full + 1]float64) {
	for i := range p {
		switch {
		case i < 4:
			p[i] = 1 / float64(max(1, i))
		default:
			p[i] = 1 / math.Ldexp(float64(4+i%4), i/4-1)
		}
	}
	p[full] = math.Inf(1)
	return p
}()

// share is about the part of the limit that a record has in use, up to 1; it
// may be taken for a quarter more than it is.
func (r *record) share() float64 {
	if r.scale == full {
		return 1
	}
	return min(1, float64(r.known())*portions[r.scale])
}

// ended says that the confinement is over, or made by a clock that was set back
// since: it is never longer than a window.
func (h *held) ended(rate *limit.Rate, now int64) bool {
	return now >= h.until || h.until-now > longestHold(rate)
}

// longestHold is how long what is used may count, and what rounding adds.
func longestHold(rate *limit.Rate) int64 { return int64(rate.Lingers() + time.Second) }

// confine takes from the allowance of a record that was just folded what its
// key may not spend yet.
func (r *record) confine(now int64) {
	b, h := r.block, r.block.held
	if h.ended(b.rate, now) {
		b.held = nil
		return
	}
	if h.extra > 0 && now >= h.eases {
		h.used, h.extra = crdt.SatSub(h.used, h.extra), 0
	}
	if h.idle() {
		return
	}
	r.allowance = min(r.allowance, h.left(b.rate))
	if h.extra > 0 {
		r.until = min(r.until, h.eases)
	} else {
		r.until = min(r.until, h.until)
	}
	r.scale = full
}

// wait is how long the confinement keeps cost from being spent.
func (h *held) wait(rate *limit.Rate, cost uint64, now int64) time.Duration {
	switch {
	case h == nil || h.idle() || cost <= h.left(rate):
		return 0
	case cost <= crdt.SatSub(rate.Ceiling, crdt.SatSub(h.used, h.extra)):
		return time.Duration(h.eases - now)
	default:
		return time.Duration(h.until - now)
	}
}

// block notes a settled record that is about to be forgotten with most of its
// limit used, or while it is held.
func (s *shard) block(r *record, now int64) {
	b := r.block
	own := crowded(r.ceilingOf(b.rate))
	least := min(threshold(b.rate), crowded(smallest(b.rate)), own)
	if b.held != nil && b.held.ended(b.rate, now) {
		b.held = nil
	}
	const most = 1<<32 - 1
	known := uint64(r.local) + uint64(r.merged) // it only falls
	turns := s.turnsBeyondSlices(b, now)
	if turns == 0 && (least == 0 || b.confined() == nil && !b.punished(now) && known < least && r.local < most && r.merged < most) {
		if !b.rate.Bucket() { // of which nothing else may know
			s.blocked.lift(r.key) // what was put in before it came, with more used
		}
		return
	}
	var h held
	switch used := b.rate.Rounded(s.measure(r, now)); {
	case used >= threshold(b.rate):
		h = confinement(b.rate, used, now, s.waiting(b, now))
	case used >= least:
		smaller := *b.rate
		smaller.Limit = smallest(b.rate)
		if used >= own {
			smaller.Limit = without(smaller.Limit, b.rate.Withheld(0))
		}
		smaller.Ceiling = smaller.Limit
		h = confinement(&smaller, used, now, s.waiting(b, now))
		h.weak = used < own
	case turns > 0: // it takes the place of what was known of the level
		h.used, h.weak = used, true
	}
	h.until = max(h.until, turns)
	before := s.blocked.exact(r.key)
	over := before == nil || before.until() <= now
	h.told = b.own.Len() == 0 && (b.held == nil || b.held.told) && (over || before.what&told != 0)
	h.covered = h.told && (b.held == nil || b.held.covered) && (over || before.what&covered != 0)
	if was := b.confined(); was != nil {
		h.weak = was.weak && (h.weak || h.until == 0)
		h.until, h.used = max(h.until, was.until), max(h.used, was.used)
		h.eases, h.extra = was.eases, was.extra
		if b.own.Len() > 0 { // some was spent meanwhile, and must neither be spent again nor be forgotten
			h.until = max(h.until, gone(b.rate, now, s.waiting(b, now)))
			h.eases, h.extra = h.until, 0
		}
	}
	if b.punished(now) {
		if b.denied.until >= h.until {
			h = held{until: b.denied.until, penalty: true}
		} else {
			h.used, h.eases, h.weak = max(h.used, b.rate.Ceiling), max(h.eases, b.denied.until), false
			h.extra = extraOf(b.rate, h.used)
		}
	}
	if h.until > now {
		s.blocked.put(newHold(r.key, b.rate, h), now)
	}
}

// turnsBeyondSlices is when all have gone on who wait in a queue, where the slices do not
// tell: they wait by a slower pace that rules had, or behind others who left elsewhere. Else
// it is 0. Where they wait behind what a hold said, it is rounded down, and what that may have
// added is left out: else it would be added again and again.
func (s *shard) turnsBeyondSlices(b *block, now int64) int64 {
	if !b.rate.Queue {
		return 0
	}
	x := &b.memory.exact
	x.Follow(b.rate, now) // a clock that was set back had them told for later
	var latest int64
	lines, rounded := x.Lines()
	for i, known := range b.rate.Lines(func(r *limit.Rate) int64 { return now + int64(r.Latest(s.sums(b), b.memory.carry, now)) }) {
		until := lines[i]
		if rounded > 0 {
			until = (until - rounded) >> endShift << endShift
		}
		if until > max(now, known) {
			latest = max(latest, until)
		}
	}
	return latest
}

// confinement is what a key at the threshold or above is held to when it is
// forgotten; wait says when a cost would fit.
func confinement(rate *limit.Rate, used uint64, now int64, wait func(*limit.Rate, uint64) time.Duration) held {
	h := held{used: used, until: gone(rate, now, wait), extra: extraOf(rate, used)}
	h.eases = now + min(int64(wait(rate, crdt.SatSub(rate.Ceiling+1, threshold(rate)))), longestHold(rate))
	return h
}

// extraOf is what comes off what is used when that is just below the threshold.
func extraOf(rate *limit.Rate, used uint64) uint64 { return crdt.SatSub(used+1, ceases(rate, used)) }

// gone is when nothing at all counts any more of what is used, fractions that
// are rounded down as a rule included: beside what is charged next they may
// make a whole.
func gone(rate *limit.Rate, now int64, wait func(*limit.Rate, uint64) time.Duration) int64 {
	exact := *rate
	exact.Round = limit.RoundUp
	return now + min(int64(wait(&exact, exact.Ceiling)), longestHold(rate))
}

// waiting is wait of a block, for gone.
func (s *shard) waiting(b *block, now int64) func(*limit.Rate, uint64) time.Duration {
	return func(rate *limit.Rate, cost uint64) time.Duration {
		was, denied := b.rate, b.denied
		level := *rate
		level.Queue = false                 // turns are, too: else what was rounded up once would be again and again
		b.rate, b.denied = &level, denial{} // as a penalty is
		defer func() { b.rate, b.denied = was, denied }()
		return s.wait(b, cost, now)
	}
}

// hold confines a record that was just admitted, where its key is blocked. What
// the view still knows of it is better than that: if that makes the record
// wait, nothing else has to.
func (s *shard) hold(r *record, f *formers, now int64) {
	b := r.block
	h := s.blocked.find(r.key, b.rate, now)
	if h.penalty {
		if !b.punished(now) { // else the view knew it to the nanosecond
			s.obey(r, h.until, now)
		}
		return
	}
	if b.rate.Queue && h.until > now { // who waits may have been told so by a slower pace
		b.memory.exact.Behind(b.rate.Lines(func(r *limit.Rate) int64 { return min(h.until, now+f.longestTurn(r)) }), f.longestTurn(b.rate), h.rounded, now)
	}
	if h.covered && h.explained(b.rate, s.sums(b), now) {
		s.blocked.lift(r.key)
		return
	}
	// (Of who waits for room it does not know all; see limit.Drain.)
	if h.until == 0 || b.rate.MaxDelay == 0 && !b.idle(now) && b.rate.Rounded(s.measure(r, now)) >= threshold(b.rate) {
		return
	}
	// Where the filter rounded up, took the key for another, or the clock was set
	// back, it is no longer than it could have been.
	if most := now + longestHold(b.rate); h.until > most {
		h = held{until: most, eases: most, used: h.used, weak: h.weak}
	}
	h.born = now
	if b.rate.Bucket() {
		b.holdLevel(&h, now)
		return
	}
	if b.held = &h; !h.idle() {
		r.scale = full
	}
}

// sweepBlocked looks at a stretch of the filter, and says whether there is more
// of it.
func (s *shard) sweepBlocked(now int64) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked.follow(now)
	return s.blocked.filter.sweep(now, 4*sweepStretch)
}

// excuse ends the confinement of a key that was reset: the region knew of most
// of a limit, and has given all of it back; and of one of which the region said what it was
// confined for, and now what has become of it: all of that where who answers has the store that it
// had then.
func (s *shard) excuse(r *record, now int64, stored bool) {
	b := r.block
	all := b.heardAt != 0 // is known: a push tells what changed
	if b.held == nil || !all {
		return
	}
	if !(b.held.told && stored) && !b.held.explained(b.rate, s.explaining(b), now) && !wasReset(b.rate, b.others.Cells(nil), now) {
		return
	}
	b.dropLevel(now)
	b.held = nil
	r.until = 0
	r.forgive()
	s.blocked.lift(r.key)
}

func wasReset(rate *limit.Rate, cells []crdt.Cell, now int64) bool {
	net := uint64(0)
	for _, c := range cells {
		if c.Slice >= rate.Reach(now) {
			net = crdt.SatAdd(net, c.Net())
		}
	}
	return net == 0 && chargedIn(rate, cells, now) >= leastThreshold(rate)
}

// explained says that the region told of all that the key is confined for: by now the cells say what
// became of it.
func (h *held) explained(rate *limit.Rate, cells []crdt.Cell, now int64) bool {
	return h.told && h.used <= unpack(roundUp(chargedIn(rate, cells, now)))
}

// chargedIn is all that cells say was charged, whatever was given back since.
func chargedIn(rate *limit.Rate, cells []crdt.Cell, now int64) (sum uint64) {
	for _, c := range cells {
		if c.Slice >= rate.Reach(now) {
			sum = crdt.SatAdd(sum, c.Charges)
		}
	}
	return sum
}

// heed takes from a push of a key that is not live here whether it is blocked. cells are what it
// tells, with what the view has, if that has something (known); whole says that it tells all. Where the
// key is blocked already that is replaced, if cells are all that it was put in for. Else they may be
// less: what was known to be used stays until that ends, or eases, however many pushes come, and so
// does what may be of counts that the region never got.
func (s *shard) heed(key deltasync.Key, rate *limit.Rate, cells []crdt.Cell, carry crdt.Carry, known, whole bool, now int64) {
	was := s.blocked.exact(key)
	if was != nil && !known && !whole {
		was.what &^= covered
	}
	least := threshold(rate)
	carry = rate.Believed(carry)
	switch used := rate.Rounded(rate.Used(cells, carry, now)); {
	case least == 0:
	case used >= least:
		h := confinement(rate, used, now, func(rate *limit.Rate, cost uint64) time.Duration {
			return rate.RetryAfter(cells, carry, cost, now)
		})
		h.told, h.covered = true, true
		if was != nil && was.until() > now {
			old := was.held(rate)
			switch {
			case old.penalty:
				return
			case !old.told || !old.covered && !whole:
				h.join(&old, rate, now)
			}
		}
		s.blocked.put(newHold(key, rate, h), now)
	case was != nil && was.what&penalized != 0:
	case carry.Level == 0 && wasReset(rate, cells, now),
		was != nil && was.what&told != 0 && (whole || was.what&covered != 0) && used < leastThreshold(rate):
		s.blocked.lift(key)
	}
}

// join has a hold speak of what an earlier one does, too, which is above the threshold until it
// eases. There is room for one use and one end of it: where the earlier one says more and eases
// sooner, that is what is wrong by less; else whoever is pushed time and again would be held to
// the most that ever was.
func (h *held) join(old *held, rate *limit.Rate, now int64) {
	h.until = max(h.until, old.until)
	if now >= old.eases {
		return // what is left of it is less than this says
	}
	h.told, h.covered = h.told && old.told, false
	sooner := old.used > h.used && old.eases < h.eases && old.used-h.used > crdt.SatSub(h.used+1, threshold(rate))
	if h.used = max(h.used, old.used); sooner {
		h.eases = old.eases
	} else {
		h.eases = max(h.eases, old.eases)
	}
	h.extra = extraOf(rate, h.used)
}

// ofShape is the rate that a push speaks of; nil where no rule has it. A
// tenant's limit is another than its rule's.
func (n *Node) ofShape(shape *deltasync.Shape) *limit.Rate {
	rates := n.rates.Load()
	if rates == nil {
		return nil
	}
	rate := (*rates)[shape.Generation]
	if rate == nil || rate.Limit == shape.Limit {
		return rate
	}
	if rate.Bucket() || rate.Limit == 0 || rate.Width != shape.Width {
		return nil // how fast it drains for that tenant is not known here
	}
	scaled := *rate
	scaled.Limit, scaled.Ceiling = shape.Limit, shape.Limit
	return &scaled
}

// byGeneration finds the rates of a set.
func byGeneration(set *limit.Set) *map[uint64]*limit.Rate {
	rates := map[uint64]*limit.Rate{}
	for _, rule := range set.Rules() {
		for _, rate := range slices.Concat(rule.Rates, rule.Lent()) {
			if rate != nil {
				rates[rate.Generation] = rate
			}
		}
	}
	return &rates
}
