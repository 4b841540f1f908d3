package rlqs

import (
	"cmp"
	"math/rand/v2"
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
	meetings map[uint64]*meeting // by counter
	subs     int
	order    []*bucket // the same, for tick to go through; one that is gone leaves its place to the last
	cursor   int       // of the tick under way: those before it are still to be looked at
	ids      int       // bytes of the names of these, each as often as it is subscribed to
	streams  int

	orphans   map[orphanKey][]*orphan
	orphaned  int       // of them
	orphanIDs int       // bytes of their names
	swept     time.Time // when those that are over were last looked for

	outboxed int // actions in all outboxes
	waiting  int // bytes of the ids of refused buckets among them
}

// bucket is one that some data plane has subscribed to.
type bucket struct {
	name   string
	domain string
	id     *quotav3.BucketId
	subs   []*subscription
	at     int              // in the book's order
	meets  []uint64         // counters, of the rules that it is under
	under  *limit.Namespace // nil: not known yet
}

// subscription is one stream's of one bucket.
type subscription struct {
	bucket *bucket
	stream *stream
	demand demand
	grants grants
	asks   asks

	born    time.Time
	kind    kind
	tokens  uint64    // of the assignment
	spent   uint64    // reported since it was made
	made    time.Time // it was, or was last extended
	began   time.Time // when it was made
	ends    time.Time
	serial  uint32
	unsent  bool      // it waits in the stream
	granted bool      // it is of tokens that were granted for it
	gone    bool      // it was dropped: what waits of it is told nobody
	pressed bool      // there was nothing left for it when it was last in use
	isDue   bool      // in the round under way
	retry   time.Time // when there may be room, after there was none
	resting uint64    // tokens of it that are held at rest in a crowd
	single  bool      // a rate counts its requests one by one
}

// stream is one data plane's, as the book knows it.
type stream struct {
	domain string
	host   string
	subs   map[string]*subscription
	ids    int           // bytes of their names
	pace   time.Duration // the longest that a bucket of it was not reported; 0: none was twice
	// byTimer is that its data plane does not report when it is assigned anything: as Envoy.
	byTimer bool
	away    crowd
	outbox  []action
	// waiting is how many bytes the ids of refused buckets in it have; swept is when those
	// at rest were last looked for.
	waiting int
	swept   time.Time
	wake    chan struct{} // of room for one: the outbox has something
	closed  bool
}

func newBook(limiter Limiter, cfg Config) *book {
	return &book{
		limiter: limiter, cfg: cfg, metrics: newMetrics(cfg.Registerer),
		buckets: map[string]*bucket{}, meetings: map[uint64]*meeting{}, orphans: map[orphanKey][]*orphan{},
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
		b.orphan(now, sub)
		b.drop(sub)
	}
	b.unbox(s)
}

// unbox empties an outbox.
func (b *book) unbox(s *stream) []action {
	out := s.outbox
	b.outboxed -= len(out)
	b.waiting -= s.waiting
	s.outbox, s.waiting = nil, 0
	return out
}

// unsend gives back what a data plane was granted and never told.
func (b *book) unsend(now time.Time, sub *subscription) {
	n := sub.had()
	b.giveBack(now, sub.grants[n:])
	sub.grants, sub.unsent = sub.grants[:n], false
}

// had is how many of its grants a data plane was told of: the last may still wait.
func (sub *subscription) had() int {
	n := len(sub.grants)
	if sub.unsent && sub.granted && n > 0 {
		n--
	}
	return n
}

// drop forgets a subscription, and its bucket with the last one.
func (b *book) drop(sub *subscription) {
	bk := sub.bucket
	b.rest(sub, 0)
	bk.subs = slices.DeleteFunc(bk.subs, func(other *subscription) bool { return other == sub })
	delete(sub.stream.subs, bk.name)
	sub.stream.ids -= len(bk.name)
	b.ids -= len(bk.name)
	b.subs--
	sub.gone, sub.grants = true, nil
	b.metrics.subscriptions.Dec()
	if len(bk.subs) == 0 {
		b.part(bk)
		delete(b.buckets, bk.name)
		last := b.order[len(b.order)-1]
		b.order[bk.at], last.at = last, bk.at
		b.order[len(b.order)-1] = nil
		b.order = b.order[:len(b.order)-1]
		b.metrics.buckets.Dec()
	}
}

// abandon drops a subscription and tells its data plane.
func (b *book) abandon(now time.Time, sub *subscription) {
	b.unsend(now, sub)
	b.drop(sub)
	b.tell(action{sub: sub, kind: kindAbandon})
}

// tell puts an action in its stream's outbox.
func (b *book) tell(a action) {
	s := a.sub.stream
	s.outbox = append(s.outbox, a)
	b.outboxed++
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
	return slices.DeleteFunc(b.unbox(s), func(a action) bool {
		sub := a.sub
		if a.kind == kindAbandon || !sub.unsent {
			return a.kind != kindAbandon && sub.gone
		}
		late := a.kind == kindTokens && !sub.granted && !sub.extendable(now)
		if sub.unsent = false; late {
			return true
		}
		if sub.made, sub.ends = now, now.Add(a.ttl); sub.granted {
			sub.began = now
		}
		if n := len(sub.grants); n > 0 { // the assignment before this one ends now
			last := n - 1
			if a.kind == kindTokens {
				sub.grants[last].ends = sub.ends
				last--
			}
			sub.grants[:last+1].replace(now)
		}
		return false
	})
}

// extendable says that the same assignment, told again, gets to its data plane while that
// still has it: to who has it no more it is a new one, with all its tokens.
func (sub *subscription) extendable(now time.Time) bool {
	return sub.kind == kindTokens && now.Before(sub.ends.Add(-settleAfter/2))
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
	s.away.heard(now, s, why)
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
	elapsed := min(in.TimeElapsed.AsDuration(), maxPace) // 0: it does not say
	sub, known := s.subs[name]
	goesOn := known
	if known {
		s.pace = max(s.pace, min(now.Sub(sub.demand.heard), maxPace))
	} else {
		sub = b.subscribe(now, name, s, in.BucketId)
		goesOn = b.goOn(now, sub, elapsed)
	}
	gap := time.Duration(0) // since its last report
	if goesOn {
		gap = now.Sub(sub.demand.heard)
	}
	sub.spent = crdt.SatAdd(sub.spent, b.ofThis(now, sub, allowed))
	if allowed > 0 || denied > 0 {
		b.rest(sub, 0)
		sub.pressed = sub.pressed && !sub.idle() || denied > 0 && goesOn && sub.left() == 0
	}
	s.byTimer = s.byTimer || sub.late(elapsed)
	sub.demand.report(now, crdt.SatAdd(allowed, denied), cmp.Or(elapsed, gap), sub.made.After(sub.demand.heard))
	switch {
	case known:
		sub.demand.told = elapsed
	case goesOn: // its timer may have been late, or have stood still
		sub.demand.told = min(sub.demand.told, elapsed)
	}
	beyond := b.claimOrphans(now, sub, sub.grants[:sub.had()].claim(allowed))
	b.charge(now, ns, sub.bucket, beyond)
	sub.asks.add(crdt.SatAdd(allowed-beyond, denied), gap)
	b.giveBack(now, sub.grants.settle(now, sub.had()))
	switch {
	case known:
	case goesOn:
		b.resume(now, ns, sub)
	default:
		b.assign(now, ns, sub, b.first(now, ns, sub))
	}
}

// late says that a report of so much time, the first since tokens were assigned, was not sent
// when these came.
func (sub *subscription) late(elapsed time.Duration) bool {
	return sub.began.After(sub.demand.heard) && elapsed-sub.began.Sub(sub.demand.heard) > settleAfter/2
}

// ofThis is how much of what was admitted since the last report is taken to be of the present
// assignment: all, but for a data plane that had several meanwhile, a part by their times.
func (b *book) ofThis(now time.Time, sub *subscription, allowed uint64) uint64 {
	over, since := now.Sub(sub.demand.heard), now.Sub(sub.began)
	if !b.seldom(sub) || since >= over {
		return allowed
	}
	return uint64(float64(allowed) * max(0, since.Seconds()) / over.Seconds())
}

func (b *book) subscribe(now time.Time, name string, s *stream, id *quotav3.BucketId) *subscription {
	bk := b.buckets[name]
	if bk == nil {
		bk = &bucket{name: name, domain: s.domain, id: id, at: len(b.order)}
		b.buckets[name] = bk
		b.order = append(b.order, bk)
		b.metrics.buckets.Inc()
	}
	sub := &subscription{bucket: bk, stream: s, born: now, demand: demand{pace: b.cfg.TTL / 2}, serial: rand.Uint32()}
	bk.subs = append(bk.subs, sub)
	s.subs[bk.name] = sub
	s.ids += len(bk.name)
	b.ids += len(bk.name)
	b.subs++
	b.crowdOut()
	b.metrics.subscriptions.Inc()
	return sub
}
