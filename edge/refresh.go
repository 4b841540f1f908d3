package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// refreshAfter is how long counts rest before they are sent again unasked,
// against losses that nobody noticed.
func refreshAfter(rate *limit.Rate) time.Duration { return max(5*time.Second, rate.Window/6) }

// NextRefresh is when Tick will next send resting counts again, if nothing is
// charged until then; the zero time where no live key has counts that would
// still matter. It looks at every live key: it is for a loop on virtual time,
// which may rest until then.
func (n *Node) NextRefresh() time.Time {
	next := int64(0)
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j := range s.table {
			if at := s.table[j].refresh(); at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
		s.mu.Unlock()
	}
	if next == 0 {
		return time.Time{}
	}
	return time.Unix(0, next).UTC()
}

// refresh is when the record's counts are due again, 0: never.
func (r *record) refresh() int64 {
	if r.key == 0 {
		return 0
	}
	b := r.block
	if r.sentAt() == 0 || b.rate.Scope == limit.ScopeEdge {
		return 0
	}
	at := r.fullAt() + int64(refreshAfter(b.rate)) + 1
	last, ok := b.own.Last()
	if r.sparse() {
		last, ok = b.slice, r.fresh > 0
	}
	if (!ok || last < b.rate.Reach(at)) && !b.punished(at) {
		return 0
	}
	return at
}
