package regional

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// PenaltyAhead is how far ahead of an aggregator's clock a penalty may end: the
// longest that there is, told by an edge whose clock is as far ahead as a slice
// may be. One that ends later was made by a clock that is wrong.
const PenaltyAhead = limit.MaxWindow + maxAhead

// penalty is when whoever was denied is let in again: a register that joins by
// the later. It is kept until it is over, whatever becomes of the counts.
type penalty struct {
	until int64 // in nanoseconds since 1970; 0: none
	lacks bool  // the store does not have it yet
}

// lasts says that a penalty until then is neither over nor beyond belief.
func lasts(until, now int64) bool { return until > now && until-now <= int64(PenaltyAhead) }

// at is the end of the penalty as it is told at now: 0 once it is over.
func (p *penalty) at(now int64) int64 {
	if !lasts(p.until, now) {
		return 0
	}
	return p.until
}

// join takes in the end of a penalty, and says whether it is a later one. What
// is beyond belief here was set before a clock was set back, and makes way.
func (p *penalty) join(until, now int64) bool {
	if !lasts(until, now) || until <= p.at(now) {
		return false
	}
	p.until = until
	return true
}

// Punished is what a Store keeps at now of an item's Until: 0 once it is over,
// or where it is further ahead than any penalty, whose clock is not the store's.
func (i *Item) Punished(now time.Time) int64 {
	t := now.UnixNano()
	if i.Until <= t || i.Until-t > int64(limit.MaxWindow+Ahead) {
		return 0
	}
	return i.Until
}
