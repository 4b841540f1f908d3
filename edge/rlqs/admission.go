package rlqs

import (
	"cmp"
	"slices"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// plausible is how many requests a second one data plane can have admitted to a bucket:
// more than any machine serves. firstSpan is the time that a first report may be of.
const (
	plausible = 10_000_000
	firstSpan = time.Minute
)

// check says what of a message cannot be taken in, before any of it is; finds the rules that
// its stream is under; and says of each of its buckets whether it gets a place.
func (b *book) check(now time.Time, set *limit.Set, s *stream, in *quotav3.RateLimitQuotaUsageReports) (*limit.Namespace, []refusal, error) {
	refuse := func(err error) (*limit.Namespace, []refusal, error) {
		b.metrics.refused.WithLabelValues(refusedInvalid).Inc()
		return nil, nil, err
	}
	domain := in.GetDomain()
	switch {
	case s.domain == "" && domain == "":
		return refuse(status.Error(codes.InvalidArgument, "domain: is missing in the first report (it is the namespace of a rules file)"))
	case s.domain == "":
	case domain != "" && domain != s.domain:
		return refuse(status.Errorf(codes.InvalidArgument, "domain: is %q on a stream that began with %q (open another stream for it)", shortened(domain), shortened(s.domain)))
	default:
		domain = s.domain
	}
	ns := set.Namespace(domain)
	switch {
	case ns == nil:
		b.metrics.refused.WithLabelValues(refusedDomain).Inc()
		return nil, nil, status.Errorf(codes.NotFound, "domain: there are no rules for %q (it is the namespace: of a rules file)", shortened(domain))
	case ns.Descriptors() != nil:
		b.metrics.refused.WithLabelValues(refusedDomain).Inc()
		return nil, nil, status.Errorf(codes.FailedPrecondition, "domain: %q has envoyproxy/ratelimit's configuration, whose descriptors have an order, as the entries of a bucket_id have not (edge import envoy makes rules of it)", shortened(domain))
	}
	if n := len(in.GetBucketQuotaUsages()); n > maxUsages {
		return refuse(tooMany(n))
	}
	named, fresh, unused := map[string]bool{}, []string(nil), []string(nil)
	names, why := make([]string, len(in.GetBucketQuotaUsages())), make([]refusal, len(in.GetBucketQuotaUsages()))
	for i, usage := range in.GetBucketQuotaUsages() {
		if err := validID(i, usage.GetBucketId()); err != nil {
			return refuse(err)
		}
		if e := usage.TimeElapsed; e != nil && (e.CheckValid() != nil || e.AsDuration() < 0) {
			return refuse(status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].time_elapsed: %d s and %d ns is no time that has passed", i, e.Seconds, e.Nanos))
		}
		name, span := nameOf(domain, usage.BucketId), firstSpan
		if sub, known := s.subs[name]; known {
			span = max(time.Second, now.Sub(sub.demand.heard))
		} else if why[i] = refusalOf(usage.BucketId); why[i] == placed && !named[name] {
			if usage.NumRequestsAllowed > 0 || usage.NumRequestsDenied > 0 {
				fresh = append(fresh, name)
			} else {
				unused = append(unused, name)
			}
		}
		names[i], named[name] = name, true
		most := uint64(plausible * span.Seconds())
		if told := crdt.SatAdd(usage.NumRequestsAllowed, usage.NumRequestsDenied); told > most {
			return refuse(status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d]: %d requests since the last report cannot be (%d at the most)", i, told, most))
		}
	}
	used := len(fresh)
	fresh = append(fresh, unused...)
	room, full, err := b.room(now, s, named, fresh, used)
	if err != nil {
		b.metrics.refused.WithLabelValues(refusedFull).Inc()
		return nil, nil, err
	}
	if room < len(fresh) {
		late := map[string]bool{}
		for _, name := range fresh[room:] {
			late[name] = true
		}
		for i, name := range names {
			if late[name] {
				why[i] = full
			}
		}
	}
	return ns, why, nil
}

// usagesField is the number of bucket_quota_usages.
const usagesField = 2

func tooMany(usages int) error {
	return status.Errorf(codes.InvalidArgument, "bucket_quota_usages: %d are too many (%d at the most)", usages, maxUsages)
}

// idRoom is how many bytes the names of so many buckets may have: most are far shorter than
// the longest, of which as many would take the memory of ten.
func idRoom(buckets int) int { return buckets*idShare + maxIDBytes }

// room makes room for a stream's new subscriptions, and says for how many there is, of the first
// ones, and what is full where that is not all. Those that are at rest make way for those that
// were used, which come first, but for those that the message names.
func (b *book) room(now time.Time, s *stream, named map[string]bool, fresh []string, used int) (int, refusal, error) {
	more, full := 0, placed
	if most := b.cfg.MaxStreamBuckets; len(s.subs)+len(fresh) > most || s.ids+size(fresh) > idRoom(most) {
		if used < len(fresh) {
			fresh, full = fresh[:used], refusedOfPlane
		}
		if now.Sub(s.swept) >= tickEvery { // a crowd's every message would have it look at all
			s.swept = now
			b.makeWay(now, s, named, used, size(fresh))
		}
	}
	bytes := 0
	for _, name := range fresh {
		bytes += len(name)
		if len(s.subs)+more >= b.cfg.MaxStreamBuckets || s.ids+bytes > idRoom(b.cfg.MaxStreamBuckets) {
			full = refusedOfPlane
			break
		}
		if b.subs+more >= b.cfg.MaxBuckets || b.ids+bytes > idRoom(b.cfg.MaxBuckets) {
			full = refusedOfEdge
			break
		}
		more++
	}
	if b.outboxed+more > 2*b.cfg.MaxBuckets && more > 0 { // most are not read
		return 0, refusedOfEdge, nil
	}
	if n := len(s.outbox) + more; more > 0 && n > 4*b.cfg.MaxStreamBuckets {
		return 0, full, status.Errorf(codes.ResourceExhausted, "%d actions wait to be read from this stream", len(s.outbox))
	}
	return more, full, nil
}

func size(names []string) (sum int) {
	for _, name := range names {
		sum += len(name)
	}
	return sum
}

// makeWay abandons as many of a stream's buckets at rest as so many that come need, and some
// that come after them: those that were not used for the longest time first. One that is denied
// stays for longer, as its data plane takes its requests for first ones once it is forgotten.
func (b *book) makeWay(now time.Time, s *stream, named map[string]bool, coming, bytes int) {
	var resting []*subscription
	for name, sub := range s.subs {
		if !named[name] && sub.atRest(now) && (!sub.kind.denies() || sub.idle() || sub.unheard(now)) {
			resting = append(resting, sub)
		}
	}
	slices.SortFunc(resting, func(x, y *subscription) int { return cmp.Compare(y.demand.quiet, x.demand.quiet) })
	most, room := b.cfg.MaxStreamBuckets, idRoom(b.cfg.MaxStreamBuckets)
	for _, sub := range resting {
		if len(s.subs)+coming <= most-most/spareParts && s.ids+bytes <= room-room/spareParts {
			return
		}
		b.abandon(now, sub)
	}
}

// spareParts is the part of a stream's places that are made free at a time.
const spareParts = 10

// shortened keeps what a caller wrote short in what he is told.
func shortened(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
