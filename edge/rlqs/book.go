package rlqs

import (
	"cmp"
	"slices"
	"sync"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// book is who has what of which bucket. Its calls take the time, wait for nothing and send
// nothing: what is to be told a data plane waits in its stream.
type book struct {
	limiter Limiter
	cfg     Config
	metrics *metrics

	mu       sync.Mutex // guards what follows, and all that it refers to; the limiter is asked under it, which waits for no I/O
	buckets  map[string]*bucket
	subs     int
	ids      int // bytes of the names of these, each as often as it is subscribed to
	streams  int
	orphans  map[orphanKey]orphan
	orphaned int // bytes of the names of orphans
}

// bucket is one that some data plane has subscribed to.
type bucket struct {
	name   string
	domain string
	id     *quotav3.BucketId
	subs   []*subscription
}

// subscription is one stream's of one bucket.
type subscription struct {
	bucket *bucket
	stream *stream
	demand demand
	grants grants

	born    time.Time
	kind    kind
	tokens  uint64    // of the assignment
	spent   uint64    // reported since it was made
	made    time.Time // it was
	ends    time.Time
	serial  uint32
	unsent  bool      // it waits in the stream
	granted bool      // it is of tokens that were granted for it
	isDue   bool      // in the round under way
	retry   time.Time // when there may be room, after there was none
}

// stream is one data plane's, as the book knows it.
type stream struct {
	domain string
	host   string
	subs   map[string]*subscription
	ids    int // bytes of their names
	outbox []action
	// waiting is how many bytes the ids of refused buckets in it have; swept is when those
	// at rest were last looked for.
	waiting int
	swept   time.Time
	wake    chan struct{} // of room for one: the outbox has something
	closed  bool
}

// orphanKey is a bucket, and the host of a data plane whose stream ended.
type orphanKey struct{ host, bucket string }

// orphan is tokens of grants that outlived their stream: what is reported of them on
// another one is charged already. They are not given back.
type orphan struct {
	left  uint64
	until time.Time
}

func newBook(limiter Limiter, cfg Config) *book {
	return &book{
		limiter: limiter, cfg: cfg, metrics: newMetrics(cfg.Registerer),
		buckets: map[string]*bucket{}, orphans: map[orphanKey]orphan{},
	}
}

// open begins a stream from a host.
func (b *book) open(host string) (*stream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams >= b.cfg.MaxStreams {
		b.metrics.refused.WithLabelValues(refusedStreams).Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "this edge has %d streams, and takes no more: ask another edge", b.streams)
	}
	b.streams++
	b.metrics.streams.Inc()
	return &stream{host: host, subs: map[string]*subscription{}, wake: make(chan struct{}, 1)}, nil
}

// close ends a stream. What its data plane was granted stays charged: it may spend it
// until it expires, and nobody says how much it did.
func (b *book) close(now time.Time, s *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	b.streams--
	b.metrics.streams.Dec()
	for _, sub := range s.subs {
		b.unsend(now, sub)
		b.orphan(now, sub)
		b.drop(sub)
	}
	s.outbox = nil
}

// unsend gives back what a data plane was granted and never told.
func (b *book) unsend(now time.Time, sub *subscription) {
	if n := len(sub.grants); sub.unsent && sub.granted && n > 0 {
		b.giveBack(now, sub.grants[n-1:])
		sub.grants = sub.grants[:n-1]
	}
	sub.unsent = false
}

// orphan keeps what a subscription was granted for its host to claim.
func (b *book) orphan(now time.Time, sub *subscription) {
	left := sub.grants.left()
	key := orphanKey{sub.stream.host, sub.bucket.name}
	had, known := b.orphans[key]
	if left == 0 || !known && (len(b.orphans) >= b.cfg.MaxBuckets || b.orphaned+len(key.bucket) > idRoom(b.cfg.MaxBuckets)) {
		return
	}
	if !known {
		b.orphaned += len(key.bucket)
	}
	b.orphans[key] = orphan{left: crdt.SatAdd(had.left, left), until: now.Add(orphansFor)}
}

func (b *book) forget(key orphanKey) {
	delete(b.orphans, key)
	b.orphaned -= len(key.bucket)
}

// drop forgets a subscription, and its bucket with the last one.
func (b *book) drop(sub *subscription) {
	bk := sub.bucket
	bk.subs = slices.DeleteFunc(bk.subs, func(other *subscription) bool { return other == sub })
	delete(sub.stream.subs, bk.name)
	sub.stream.ids -= len(bk.name)
	b.ids -= len(bk.name)
	b.subs--
	b.metrics.subscriptions.Dec()
	if len(bk.subs) == 0 {
		delete(b.buckets, bk.name)
		b.metrics.buckets.Dec()
	}
}

// abandon drops a subscription and tells its data plane.
func (b *book) abandon(now time.Time, sub *subscription) {
	b.unsend(now, sub)
	s := sub.stream
	s.outbox = slices.DeleteFunc(s.outbox, func(a action) bool { return a.sub == sub })
	b.tell(action{sub: sub, kind: kindAbandon})
	b.drop(sub)
}

// tell puts an action in its stream's outbox.
func (b *book) tell(a action) {
	s := a.sub.stream
	s.outbox = append(s.outbox, a)
	b.metrics.assignments[a.kind].Inc()
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// take empties a stream's outbox: what is taken is as good as sent, and begins now.
func (b *book) take(now time.Time, s *stream) []action {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := s.outbox
	s.outbox, s.waiting = nil, 0
	for i := range out {
		sub := out[i].sub
		if out[i].kind == kindAbandon || !sub.unsent {
			continue
		}
		sub.unsent, sub.made, sub.ends = false, now, now.Add(out[i].ttl)
		if n := len(sub.grants); n > 0 { // the assignment before this one ends now
			last := n - 1
			if out[i].kind == kindTokens {
				sub.grants[last].ends = sub.ends
				last--
			}
			sub.grants[:last+1].replace(now)
		}
	}
	return out
}

// report takes in what a data plane used. Its error is one of gRPC; nothing of the message
// was counted then, and the stream is to end. A bucket that gets no place is none.
func (b *book) report(now time.Time, s *stream, in *quotav3.RateLimitQuotaUsageReports) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.closed {
		return nil
	}
	set := b.limiter.Rules()
	if set == nil {
		b.metrics.refused.WithLabelValues(refusedRules).Inc()
		return status.Error(codes.Unavailable, "no rules are loaded yet")
	}
	ns, why, err := b.check(now, set, s, in)
	if err != nil {
		return err
	}
	s.domain = cmp.Or(s.domain, in.GetDomain())
	for i, usage := range in.BucketQuotaUsages {
		if why[i] != placed {
			b.turnAway(now, ns, s, usage, why[i])
			continue
		}
		b.use(now, ns, s, usage)
	}
	return nil
}

// use takes in what was used of one bucket.
func (b *book) use(now time.Time, ns *limit.Namespace, s *stream, in *quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	allowed, denied := in.NumRequestsAllowed, in.NumRequestsDenied
	b.metrics.allowed.Add(float64(allowed))
	b.metrics.denied.Add(float64(denied))
	name := nameOf(s.domain, in.BucketId)
	sub, known := s.subs[name]
	if !known {
		sub = b.subscribe(now, name, s, in.BucketId)
	}
	sub.demand.report(now, crdt.SatAdd(allowed, denied), sub.made.After(sub.demand.heard))
	sub.spent = crdt.SatAdd(sub.spent, allowed)
	if beyond := b.claimOrphan(now, sub, sub.grants.claim(allowed)); beyond > 0 {
		b.charge(now, ns, sub.bucket, beyond)
	}
	b.giveBack(now, sub.grants.settle(now))
	if !known {
		b.assign(now, ns, sub, b.first(now, ns, sub))
	}
}

func (b *book) subscribe(now time.Time, name string, s *stream, id *quotav3.BucketId) *subscription {
	bk := b.buckets[name]
	if bk == nil {
		bk = &bucket{name: name, domain: s.domain, id: id}
		b.buckets[name] = bk
		b.metrics.buckets.Inc()
	}
	sub := &subscription{bucket: bk, stream: s, born: now, demand: demand{pace: b.cfg.TTL / 2}}
	bk.subs = append(bk.subs, sub)
	s.subs[bk.name] = sub
	s.ids += len(bk.name)
	b.ids += len(bk.name)
	b.subs++
	b.metrics.subscriptions.Inc()
	return sub
}

// claimOrphan takes what was reported beyond the grants of this stream off those of an
// earlier one of the same host.
func (b *book) claimOrphan(now time.Time, sub *subscription, beyond uint64) uint64 {
	if beyond == 0 {
		return 0
	}
	key := orphanKey{sub.stream.host, sub.bucket.name}
	o, known := b.orphans[key]
	if !known || now.After(o.until) {
		return beyond
	}
	take := min(o.left, beyond)
	if o.left -= take; o.left == 0 {
		b.forget(key)
	} else {
		b.orphans[key] = o
	}
	return beyond - take
}
