package rlqs

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Buckets may meet in a counter: each user's in that of a rule for all. What a bucket gets
// to begin with, and while it is at rest, is little of its own limits and much of theirs,
// where clients choose how many buckets there are.

// meeting is a counter that some subscriptions are charged to.
type meeting struct {
	subs  uint64
	limit uint64 // in requests
}

// crowdPart is the part of a limit that may be held by buckets at rest, a token each.
const crowdPart = 20

// meet notes which counters a new subscription is charged to, and says how many tokens it
// may have of each, so that as many as are there and three times as many that come have
// some of what is left.
func (b *book) meet(now time.Time, ns *limit.Namespace, sub *subscription) (each uint64) {
	req := newRequest(ns, sub.bucket.id.Bucket)
	defer req.Release()
	unit, _ := price(req)
	req.Cost, req.Peek, req.Details = unit, true, true
	b.limiter.Check(now, req)
	each = firstTokens
	for _, s := range req.States {
		if s.Rule.Mode != limit.Enforce || s.Rate.CountsRequests() {
			continue
		}
		m := b.meetings[s.Counter]
		if m == nil {
			m = &meeting{}
			b.meetings[s.Counter] = m
		}
		m.subs++
		m.limit = s.Rate.Limit / max(1, unit)
		sub.meets = append(sub.meets, s.Counter)
		each = min(each, s.Remaining/max(1, unit)/(4*m.subs))
	}
	return each
}

// part takes a subscription that goes out of its counters.
func (b *book) part(sub *subscription) {
	for _, c := range sub.meets {
		m := b.meetings[c]
		if m.subs--; m.subs == 0 {
			delete(b.meetings, c)
		}
	}
	sub.meets = nil
}

// crowded says that so many buckets meet in one of its counters that they would hold too
// much of the limit if each had a token, were it used or not.
func (b *book) crowded(sub *subscription) bool {
	for _, c := range sub.meets {
		if m := b.meetings[c]; m.subs > 1 && m.subs > m.limit/crowdPart {
			return true
		}
	}
	return false
}
