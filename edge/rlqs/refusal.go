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
const maxWaiting = 1 << 20

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
// denied at once.
func (b *book) turnAway(now time.Time, ns *limit.Namespace, s *stream, in *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage, why refusal) {
	b.metrics.allowed.Add(float64(in.NumRequestsAllowed))
	b.metrics.denied.Add(float64(in.NumRequestsDenied))
	b.metrics.turnedAway[why].Inc()
	// It is of no stream's and of nobody's list: only what is told refers to it.
	sub := &subscription{stream: s, bucket: &bucket{name: nameOf(s.domain, in.BucketId), domain: s.domain, id: in.BucketId}}
	if beyond := b.claimOrphan(now, sub, in.NumRequestsAllowed); beyond > 0 {
		b.charge(now, ns, sub.bucket, beyond)
	}
	size := idBytes(in.BucketId)
	if why == refusedText || why == refusedEmpty || s.waiting+size > maxWaiting || len(s.outbox) >= 2*b.cfg.MaxStreamBuckets { // the other half is for those that have a place
		return
	}
	to := kindDeny
	if why != refusedLong {
		switch d := b.one(now, ns, sub.bucket); {
		case d.Allowed:
			return
		case d.Basis.CutOff:
			to = kindCutOff
		}
	}
	s.waiting += size
	b.tell(action{sub: sub, kind: to, ttl: b.cfg.TTL})
}

// one says whether there is room for one more request of a bucket; it charges nothing.
func (b *book) one(now time.Time, ns *limit.Namespace, bk *bucket) limit.Decision {
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	req.Cost, _ = price(req)
	req.Peek = true
	return b.limiter.Check(now, req)
}
