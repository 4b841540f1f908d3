package escrow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// deposit is what an authority knows of one key.
type deposit struct {
	key      deltasync.Key
	version  uint64        // of what is known here
	durable  uint64        // of what is in the log for sure: no more may be said
	writes   int           // under way
	written  time.Duration // when it was last written for sure; the log keeps it for kept from then on
	kept     time.Duration // 0: it was read from the log, and nobody knows since when it is there
	holdings []*holding
	pushed   time.Duration // when its holders were last asked to return some
	wanted   need
	listed   bool // stands in lane.short
	regional bool // the region's own, whose authority nobody else takes himself for
}

// holding is one holder's, and what it said last.
type holding struct {
	Holding
	want  uint64
	bound uint64        // of what it has, as it is spent; 0: it did not say
	heard time.Duration // by this authority's clock; of one that was read from the log, and since said nothing, not before that
	echo  int64         // Claims.SentAt of what it said last; 0: nothing yet
	noted uint64        // Returned, as the log has it or is about to
	asked time.Duration // when it was last asked what it wants by now
	first time.Duration // when it was first asked that, of the times that it did not answer
	read  bool          // from the log, and nobody said anything of it since that renewed its lease
	spans time.Duration // of several lives: from when the first was free to when the last is
}

// find is the holding of a holder; nil: it has none.
func (d *deposit) find(holder uint64) *holding {
	for _, h := range d.holdings {
		if h.Holder == holder {
			return h
		}
	}
	return nil
}

// Holders are a sender's to invent, as an edge has a new one with each life of a key, and
// whatever is granted is worked out from all of them.
const (
	maxHoldings = 2048 // of a key
	maxLives    = 16   // of an edge in it
	// popShare is how many times what is left of them a PoP may have, so that some always
	// is.
	popShare = 3
)

// admits says whether there is room for one more holding of an edge. Where that has too many, two of
// its lives become one whose leases are over: with all that they had, until the last of it is free,
// under a name that no life has, as none of them may have the rights of others.
func (d *deposit) admits(node uint64, lease, now time.Duration, name func() uint64) bool {
	if len(d.holdings) < maxLives {
		return true
	}
	lives, pop := 0, 0
	for _, h := range d.holdings {
		if h.Node == node {
			lives++
		}
		if deltasync.PopOf(h.Node) == deltasync.PopOf(node) {
			pop++
		}
	}
	if lives >= maxLives && d.fold(node, lease, now, name) {
		lives--
	}
	return lives < maxLives && pop < popShare*(maxHoldings-len(d.holdings))
}

// fold makes one holding of two of an edge whose leases are over, if there are two: those of which the
// least is kept the least too long, so that what many lives spent comes free in parts.
func (d *deposit) fold(node uint64, lease, now time.Duration, name func() uint64) bool {
	var over []*holding
	for _, h := range d.holdings {
		if h.Node == node && node != 0 && now-h.heard > spare(lease) {
			over = append(over, h)
		}
	}
	slices.SortFunc(over, func(a, b *holding) int { return cmp.Or(cmp.Compare(a.end(), b.end()), cmp.Compare(a.Holder, b.Holder)) })
	best, least := 0, time.Duration(math.MaxInt64)
	for i := 1; i < len(over); i++ {
		if span := over[i].end() - min(over[i-1].begins(), over[i].begins()); span < least {
			best, least = i, span
		}
	}
	if best == 0 {
		return false
	}
	gone, into := over[best-1], over[best]
	first := min(gone.begins(), into.begins())
	into.Granted, into.Returned, into.noted = crdt.SatAdd(into.Out(), gone.Out()), 0, 0
	into.heard, into.Lasts = into.end()-max(into.Lasts, gone.Lasts), max(into.Lasts, gone.Lasts)
	into.first, into.asked, into.want, into.bound, into.echo = 0, 0, 0, 0, 0 // nobody is asked for what it has
	into.Holder, into.spans = name(), into.end()-first
	d.holdings = slices.DeleteFunc(d.holdings, func(h *holding) bool { return h == gone })
	d.version++
	return true
}

// end is when what it has is free, but for a lease, if nobody speaks of it any more, and begins when the
// first of it would have been.
func (h *holding) end() time.Duration    { return h.heard + h.Lasts }
func (h *holding) begins() time.Duration { return h.end() - h.spans }

// lapse removes holdings whose lease is over, and what was spent of them out of the
// window, which is no longer than longest; it says whether there were any.
func (d *deposit) lapse(lease, longest, now time.Duration) bool {
	kept := d.holdings[:0]
	for _, h := range d.holdings {
		if silent := now - h.heard; silent > spare(lease+min(h.Lasts, longest)) || h.Out() == 0 && silent > spare(lease) {
			continue
		}
		kept = append(kept, h)
	}
	lapsed := len(kept) < len(d.holdings)
	clear(d.holdings[len(kept):])
	d.holdings = kept
	return lapsed
}

// spare adds to a time what two clocks may differ by over it.
func spare(d time.Duration) time.Duration { return d + d/100 + 50*time.Millisecond }

// LongestWindow is how long what is spent may count, at the most, of limits of which a log
// that began so long ago grants rights; 0: of none.
func LongestWindow(lease, age time.Duration) time.Duration {
	return max(0, (age-50*time.Millisecond)/101*100-lease)
}

// limit is what all rights may come to: what most PoPs claim, each by most of its edges, and these by
// the life that was heard last; of two that as many claim what more edges do, and else the smaller. Those
// who say something else have other rules, or mean ill: an edge may have many lives of a key, and a
// PoP invents edges. Who fell silent long before others has no vote: of him what was spent counts.
func (d *deposit) limit() uint64 {
	if len(d.holdings) == 0 {
		return 0
	}
	if first := d.holdings[0].Limit; !slices.ContainsFunc(d.holdings, func(h *holding) bool { return h.Limit != first }) {
		return first // as it is nearly always
	}
	last := d.holdings[0].heard
	for _, h := range d.holdings {
		last = max(last, h.heard)
	}
	edges := map[uint64]*holding{}
	for _, h := range d.holdings {
		if e := edges[h.edge()]; last-h.heard <= votes && (e == nil || h.heard >= e.heard) {
			edges[h.edge()] = h
		}
	}
	pops, all := map[uint64]map[uint64]int{}, map[uint64]int{}
	for edge, h := range edges {
		pop := deltasync.PopOf(edge)
		if pops[pop] == nil {
			pops[pop] = map[uint64]int{}
		}
		pops[pop][h.Limit]++
		all[h.Limit]++
	}
	most := map[uint64]int{}
	for _, of := range pops {
		most[leading(of, nil)]++
	}
	return leading(most, all)
}

// votes is for how long after a holder was heard last, as the others are, it has a vote.
const votes = 2 * deltasync.DefaultLease

// edge is whose life it is; of an older build, which did not say, its own.
func (h *holding) edge() uint64 { return cmp.Or(h.Node, h.Holder) }

// leading is what has the most votes; of two that have as many what has more of others, and else the
// smaller.
func leading(votes, others map[uint64]int) (of uint64) {
	most := 0
	for limit, n := range votes {
		if n > most || n == most && (others[limit] > others[of] || others[limit] == others[of] && limit < of) {
			most, of = n, limit
		}
	}
	return of
}

// out is how many rights are held, as far as is known.
func (d *deposit) out() (sum uint64) {
	for _, h := range d.holdings {
		sum = crdt.SatAdd(sum, h.Out())
	}
	return sum
}

// fresh is how long a want is believed of a holder that has said nothing since.
const fresh = time.Second

// wants is what a holder would hold, as far as it said so lately.
func (h *holding) wants(now time.Duration) uint64 {
	if now-h.heard > fresh {
		return min(h.want, h.Out())
	}
	return h.want
}

// need is how badly somebody wants more than he has.
type need int

const (
	none   need = iota
	hungry      // he has about his part, but others may want less by now
	short       // he has less than his part, or rights are held that are not there
)

// award grants what there is to those who want it, and have less than their part. It
// returns those to whom it did, and what is still wanted.
func (d *deposit) award(edges int, lease, now time.Duration) (granted []*holding, left need) {
	limit := d.limit()
	out := d.out()
	parts, _ := d.parts(limit, edges, lease, now)
	for i, h := range d.holdings {
		has, want := h.Out(), h.wants(now)
		if want == 0 {
			continue
		}
		part := uint64(math.Ceil(parts[i].now))
		if has < part && out < limit {
			more := min(part-has, limit-out)
			h.Granted = crdt.SatAdd(h.Granted, more)
			out, has = out+more, has+more
			granted = append(granted, h)
		}
		switch {
		case float64(has) < min(float64(want), parts[i].fair*enough):
			left = short
		case has < want:
			left = max(left, hungry)
		}
	}
	if out > limit {
		left = short
	}
	return granted, left
}

// target is how many rights are left to the holder at place i, and whether it is to
// return what it has above, as far as it is not used. Over says that more are held than
// there are.
func (d *deposit) target(i int, parts []part, isScarce, over bool, now time.Duration) (target uint64, recall bool) {
	wanted := d.wanted
	target = uint64(math.Ceil(parts[i].target()))
	if over { // it was lowered: of parts that are rounded up there may be too many
		return min(uint64(parts[i].target()), d.holdings[i].wants(now)), true
	}
	if isScarce && wanted != none { // what nobody wants is for whoever does
		return min(target, d.holdings[i].wants(now)), true
	}
	return target, wanted == short && float64(d.holdings[i].Out()) > parts[i].target()+1
}

// silent says that a holder has said nothing for a while, nor was asked.
func (h *holding) silent(now time.Duration) bool {
	return h.Out() > 0 && now-h.heard > fresh && now-h.asked > fresh
}

// ask notes that a holder that is silent is asked what it wants by now.
func (h *holding) ask(now time.Duration) {
	if h.asked <= h.heard {
		h.first = now
	}
	h.asked = now
}

// firm is how long a holder is taken at its word that it uses what it has: rights come
// free as their spends leave the window, little by little.
func (h *holding) firm() time.Duration { return min(max(fresh, h.Lasts/10), 10*time.Second) }

// seeks says that others may soon return rights that the holder wants: they have some
// that are not theirs by what they said, or said nothing of late and were not asked in
// vain.
func (d *deposit) seeks(holder *holding, parts []part, isScarce bool, now time.Duration) bool {
	if holder.want <= holder.Out() {
		return false
	}
	over := d.out() > d.limit()
	for i, h := range d.holdings {
		switch {
		case h == holder || h.Out() == 0:
		case now-h.heard > h.firm():
			if h.asked <= h.heard || now-h.first <= fresh {
				return true
			}
		default:
			if target, recall := d.target(i, parts, isScarce, over, now); recall && h.Out() > target {
				return true
			}
		}
	}
	return false
}

// fades says that the log may forget the deposit while rights are held by it, unless it
// is written again: leases are renewed without a write.
func (d *deposit) fades(now time.Duration) bool {
	if d.version == 0 {
		return false
	}
	for _, h := range d.holdings {
		if keeps(h.Lasts) > d.kept {
			return true
		}
	}
	return now-d.written >= d.kept/2
}

// rests says that the log has all that is known, for as long as it may be asked for, and that
// nobody has said anything of it for a lease. Read again, its holders are taken to have
// spoken just then, but for what of their silence was written.
func (d *deposit) rests(lease, now time.Duration) bool {
	if d.version == 0 || d.version != d.durable || d.listed || d.fades(now) {
		return false
	}
	for _, h := range d.holdings {
		if now-h.heard < lease || now-h.asked < lease {
			return false
		}
	}
	return !d.hushed(lease, now) && !d.owes()
}

// owes says that the log does not know of all that was returned.
func (d *deposit) owes() bool {
	return slices.ContainsFunc(d.holdings, func(h *holding) bool { return h.noted != h.Returned })
}

// owesMuch says that the log is to know now what was returned, and not with the next grant: whoever has
// the lane next would take it for held, and of who wants nothing any more nobody says it again.
func (d *deposit) owesMuch(said *holding, limit uint64) bool {
	if said.want == 0 && said.Returned > said.noted {
		return true
	}
	owed := uint64(0)
	for _, h := range d.holdings {
		owed = crdt.SatAdd(owed, crdt.SatSub(h.Returned, h.noted))
	}
	return owed > limit/8
}

// hushed says that a holder has been silent for so much longer than the log has it that
// it should know: whoever has the lane next goes on from there. Else rights of the dead
// were never free, where the lane changes hands more often than their windows end. Of
// windows that are shorter than a lease it is not worth a write.
func (d *deposit) hushed(lease, now time.Duration) bool {
	for _, h := range d.holdings {
		if h.Lasts > lease && h.Out() > 0 && h.quiet(lease, now)-h.Silent >= max(lease, h.Lasts/8) {
			return true
		}
	}
	return false
}

// quiet is for how long the holder has said nothing. Who lives says something thrice in
// a lease: less than one is none, so that it is not written down, and taken back.
func (h *holding) quiet(lease, now time.Duration) time.Duration {
	if silent := now - h.heard; silent >= lease {
		return silent.Truncate(time.Millisecond)
	}
	return 0
}

// logged is the deposit as it is to stand in the log.
func (d *deposit) logged(lease, now time.Duration) Deposit {
	l := Deposit{Key: d.key, Version: d.version, Holdings: make([]Holding, len(d.holdings))}
	for i, h := range d.holdings {
		h.Silent, h.noted = h.quiet(lease, now), h.Returned
		l.Holdings[i] = h.Holding
	}
	return l
}
