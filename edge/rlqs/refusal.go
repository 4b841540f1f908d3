package rlqs

import (
	"time"
	"unicode/utf8"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/spillgate/spillgate/edge/limit"
)

// refusal is why a bucket of a message gets no place: what any client of a data plane can
// bring about, by what he writes where bucket ids are made of it, so that the stream, with
// the buckets of all others, goes on.
type refusal uint8

const (
	placed         refusal = iota // it has one
	refusedLong                   // its id is longer than maxIDBytes
	refusedEmpty                  // its id has no entry (an Envoy makes none of an empty header), so no answer can name it
	refusedText                   // a value of its id is not UTF-8, so no answer can name it
	refusedOfPlane                // its stream has as many as it may
	refusedOfEdge                 // all streams have
	refusals
)

var refusalNames = [refusals]string{"placed", "long", "empty", "text", "stream_full", "edge_full"}

// maxWaiting bounds the ids of refused buckets that wait in a stream to be told so.
const maxWaiting = MaxMessage / 2

// maxCrowd and maxCrowdIDs are how many buckets without a place a data plane may keep, and
// how many bytes their names have.
const (
	maxCrowd    = 10_000
	maxCrowdIDs = maxCrowd * idShare
)

// crowd is the buckets without a place that a data plane still has, as far as is known: an
// Envoy keeps, and reports in each message, what it was not told to abandon.
type crowd struct {
	buckets, ids int
	since        time.Time
}

// heard begins anew where a message tells of all buckets, as far as one can see: of several,
// with most of those that have a place; and where all were told of meanwhile.
func (c *crowd) heard(now time.Time, s *stream, why []refusal) {
	told := 0
	for _, w := range why {
		if w == placed {
			told++
		}
	}
	if len(why) > 1 && 2*told >= len(s.subs) || s.pace > 0 && now.Sub(c.since) > 2*s.pace {
		*c = crowd{since: now}
	}
}

// comes counts one more; much says that it is one too many.
func (c *crowd) comes(size int) (much bool) {
	c.buckets++
	c.ids += size
	return c.buckets > maxCrowd || c.ids > maxCrowdIDs
}

func (c *crowd) goes(size int) {
	c.buckets--
	c.ids -= size
}

// refusalOf says why a bucket with that id, which is valid, can have no place whatever room
// there is.
func refusalOf(id *quotav3.BucketId) refusal {
	if len(id.Bucket) == 0 {
		return refusedEmpty
	}
	for key, value := range id.Bucket { // first: what is too long is answered, and of this no answer can be written
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return refusedText
		}
	}
	if idBytes(id) > maxIDBytes {
		return refusedLong
	}
	return placed
}

func idBytes(id *quotav3.BucketId) (size int) {
	for key, value := range id.GetBucket() {
		size += len(key) + len(value)
	}
	return size
}

// turnAway takes in what was used of a bucket that gets no place: it is charged, and once
// its limit is used up the data plane is told to admit nothing for a while. Until then it is
// told nothing and does what its no_assignment_behavior says, so that a crowd of invented
// clients takes nothing from those who are new. An id that is too long is nobody's, and is
// denied at once. What was not used since it was last reported is to be abandoned, but for what
// is denied for want of room, as its next requests would pass as first ones; and where a data
// plane has maxCrowd of them, whatever comes: its reports of all are to stay below MaxMessage.
func (b *book) turnAway(now time.Time, ns *limit.Namespace, s *stream, in *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage, why refusal) {
	b.metrics.allowed.Add(float64(in.NumRequestsAllowed))
	b.metrics.denied.Add(float64(in.NumRequestsDenied))
	b.metrics.turnedAway[why].Inc()
	// It is of no stream's and of nobody's list: only what is told refers to it.
	sub := &subscription{stream: s, bucket: &bucket{name: nameOf(s.domain, in.BucketId), domain: s.domain, id: in.BucketId}}
	if beyond := b.claimOrphans(now, sub, in.NumRequestsAllowed); beyond > 0 {
		b.charge(now, ns, sub.bucket, beyond)
	}
	size := len(sub.bucket.name)
	much := s.away.comes(size)
	if why == refusedText || why == refusedEmpty || b.unheard(s, size) {
		return
	}
	to, unused := kindDeny, in.NumRequestsAllowed == 0 && in.NumRequestsDenied == 0
	if much || unused && why == refusedLong {
		to = kindAbandon
	} else if why != refusedLong {
		switch d := b.one(now, ns, sub.bucket); {
		case d.Allowed && unused:
			to = kindAbandon
		case d.Allowed:
			return
		case d.Basis.CutOff:
			to = kindCutOff
		}
	}
	if to == kindAbandon {
		s.away.goes(size)
	}
	s.waiting += size
	b.waiting += size
	b.tell(action{sub: sub, kind: to, ttl: b.cfg.TTL})
}

// unheard says that what waits in a stream's outbox, or in all, leaves no room for a refused
// bucket with a name of that size: half is for those that have a place.
func (b *book) unheard(s *stream, size int) bool {
	return s.waiting+size > maxWaiting || len(s.outbox) >= 2*b.cfg.MaxStreamBuckets ||
		b.waiting+size > idRoom(b.cfg.MaxBuckets) || b.outboxed >= b.cfg.MaxBuckets
}

// one says whether there is room for one more request of a bucket; it charges nothing.
func (b *book) one(now time.Time, ns *limit.Namespace, bk *bucket) limit.Decision {
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	req.Cost, _ = price(req)
	req.Lump, req.Peek = 1, true
	return b.limiter.Check(now, req)
}
