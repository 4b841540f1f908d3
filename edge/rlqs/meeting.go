package rlqs

import (
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Buckets may meet in a counter: each user's in that of a rule for all. What a bucket gets
// to begin with, and while it is at rest, is little of its own limits and much of theirs,
// where clients choose how many buckets there are.
//
// Where they are a crowd, a bucket at rest keeps the tokens that it has, which were charged
// once: its assignment goes on, and takes nothing more of what the others ask for. So that
// they never hold more than the limit again, those that come when as much is held are left
// without, and so is, by chance, who makes way for them.

// meeting is a counter that some buckets are charged to.
type meeting struct {
	buckets uint64
	limit   uint64 // in requests
	resting uint64 // tokens of assignments that go on at rest
}

// crowdPart is the part of a limit that may be held by buckets at rest, a token each, which
// are charged each time that they are renewed.
const crowdPart = 20

// crowded says that so many buckets meet in it that they would hold too much of the limit if
// each had a token, were it used or not.
func (m *meeting) crowded() bool { return m.buckets > 1 && m.buckets > m.limit/crowdPart }

// peek asks about a request of a bucket and has each rate's part in the answer looked at: of
// those that are enforced, and count no requests one by one.
func (b *book) peek(now time.Time, ns *limit.Namespace, bk *bucket, each func(s *limit.State, unit uint64)) (allowed bool) {
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	unit, _ := price(req)
	req.Cost, req.Lump, req.Peek, req.Details = unit, 1, true, true
	d := b.limiter.Check(now, req)
	for i := range req.States {
		if s := &req.States[i]; s.Rule.Mode == limit.Enforce && !s.Rate.CountsRequests() {
			each(s, max(1, unit))
		}
	}
	return d.Allowed
}

// meet notes which counters a bucket is charged to by the rules in force, and says how many
// tokens of each one that comes may have, so that as many as are there and three times as
// many that come have some of what is left.
func (b *book) meet(now time.Time, ns *limit.Namespace, bk *bucket) (each uint64) {
	known := bk.under == ns
	if !known {
		b.part(bk)
		bk.under = ns
	}
	each = firstTokens
	if ns == nil {
		return each
	}
	b.peek(now, ns, bk, func(s *limit.State, unit uint64) {
		if !counted(s.Rule) {
			return // nobody takes anything of it
		}
		m := b.meetings[s.Counter]
		if !known {
			if m == nil {
				m = &meeting{}
				b.meetings[s.Counter] = m
			}
			m.buckets++
			m.limit = s.Rate.Limit / unit
			bk.meets = append(bk.meets, s.Counter)
		}
		if m != nil {
			each = min(each, s.Remaining/unit/(4*m.buckets))
		}
	})
	return each
}

// part takes a bucket out of its counters.
func (b *book) part(bk *bucket) {
	for _, sub := range bk.subs {
		b.rest(sub, 0)
	}
	for _, c := range bk.meets {
		m := b.meetings[c]
		if m.buckets--; m.buckets == 0 {
			delete(b.meetings, c)
		}
	}
	bk.meets, bk.under = nil, nil
}

// rest notes how many tokens a subscription holds at rest.
func (b *book) rest(sub *subscription, tokens uint64) {
	if tokens == sub.resting {
		return
	}
	for _, c := range sub.bucket.meets {
		m := b.meetings[c]
		m.resting += tokens - sub.resting // modulo 2^64, and never below 0
	}
	sub.resting = tokens
}

// crowd says whether a bucket meets too many others in one of its counters; whether as much
// is held at rest there as may be; and what part of it is too much.
func (b *book) crowd(bk *bucket) (crowded, full bool, over float64) {
	for _, c := range bk.meets {
		m := b.meetings[c]
		if !m.crowded() {
			continue
		}
		crowded = true
		if full = full || m.resting >= m.limit; m.resting > m.limit {
			over = max(over, float64(m.resting-m.limit)/float64(m.resting))
		}
	}
	return crowded, full, over
}

// settled says that a subscription that is due was not used, meets a crowd, and stays as it
// is: with the tokens that it has, or with none.
func (b *book) settled(now time.Time, sub *subscription) bool {
	if sub.demand.quiet == 0 {
		return false
	}
	crowded, full, over := b.crowd(sub.bucket)
	late := now.Sub(sub.made) >= b.cfg.TTL/2
	switch {
	case !crowded:
		return false
	case sub.kind == kindDeny:
		if full && late {
			b.deny(now, sub, kindDeny, 0)
		}
		return full
	case sub.kind != kindTokens || sub.left() == 0 || sub.left() > sub.demand.want(b.cfg.TTL) || sub.single || !sub.extendable(now):
		return false
	case !late:
	case rand.Float64() < over:
		b.rest(sub, 0)
		b.deny(now, sub, kindDeny, 0)
	default:
		b.rest(sub, sub.left())
		b.extend(sub)
	}
	return true
}

// roomy says that all limits of a bucket have at least half of what they admit left.
func (b *book) roomy(now time.Time, ns *limit.Namespace, bk *bucket) bool {
	roomy := true
	allowed := b.peek(now, ns, bk, func(s *limit.State, _ uint64) {
		roomy = roomy && s.Remaining >= s.Rate.Limit/2
	})
	return allowed && roomy
}
