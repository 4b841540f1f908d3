package rlqs

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// orphanKey is a bucket, and the host of a data plane whose stream ended.
type orphanKey struct{ host, bucket string }

// mostOrphans is how many are kept of a bucket and a host: an Envoy has one stream for each of its
// filters, and several may be behind one address.
const mostOrphans = 8

// orphan is what a subscription had whose stream ended. What its host reports of that on another
// stream is charged already. Where the first report there shows that none was lost between, its
// data plane goes on with it, as if the stream had not ended; else what is left of it stays
// charged, as it may have been spent.
type orphan struct {
	was      subscription  // without its bucket and its stream
	answered time.Time     // when its data plane was last told what it may report on at once
	pace     time.Duration // of its stream
	byTimer  bool
	until    time.Time
}

// orphan keeps what a subscription was granted for its host. What was never told is given back.
func (b *book) orphan(now time.Time, sub *subscription) {
	o := &orphan{answered: sub.made, pace: sub.stream.pace, byTimer: sub.stream.byTimer, until: now.Add(orphansFor)}
	told := !sub.unsent || sub.kind == kindTokens && !sub.granted
	if told && sub.kind == kindTokens {
		o.answered = sub.began
	}
	b.unsend(now, sub)
	key := orphanKey{sub.stream.host, sub.bucket.name}
	if sub.grants.left() == 0 || b.orphaned >= b.cfg.MaxBuckets || b.orphanIDs+len(key.bucket) > idRoom(b.cfg.MaxBuckets) {
		return
	}
	o.was = *sub
	if o.was.bucket, o.was.stream = nil, nil; !told {
		o.was.kind = kindNone // it says what nobody was told
	}
	b.orphans[key] = append(b.orphans[key], o)
	b.orphaned++
	b.orphanIDs += len(key.bucket)
	if of := b.orphans[key]; len(of) > mostOrphans { // of a stream that breaks again and again: nobody goes on with the oldest
		oldest, next := of[0], &of[1].was
		next.grants = grants{{left: crdt.SatAdd(oldest.was.grants.left(), next.grants.left())}}
		next.demand.told = 0
		b.forget(key, func(o *orphan) bool { return o == oldest })
	}
}

// forget forgets those orphans of a key that are to be.
func (b *book) forget(key orphanKey, of func(o *orphan) bool) {
	had := b.orphans[key]
	left := slices.DeleteFunc(had, of)
	b.orphaned -= len(had) - len(left)
	b.orphanIDs -= (len(had) - len(left)) * len(key.bucket)
	if b.orphans[key] = left; len(left) == 0 {
		delete(b.orphans, key)
	}
}

// crowdOut forgets some where they and the buckets of streams are half as many again as those may
// be: they take memory beside them for a while, and not as much again.
func (b *book) crowdOut() {
	if 2*(b.subs+b.orphaned) <= 3*b.cfg.MaxBuckets {
		return
	}
	for key := range b.orphans {
		b.forget(key, func(*orphan) bool { return true })
		return
	}
}

// sweep forgets those that are over.
func (b *book) sweep(now time.Time) {
	if now.Sub(b.swept) < sweepEvery {
		return
	}
	b.swept = now
	for key := range b.orphans {
		b.forget(key, func(o *orphan) bool { return now.After(o.until) })
	}
}

// claimOrphans takes what was reported beyond the grants of this stream off those of earlier
// ones of the same host, and says what is beyond these, too.
func (b *book) claimOrphans(now time.Time, sub *subscription, beyond uint64) uint64 {
	key := orphanKey{sub.stream.host, sub.bucket.name}
	if beyond == 0 || len(b.orphans[key]) == 0 {
		return beyond
	}
	b.forget(key, func(o *orphan) bool {
		if !now.After(o.until) {
			beyond = o.was.grants.claim(beyond)
		}
		return o.was.grants.left() == 0
	})
	return beyond
}

// goOn has a new subscription go on with what its data plane had on a stream that ended, where
// its first report, which is of so much time, proves that it is the same one and that none of
// its reports was lost.
func (b *book) goOn(now time.Time, sub *subscription, elapsed time.Duration) bool {
	key := orphanKey{sub.stream.host, sub.bucket.name}
	var of *orphan
	for _, o := range b.orphans[key] {
		if o.proves(now, elapsed) && (of == nil || o.off(now, elapsed) < of.off(now, elapsed)) {
			of = o
		}
	}
	if of == nil {
		return false
	}
	b.forget(key, func(o *orphan) bool { return o == of })
	bk, s := sub.bucket, sub.stream
	*sub = of.was
	sub.bucket, sub.stream, sub.resting = bk, s, 0
	s.pace, s.byTimer = max(s.pace, of.pace), s.byTimer || of.byTimer
	for i := range sub.grants { // what was told last may not have come: all end with what is told now
		sub.grants[i].ends = now.Add(b.cfg.TTL)
	}
	return true
}

// off is how far the time that a report says it is of is from that since the last one was heard.
func (o *orphan) off(now time.Time, elapsed time.Duration) time.Duration {
	return (now.Sub(o.was.demand.heard) - elapsed).Abs()
}

// proves says that no report came between the last one that was heard and one that is of so much
// time: it would have come an interval after that, of which half is for what messages take, and
// for the part of a second that Envoy does not tell. One that is sent as an assignment comes may
// come sooner, so none of these is to be under way.
func (o *orphan) proves(now time.Time, elapsed time.Duration) bool {
	interval := o.was.demand.told
	if !o.byTimer && o.was.demand.heard.Sub(o.answered) < settleAfter {
		return false
	}
	return elapsed > 0 && interval >= settleAfter && o.off(now, elapsed) < min(interval, 2*settleAfter)/2
}

// resume tells a data plane that goes on what it had, where none of that was used, so that it is
// no more to one that does not have it; else something new, as what is left of the old is given
// back once it is over.
func (b *book) resume(now time.Time, ns *limit.Namespace, sub *subscription) {
	n := len(sub.grants)
	if sub.spent > 0 || sub.single || !sub.extendable(now) || sub.grants[n-1].left < sub.tokens {
		sub.kind = kindNone
		b.assign(now, ns, sub, min(b.first(now, ns, sub), sub.demand.want(b.cfg.TTL)))
		return
	}
	b.meet(now, ns, sub.bucket)
	b.extend(sub)
}
