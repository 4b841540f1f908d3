// Package dataplane is a client of the rate limit quota service that does what its proto
// says a data plane must: for tests, as no Envoy runs here. The rules are those of
// envoy/service/rate_limit_quota/v3/rlqs.proto and of the filter's
// RateLimitQuotaBucketSettings (go-control-plane v1.40).
//
// The mechanism is plain calls that take the time; Run is the shell that has a stream.
package dataplane

import (
	"maps"
	"slices"
	"sync"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Settings are those of all its buckets.
type Settings struct {
	Domain   string
	Interval time.Duration // between reports of a bucket

	// NoAssignment is what limits a bucket before its first assignment; nil: nothing.
	NoAssignment *typev3.RateLimitStrategy

	// Of a bucket whose assignment has expired: for ExpiredFor the last one goes on
	// (Reuse), or Fallback limits it; then it is abandoned. 0: at once.
	ExpiredFor time.Duration
	Reuse      bool
	Fallback   *typev3.RateLimitStrategy
}

// Plane is one data plane. It is safe for concurrent use.
type Plane struct {
	settings Settings

	mu        sync.Mutex // guards what follows
	buckets   map[string]*bucket
	began     bool // the stream's first message was sent
	abandoned int
}

// bucket is one that requests were matched into.
type bucket struct {
	id              *quotav3.BucketId
	allowed, denied uint64    // since the last report
	reported        time.Time // last
	born            time.Time
	due             bool // it is to be reported at once

	assigned bool // it has had an assignment
	strategy *typev3.RateLimitStrategy
	active   limiter
	ends     time.Time // of the assignment; zero: never
	fallback limiter   // once it has expired
}

// New returns a data plane without a stream.
func New(settings Settings) *Plane {
	return &Plane{settings: settings, buckets: map[string]*bucket{}}
}

func nameOf(id map[string]string) string {
	name := ""
	for _, key := range slices.Sorted(maps.Keys(id)) {
		name += key + "\x00" + id[key] + "\x00"
	}
	return name
}

// Allow decides about a request that is matched into a bucket.
func (p *Plane) Allow(now time.Time, id map[string]string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := nameOf(id)
	p.expire(now, name)
	b := p.buckets[name]
	if b == nil {
		b = &bucket{id: &quotav3.BucketId{Bucket: maps.Clone(id)}, born: now, reported: now, due: true}
		b.active = limiterOf(p.settings.NoAssignment, now)
		p.buckets[name] = b
	}
	by := b.active
	if b.expired(now) && !p.settings.Reuse {
		if b.fallback == nil {
			b.fallback = limiterOf(p.settings.Fallback, now)
		}
		by = b.fallback
	}
	if by.admit(now) {
		b.allowed++
		return true
	}
	b.denied++
	return false
}

func (b *bucket) expired(now time.Time) bool {
	return b.assigned && !b.ends.IsZero() && !now.Before(b.ends)
}

// expire abandons a bucket whose assignment has expired for as long as it may.
func (p *Plane) expire(now time.Time, name string) {
	if b := p.buckets[name]; b != nil && b.expired(now) && !now.Before(b.ends.Add(p.settings.ExpiredFor)) {
		delete(p.buckets, name)
		p.abandoned++
	}
}

// Apply takes in what the server says, in its order. Buckets that are assigned anything new
// are due to be reported.
func (p *Plane) Apply(now time.Time, in *quotav3.RateLimitQuotaResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range in.GetBucketAction() {
		name := nameOf(a.GetBucketId().GetBucket())
		p.expire(now, name)
		b := p.buckets[name]
		switch {
		case b == nil: // it was abandoned meanwhile
		case a.GetAbandonAction() != nil:
			delete(p.buckets, name)
			p.abandoned++
		case a.GetQuotaAssignmentAction() != nil:
			b.assign(now, a.GetQuotaAssignmentAction())
		}
	}
}

// assign goes on with the assignment where it is the same and active, else replaces it.
func (b *bucket) assign(now time.Time, to *quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction) {
	if !b.assigned || b.expired(now) || !proto.Equal(b.strategy, to.RateLimitStrategy) {
		b.active, b.strategy, b.fallback, b.due = limiterOf(to.RateLimitStrategy, now), to.RateLimitStrategy, nil, true
	}
	b.assigned, b.ends = true, time.Time{}
	if ttl := to.AssignmentTimeToLive; ttl != nil {
		b.ends = now.Add(ttl.AsDuration())
	}
}

// Reports is the next message that is due, nil where none is.
func (p *Plane) Reports(now time.Time) *quotav3.RateLimitQuotaUsageReports {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &quotav3.RateLimitQuotaUsageReports{}
	for _, name := range slices.Sorted(maps.Keys(p.buckets)) {
		p.expire(now, name)
		b := p.buckets[name]
		if b == nil || !b.due && now.Sub(b.reported) < p.settings.Interval {
			continue
		}
		out.BucketQuotaUsages = append(out.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: b.id, TimeElapsed: durationpb.New(now.Sub(b.reported)), NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied,
		})
		b.allowed, b.denied, b.reported, b.due = 0, 0, now, false
	}
	if len(out.BucketQuotaUsages) == 0 {
		return nil
	}
	if !p.began {
		out.Domain, p.began = p.settings.Domain, true
	}
	return out
}

// Reconnected begins a stream: its first message names the domain and subscribes to all
// buckets. Assignments go on until they expire.
func (p *Plane) Reconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = false
	for _, b := range p.buckets {
		b.due = true
	}
}

// Held is how many more requests a bucket's active assignment admits, as far as it says so
// in tokens.
func (p *Plane) Held(now time.Time, id map[string]string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.buckets[nameOf(id)]
	if b == nil || !b.assigned || b.expired(now) && !p.settings.Reuse {
		return 0
	}
	if t, ok := b.active.(*tokens); ok {
		t.fill(now)
		return t.have
	}
	return 0
}

// Strategy is what a bucket is limited by now: nil where it has no active assignment.
func (p *Plane) Strategy(now time.Time, id map[string]string) *typev3.RateLimitStrategy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.buckets[nameOf(id)]; b != nil && b.assigned && !b.expired(now) {
		return b.strategy
	}
	return nil
}

// Buckets is how many it tracks; Abandoned, how many it has erased.
func (p *Plane) Buckets() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.buckets) }

// Abandoned is how many buckets were erased, be it as the server said so.
func (p *Plane) Abandoned() int { p.mu.Lock(); defer p.mu.Unlock(); return p.abandoned }
