package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// While a slice lasts, what is used falls: the oldest slice fades, a bucket
// drains. An allowance that is good until the slice ends does not have that
// yet. Nobody is denied for it, as who finds too little has it looked at anew;
// but in a margin and near a limit it is what a decision tells. There it is
// good for a moment only, which bounds what a key costs that lives there.

// moments is how many of them a slice has.
const moments = 1024

func momentOf(rate *limit.Rate) int64 {
	moment := int64(rate.Width)/moments + 1
	if ages(rate) {
		return min(moment, int64(longestMoment))
	}
	return moment
}

// longestMoment is that of a rate whose margin closes with the age of what is known.
const longestMoment = 100 * time.Millisecond

// fades says that what is used of the rate falls within a slice.
func fades(rate *limit.Rate) bool {
	return rate.Bucket() || rate.Algorithm == limit.SlidingWindow || rate.Algorithm == limit.SubWindows && rate.Oldest != limit.OldestFull
}

// ages says that what may be admitted above the limit falls while others are not heard
// of (see cluster.closed).
func ages(rate *limit.Rate) bool {
	return rate.Consistency == limit.Adaptive && margin(rate) > 0 && rate.Scope != limit.ScopeEdge
}

// banded says that a decision is told as in a margin, or near a limit, where so
// much of the ceiling is left.
func banded(rate *limit.Rate, left uint64) bool {
	return left < margin(rate) || near(rate, left)
}

// faded says that the allowance may be another by now, and that this would show
// in the decision of a request that costs so much.
func (r *record) faded(rate *limit.Rate, cost uint64, now int64) bool {
	if rate.Near == 0 && rate.Ceiling <= rate.Limit { // nothing would show, as for most
		return false
	}
	return banded(rate, crdt.SatSub(r.left(rate), cost)) && !r.momentary(rate, now) && (fades(rate) || ages(rate))
}

// momentary says that the allowance is good for a moment, and so was made a
// moment ago at the most.
func (r *record) momentary(rate *limit.Rate, now int64) bool {
	return r.until-now <= momentOf(rate) && r.until != rate.EndOf(r.block.slice)
}

// refold folds the counter's record.
func (n *Node) refold(c *counter, now int64) {
	n.shard(c.key).refold(c.record, c.rule, c.rate, c.cost, c.need, now)
}

// refold folds a record; what it tells in a margin or near a limit is good for a
// moment. A denial is good for as long as it says.
func (s *shard) refold(r *record, rule *limit.Rule, rate *limit.Rate, cost, need uint64, now int64) {
	s.fold(r, rule, rate, now)
	if r.allowance >= need && (fades(rate) || ages(rate)) && banded(rate, crdt.SatSub(r.left(rate), cost)) {
		r.limitTo(rate, now)
	}
}

// limitTo lets an allowance that was just made be good for a moment.
func (r *record) limitTo(rate *limit.Rate, now int64) {
	r.until = min(r.until, now+momentOf(rate), rate.EndOf(r.block.slice)-1)
}
