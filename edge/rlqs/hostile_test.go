package rlqs

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// many is a message that subscribes to so many buckets.
func many(n int, prefix string) *quotav3.RateLimitQuotaUsageReports {
	out := &quotav3.RateLimitQuotaUsageReports{Domain: "local"}
	for i := range n {
		out.BucketQuotaUsages = append(out.BucketQuotaUsages, usage("", map[string]string{"user": fmt.Sprint(prefix, i)}, 1, 0).BucketQuotaUsages...)
	}
	return out
}

// rest has a stream report that a message's buckets were not used, for long enough.
func (w *world) rest(st *stream, in *quotav3.RateLimitQuotaUsageReports) {
	w.Helper()
	for _, u := range in.BucketQuotaUsages {
		u.NumRequestsAllowed, u.NumRequestsDenied = 0, 0
	}
	for range 2 {
		w.now = w.now.Add(restAfter / 2)
		if err := w.book.report(w.now, st, in); err != nil {
			w.Fatal(err)
		}
	}
}

func elapsed(d *durationpb.Duration) *quotav3.RateLimitQuotaUsageReports {
	out := usage("local", user, 1, 0)
	out.BucketQuotaUsages[0].TimeElapsed = d
	return out
}

// TestHostileReports: what cannot be is refused by name, and nothing of its message counts.
func TestHostileReports(t *testing.T) {
	entries := map[string]string{}
	for i := range maxEntries + 1 {
		entries[fmt.Sprint("k", i)] = "v"
	}
	for _, c := range []struct {
		name string
		in   *quotav3.RateLimitQuotaUsageReports
		code codes.Code
		says string
	}{
		{"no domain", usage("", user, 1, 0), codes.InvalidArgument, "domain: is missing"},
		{"an unknown domain", usage("elsewhere", user, 1, 0), codes.NotFound, `no rules for "elsewhere"`},
		{"a long domain", usage(strings.Repeat("x", 1<<19), user, 1, 0), codes.NotFound, "..."},
		{"a huge number", usage("local", user, math.MaxUint64, 0), codes.InvalidArgument, "cannot be"},
		{"huge numbers that add up to little", usage("local", user, math.MaxUint64, 2), codes.InvalidArgument, "cannot be"},
		{"huge denials", usage("local", user, 0, math.MaxUint64), codes.InvalidArgument, "cannot be"},
		{"no bucket id", &quotav3.RateLimitQuotaUsageReports{Domain: "local", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{}}}, codes.InvalidArgument, "[0].bucket_id: is missing"},
		{"an entry without a key", usage("local", map[string]string{"": "v"}, 1, 0), codes.InvalidArgument, "without a key"},
		{"an entry without a value", usage("local", map[string]string{"user": ""}, 1, 0), codes.InvalidArgument, "without a value"},
		{"many entries", usage("local", entries, 1, 0), codes.InvalidArgument, "33 entries are too many"},
		{"a key that is no text", usage("local", map[string]string{"\xff": "v"}, 1, 0), codes.InvalidArgument, `the key "\xff" is not UTF-8`},
		{"time goes backwards", elapsed(durationpb.New(-time.Second)), codes.InvalidArgument, "time_elapsed"},
		{"no time", elapsed(&durationpb.Duration{Seconds: math.MaxInt64, Nanos: -5}), codes.InvalidArgument, "time_elapsed"},
		{"too many reports", many(maxUsages+1, "u"), codes.InvalidArgument, "are too many"},
		{"the last of many", &quotav3.RateLimitQuotaUsageReports{Domain: "local", BucketQuotaUsages: append(many(50, "u").BucketQuotaUsages, usage("", map[string]string{"": "v"}, 1, 0).BucketQuotaUsages...)}, codes.InvalidArgument, "[50].bucket_id"},
		{"nobody used anything", usage("local", user, 0, 0), codes.OK, ""},
		{"no reports", &quotav3.RateLimitQuotaUsageReports{Domain: "local"}, codes.OK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{MaxStreamBuckets: 100}, perUser(fixed(1000, time.Hour)))
			st, _ := w.book.open("a")
			err := w.book.report(w.now, st, c.in)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) || len(fmt.Sprint(err)) > 400 {
				t.Errorf("report(%.100v) = %v, want %v: %s", c.in, err, c.code, c.says)
			}
			if err != nil && (w.used() != 0 || w.book.subs != 0) {
				t.Errorf("it was refused, and %d are charged and %d subscribed", w.used(), w.book.subs)
			}
		})
	}
}

// TestAnotherDomain: a stream is of one.
func TestAnotherDomain(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	st, _ := w.book.open("a")
	for _, c := range []struct {
		domain string
		code   codes.Code
	}{{"local", codes.OK}, {"", codes.OK}, {"local", codes.OK}, {"other", codes.InvalidArgument}} {
		if err := w.book.report(w.now, st, usage(c.domain, user, 1, 0)); status.Code(err) != c.code {
			t.Errorf("domain %q after local: %v, want %v", c.domain, err, c.code)
		}
	}
}

// TestBoundedBuckets: millions of buckets take the place of those at rest, or are refused;
// the bound of all holds over streams.
func TestBoundedBuckets(t *testing.T) {
	alone.Mark(t)
	w := newWorld(t, Config{MaxStreamBuckets: 100, MaxBuckets: 150, MaxStreams: 3}, perUser(fixed(1000, time.Hour)))
	first, _ := w.book.open("a")
	for i := range 1000 {
		if err := w.book.report(w.now, first, many(100, fmt.Sprint(i, "-"))); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if n := len(first.subs); n > 100 {
			t.Fatalf("round %d: %d buckets", i, n)
		}
		w.book.take(w.now, first)
		w.rest(first, many(100, fmt.Sprint(i, "-")))
	}
	if err := w.book.report(w.now, first, many(100, "999-")); err != nil {
		t.Fatal(err)
	}
	turned := func(why refusal) float64 { return testutil.ToFloat64(w.book.metrics.turnedAway[why]) }
	if err := w.book.report(w.now.Add(-1), first, many(1, "fresh")); err != nil || len(first.subs) != 100 || turned(refusedOfPlane) != 1 {
		t.Errorf("one more while none is at rest: %v, %d buckets, %v turned away", err, len(first.subs), turned(refusedOfPlane))
	}
	second, _ := w.book.open("b")
	if err := w.book.report(w.now, second, many(51, "other")); err != nil || w.book.subs != 150 || turned(refusedOfEdge) != 1 {
		t.Errorf("51 more of 150 in all, with 100: %v, %d, %v turned away", err, w.book.subs, turned(refusedOfEdge))
	}
	if err := w.book.report(w.now, second, many(50, "other")); err != nil || w.book.subs != 150 || turned(refusedOfEdge) != 1 {
		t.Errorf("the 50 that have a place: %v, %d, %v turned away", err, w.book.subs, turned(refusedOfEdge))
	}
	third, _ := w.book.open("c")
	if _, err := w.book.open("d"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a fourth stream of 3: %v", err)
	}
	for _, st := range []*stream{first, second, third} {
		w.book.close(w.now, st)
		w.book.close(w.now, st)
	}
	if w.book.subs != 0 || w.book.streams != 0 || len(w.book.buckets) != 0 {
		t.Errorf("after all have gone: %d subscriptions, %d streams, %d buckets", w.book.subs, w.book.streams, len(w.book.buckets))
	}
	w.run(orphansFor+time.Second, nil)
	if n := len(w.book.orphans); n != 0 {
		t.Errorf("%d orphans a minute later", n)
	}
}

// TestBoundedIDs: buckets of long ids take no more memory than as many as there may be of others,
// nor do those whose stream has ended; of short ones there is room for all.
func TestBoundedIDs(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 300, MaxBuckets: 400}, perUser(fixed(1000, time.Hour)))
	turned := func(why refusal) float64 { return testutil.ToFloat64(w.book.metrics.turnedAway[why]) }
	bytes := func() (n int) {
		for name := range w.book.buckets {
			n += len(name)
		}
		return n
	}
	long := strings.Repeat("x", 2000)
	first, _ := w.book.open("a")
	if err := w.book.report(w.now, first, many(300, long)); err != nil || turned(refusedOfPlane) != 300-float64(w.book.subs) || bytes() < 299*idShare || bytes() > idRoom(300) {
		t.Errorf("%v: %d buckets, with %d bytes, and %v turned away; want what 300 may have", err, w.book.subs, bytes(), turned(refusedOfPlane))
	}
	second, _ := w.book.open("b")
	if err := w.book.report(w.now, second, many(300, long+"y")); err != nil || bytes() < 399*idShare || bytes() > idRoom(400) || turned(refusedOfEdge) == 0 {
		t.Errorf("%v: %d buckets, with %d bytes, and %v turned away; want what 400 may have", err, w.book.subs, bytes(), turned(refusedOfEdge))
	}
	for i, st := range []*stream{first, second} { // what is left of them is little, too, and ends
		w.book.close(w.now, st)
		for n := range 5 {
			if all := w.book.subs + w.book.orphaned; all > 400*3/2 {
				t.Errorf("%d buckets and what ended streams have left, want 600 at the most", all)
			}
			st, _ := w.book.open("a")
			if err := w.book.report(w.now, st, many(100, fmt.Sprint(long, i, n))); err != nil {
				t.Fatal(err)
			}
			w.book.take(w.now, st)
			w.book.close(w.now, st)
		}
	}
	names := 0
	for key, orphans := range w.book.orphans {
		names += len(orphans) * len(key.bucket)
	}
	if names > idRoom(400) || names != w.book.orphanIDs || names < 399*idShare {
		t.Errorf("what is left of ended streams has names of %d bytes, which are said to be %d", names, w.book.orphanIDs)
	}
	if w.book.ids != 0 || len(w.book.buckets) != 0 {
		t.Errorf("%d bytes of names are counted of %d buckets", w.book.ids, len(w.book.buckets))
	}
	w.run(orphansFor+time.Second, nil)
	if w.book.orphanIDs != 0 || len(w.book.orphans) != 0 {
		t.Errorf("%d bytes of %d orphans a minute later", w.book.orphanIDs, len(w.book.orphans))
	}
	third, _ := w.book.open("c")
	if err := w.book.report(w.now, third, many(300, "u")); err != nil || w.book.subs != 300 {
		t.Errorf("%v: %d of 300 with short ids have a place", err, w.book.subs)
	}
}

// TestOutboxIsBounded: a stream that is not read ends.
func TestOutboxIsBounded(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 100}, perUser(fixed(1000, time.Hour)))
	st, _ := w.book.open("a")
	for i := range 10 {
		if err := w.book.report(w.now, st, many(100, fmt.Sprint(i, "-"))); err != nil {
			if status.Code(err) != codes.ResourceExhausted || len(st.outbox) > 4*100 {
				t.Errorf("%v with %d actions that wait", err, len(st.outbox))
			}
			return
		}
		w.rest(st, many(100, fmt.Sprint(i, "-")))
	}
	t.Errorf("%d actions wait, and it goes on", len(st.outbox))
}

// TestReloads: rules that are not there yet, and rules that come and go.
func TestReloads(t *testing.T) {
	doc := limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{perUser(fixed(100, time.Hour))}}
	limiter := limitertest.New(t)
	b := newBook(limiter, Config{}.withDefaults())
	st, _ := b.open("a")
	if err := b.report(start, st, usage("acme", user, 1, 0)); status.Code(err) != codes.Unavailable {
		t.Errorf("without rules: %v", err)
	}
	limiter.SetRules(t, doc)
	if err := b.report(start, st, usage("acme", user, 1, 0)); err != nil {
		t.Fatal(err)
	}
	b.take(start, st)
	limiter.DropRules()
	b.tick(start.Add(time.Minute / 2))
	limiter.SetRules(t, limit.Document{Namespace: "other", Rules: doc.Rules})
	b.tick(start.Add(time.Minute/2 + time.Second))
	if err := b.report(start.Add(time.Minute/2+time.Second), st, usage("", user, 1, 0)); status.Code(err) != codes.NotFound {
		t.Errorf("after the domain's rules are gone: %v", err)
	}
	tree := limit.Document{Namespace: "tree", Descriptors: &limit.DescriptorSpec{Below: []limit.DescriptorSpec{{Key: "user"}}}}
	limiter.SetRules(t, tree)
	st, _ = b.open("a")
	if err := b.report(start, st, usage("tree", user, 1, 0)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of a domain with the reference's configuration: %v", err)
	}
}

// FuzzReports: whatever two messages of a stream say is taken in, or refused with nothing
// counted; no bound is passed, and what is told can be sent.
func FuzzReports(f *testing.F) {
	for _, in := range []*quotav3.RateLimitQuotaUsageReports{
		{}, usage("local", user, 1, 2), usage("other", user, 1, 0), usage("local", user, 1<<63, 1<<63), usage("local", nil, 0, 0),
		many(12, "u"), elapsed(durationpb.New(-1)), usage("local", map[string]string{"path": "/a/../b", "remote_address": "::1", "user": ""}, 5, 0),
	} {
		text, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, text, uint32(100))
	}
	node, err := edge.Local(perUser(fixed(1000, time.Second)), limit.RuleSpec{
		Name: "address", Group: "address", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 50, Per: time.Second}}, Cost: limit.CostSpec{Default: 2, Max: 7},
	})
	if err != nil {
		f.Fatal(err)
	}
	raw := []byte(strings.Replace(string(must(proto.Marshal(usage("local", map[string]string{"user": "#"}, 50, 2)))), "#", "\xff", 1))
	f.Add(raw, raw, uint32(2000))
	f.Add(must(proto.Marshal(many(13, "u"))), must(proto.Marshal(usage("local", map[string]string{"user": strings.Repeat("x", maxIDBytes)}, 50, 2))), uint32(10))
	long := must(proto.Marshal(usage("local", map[string]string{"user": strings.Repeat("x", maxIDBytes) + "#"}, 50, 2))) // and no text
	f.Add(must(proto.Marshal(many(13, "u"))), []byte(strings.Replace(string(long), "#", "\xff", 1)), uint32(44))
	f.Fuzz(func(t *testing.T, first, second []byte, ms uint32) {
		b := newBook(node, Config{MaxStreamBuckets: 10, MaxBuckets: 12}.withDefaults())
		st, err := b.open("a")
		if err != nil {
			t.Fatal(err)
		}
		now := start
		for _, text := range [][]byte{first, second} {
			in := &quotav3.RateLimitQuotaUsageReports{}
			if envoytext.Unmarshal(text, in) != nil {
				return // gRPC refuses it before it is ours to take in
			}
			subs := b.subs
			err := b.report(now, st, in)
			switch code := status.Code(err); code {
			case codes.OK:
			case codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted:
				if b.subs > subs {
					t.Fatalf("%v is refused (%v), and subscribes", in, err)
				}
			default:
				t.Fatalf("%v: %v", in, err)
			}
			if len(st.subs) > 10 || b.subs != len(st.subs) {
				t.Fatalf("%d buckets of a stream, %d in all", len(st.subs), b.subs)
			}
			now = now.Add(time.Duration(ms) * time.Millisecond)
			b.tick(now)
			if out := response(b.take(now, st)); len(out.BucketAction) > 0 && (proto.Unmarshal(must(proto.Marshal(out)), out) != nil || out.ValidateAll() != nil) {
				t.Fatalf("%v cannot be sent: %v", out, out.ValidateAll())
			}
			b.tick(now.Add(defaultTTL / 2))
		}
		b.close(now, st)
		if b.subs != 0 || len(b.buckets) != 0 {
			t.Fatalf("%d subscriptions of %d buckets are left", b.subs, len(b.buckets))
		}
	})
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
