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
	// ByTimer has it report as Envoy does, and not as the proto says: a bucket with its first
	// request, in a message of its own; all of them in one each Interval; and none when it is
	// assigned anything. Of the time that they are of it tells whole seconds.
	ByTimer bool

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
	began     bool      // the stream's first message was sent
	all       time.Time // when all buckets were last reported, by timer
	fresh     []string  // by timer: buckets that are to be reported as they are new
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
		if p.buckets[name] = b; p.settings.ByTimer {
			p.fresh = append(p.fresh, name)
		}
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
			b.assign(now, p.settings.ByTimer, a.GetQuotaAssignmentAction())
		}
	}
}

// assign goes on with the assignment where it is the same and active, else replaces it.
func (b *bucket) assign(now time.Time, byTimer bool, to *quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction) {
	if !b.assigned || b.expired(now) || !proto.Equal(b.strategy, to.RateLimitStrategy) {
		b.active, b.strategy, b.fallback, b.due = limiterOf(to.RateLimitStrategy, now), to.RateLimitStrategy, nil, b.due || !byTimer
	}
	b.assigned, b.ends = true, time.Time{}
	if ttl := to.AssignmentTimeToLive; ttl != nil {
		b.ends = now.Add(ttl.AsDuration())
	}
}

// Reports is the next message that is due, nil where none is; there may be another one.
func (p *Plane) Reports(now time.Time) *quotav3.RateLimitQuotaUsageReports {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &quotav3.RateLimitQuotaUsageReports{}
	for _, name := range p.due(now) {
		b := p.buckets[name]
		elapsed := max(0, now.Sub(b.reported))
		if p.settings.ByTimer {
			elapsed = elapsed.Truncate(time.Second)
		}
		out.BucketQuotaUsages = append(out.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: b.id, TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied,
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

// due are the buckets of the next message.
func (p *Plane) due(now time.Time) (names []string) {
	for len(p.fresh) > 0 {
		name := p.fresh[0]
		if p.fresh = p.fresh[1:]; p.buckets[name] != nil && p.buckets[name].due {
			return []string{name}
		}
	}
	if p.settings.ByTimer {
		if now.Sub(p.all) < p.settings.Interval {
			return nil
		}
		p.all = now
	}
	for name := range p.buckets {
		p.expire(now, name)
		if b := p.buckets[name]; b != nil && (b.due || p.settings.ByTimer || now.Sub(b.reported) >= p.settings.Interval) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Reconnected begins a stream: its first message names the domain, and, but by timer,
// subscribes to all buckets. Assignments go on until they expire.
func (p *Plane) Reconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = false
	if p.settings.ByTimer { // it goes on
		return
	}
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
