package limit

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Charge is what one counter was charged by a decision, so that it can be given
// back: a request that failed before it did any work, a slot of a concurrency
// limit. It names the slice, as a refund stands beside its charge.
type Charge struct {
	Rule     *Rule
	Rate     *Rate
	Counter  uint64        // the name that the node counts under
	Slice    crdt.Slice    // that the charge stands in
	At       int64         // when it was made, in ns since 1970; 0: not known
	Boot     time.Duration // of a strict rate: when its rights were spent, see Instant
	Turn     int64         // when its request may go on, by this counter: At, or later where it was told to wait
	Withheld uint64        // of the limit from its request, for higher classes
	Cost     uint64        // what is left to give back
	Borrower uint64        // what was borrowed was so for this counter; 0: it was not, or nobody else gives it back
}

// HasTurns says that requests which the rule's rate admits may be told to wait: for
// their turn in its queue, or for room in it.
func (r *Rate) HasTurns(rule *Rule) bool { return r.Queue || rule.MaxDelay > 0 && r.Bucket() }

// MayReturn says that a charge may be given back at now. Where requests are told turns, it
// may if it was admitted last, or nobody waits: those behind it keep their turns, and the
// next to come would be told one of theirs, so that the two came out together. What may
// not be given back drains as if it was used: its place stays empty. The arguments are
// those of Measure, of the counter that was charged.
func (c *Charge) MayReturn(x *Exact, sums []crdt.Cell, carry Carry, now int64) bool {
	r := c.Rate
	if !r.HasTurns(c.Rule) {
		return true
	}
	if now < c.At {
		if r.setBack(c.At, now) || x != nil && max(x.bucket.at, x.bucket.turns.told) < c.At {
			return false // by a clock that was set back since nobody's turn is known any more
		}
		now = c.At
	}
	// So much is used once its turn has come, itself included, if nothing came after it.
	// What was let in at once is not told from what others wait behind, but by the least
	// room that any who waits was told.
	per, room := uint64(r.Drain.Per), wide{}
	switch {
	case r.Queue && x != nil && !x.bucket.turns.last(c, now):
		return false
	case r.Queue:
		room = product(crdt.SatAdd(r.Drain.Floor, c.Cost), per)
		if c.Turn < now {
			room = room.minus(product(r.Drain.Refill, uint64(now)-uint64(c.Turn)))
		}
	case c.Turn < now:
		least := crdt.SatSub(r.Ceiling, r.Withheld(0))
		if x != nil && now < x.bucket.turns.lines[0].turn {
			least = min(least, x.bucket.turns.least)
		}
		room = product(least, per)
	default:
		room = product(crdt.SatSub(r.Ceiling, c.Withheld), per)
	}
	whole, rem := room.over(per)
	part, _ := product(rem, micro).over(per)
	return r.drained(x, sums, carry, crdt.SatAdd(satMul(whole, micro), part), room, now) <= time.Duration(max(0, c.Turn-now))
}
