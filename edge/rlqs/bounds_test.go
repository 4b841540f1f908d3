package rlqs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
)

// An Envoy reports all its buckets in one message, and keeps those that it is not told to
// abandon: with whatever names a crowd invents, that message stays one that is taken in.
func TestAllInOneMessage(t *testing.T) {
	alone.Mark(t)
	for _, c := range []struct {
		name            string
		size            int // of a name
		perSecond, uses int // names that are new, and requests of each, at once
		again           bool
		interval        time.Duration
	}{
		{"names", 200, 8000, 1, false, time.Second},
		{"the longest", maxIDBytes, 1000, 1, false, time.Second},
		{"too long", 30_000, 100, 1, false, time.Second},
		{"used again and again", 200, 8000, 1, true, time.Second},
		{"used up", 200, 8000, 21, false, time.Second},
		{"reported seldom", 200, 8000, 1, false, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, perUser(fixed(20, 10*time.Second)))
			p := w.join("a", 10, dataplane.Settings{Interval: c.interval, ByTimer: true, ExpiredFor: time.Hour, Fallback: allowAll})
			p.delay = step
			largest, n := 0, 0
			invented := func(n int) map[string]string {
				name := fmt.Sprint(n, "-")
				return map[string]string{"user": name + strings.Repeat("x", max(0, c.size-len(name)-len("user")))}
			}
			p.onReport = func(in *quotav3.RateLimitQuotaUsageReports) { largest = max(largest, proto.Size(in)) }
			w.run(max(3*time.Second, 2*c.interval), nil)
			const lasts = 3
			w.run(lasts*time.Second, func() {
				for range c.perSecond / int(time.Second/step) {
					n++
					for range c.uses {
						p.Allow(w.now, invented(n))
					}
				}
				if c.again { // each twice a second
					for i := int(w.now.Sub(start)/step) % 50; i < n; i += 50 {
						p.Allow(w.now, invented(i+1))
					}
				}
			})
			w.run(c.interval+time.Second, nil)
			t.Logf("%d names; the largest message has %d bytes; %d buckets are kept there, %d here", n, largest, p.Buckets(), len(p.st.subs))
			if p.ended != nil || largest > MaxMessage {
				t.Fatalf("the stream ended with %v; its largest message has %d bytes, of %d", p.ended, largest, MaxMessage)
			}
			if n > 5000 { // as slow as it is many
				return
			}
			before := p.admitted
			w.run(20*time.Second, nil)
			if got := p.admitted - before; got > 60 || got < 30 {
				t.Errorf("the honest user has %d of 40 in 20 s", got)
			}
		})
	}
}

// What is turned away and not used since it was last reported is to be abandoned.
func TestTurnedAwayIsAbandoned(t *testing.T) {
	for _, bad := range []string{"u9", strings.Repeat("x", maxIDBytes)} {
		w := newWorld(t, Config{MaxStreamBuckets: 1}, perUser(fixed(10, time.Hour)))
		st, _ := w.book.open("a")
		his := map[string]string{"user": bad}
		for i, allowed := range []uint64{1, 1, 0} {
			if err := w.book.report(w.now, st, message(usage("", user, 1, 0), usage("", his, allowed, 0))); err != nil {
				t.Fatal(err)
			}
			abandoned := false
			for _, a := range w.book.take(w.now, st) {
				abandoned = abandoned || a.kind == kindAbandon && a.sub.bucket.id.Bucket["user"] == bad
			}
			if abandoned != (i == 2) {
				t.Errorf("%.9s, report %d, of %d requests: it is to be abandoned: %v", bad, i, allowed, abandoned)
			}
			w.now = w.now.Add(time.Second)
		}
		if got := w.usedBy(bad); got != 2 {
			t.Errorf("%.9s: %d are charged of 2", bad, got)
		}
	}
}

// A tick lets reports in between: it looks at so many subscriptions at a time.
func TestTicksGoInStretches(t *testing.T) {
	const all = 10 * stretchOf
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	st, _ := w.book.open("a")
	if err := w.book.report(w.now, st, many(all, "u")); err != nil {
		t.Fatal(err)
	}
	if err := w.book.report(w.now, st, many(all, "u")); err != nil { // its pace is known
		t.Fatal(err)
	}
	w.book.take(w.now, st)
	w.now = w.now.Add(silentAfter)
	left, late := all, 0
	for done := false; !done; {
		done = w.book.stretch(w.now)
		if gone := left - (w.book.subs - late); gone > stretchOf || gone == 0 && !done {
			t.Fatalf("a stretch has %d abandoned, want up to %d", gone, stretchOf)
		}
		left = w.book.subs - late
		late++ // a bucket that comes meanwhile, and has its place
		if err := w.book.report(w.now, st, many(1, fmt.Sprint("late", late, "-"))); err != nil {
			t.Fatal(err)
		}
	}
	if left != 0 || len(w.book.order) != late || len(w.book.buckets) != late {
		t.Errorf("%d are left, in order %d, of %d buckets; want the %d that came late", left, len(w.book.order), len(w.book.buckets), late)
	}
	if got := testutil.ToFloat64(w.book.metrics.assignments[kindAbandon]); got != all {
		t.Errorf("%v are to be abandoned, want %d", got, all)
	}
	told := 0
	for _, a := range w.book.take(w.now, st) {
		if a.kind == kindAbandon {
			told++
		}
	}
	if told != all || w.book.outboxed != 0 {
		t.Errorf("%d are told to abandon, want %d; %d wait", told, all, w.book.outboxed)
	}
	for name, bk := range w.book.buckets {
		if w.book.order[bk.at].name != name {
			t.Errorf("%s is not at its place", name)
		}
	}
}

// What waits for data planes that do not read is bounded over all of them.
func TestAllOutboxesAreBounded(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 100, MaxBuckets: 150}, perUser(fixed(1, time.Hour)))
	var all []*stream
	for i := range 20 {
		st, _ := w.book.open(fmt.Sprint(i))
		all = append(all, st)
		for j := range 4 {
			if err := w.book.report(w.now, st, many(100, fmt.Sprint(i, "-", j, "-"))); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := w.book.report(w.now, st, many(100, fmt.Sprint(i, "-", j, "-"))); err != nil {
					t.Fatal(err)
				}
			}
			w.now = w.now.Add(restAfter)
		}
	}
	sum, bytes := 0, 0
	for _, st := range all {
		sum += len(st.outbox)
		bytes += st.waiting
	}
	if sum != w.book.outboxed || bytes != w.book.waiting || sum > 3*150 || sum < 150 {
		t.Errorf("%d actions wait, with %d bytes, and %d and %d are counted; want up to %d", sum, bytes, w.book.outboxed, w.book.waiting, 3*150)
	}
	for _, st := range all {
		w.book.close(w.now, st)
	}
	if w.book.outboxed != 0 || w.book.waiting != 0 {
		t.Errorf("%d actions, with %d bytes, are counted of streams that have ended", w.book.outboxed, w.book.waiting)
	}
}

// BenchmarkAbandon has all buckets of a stream abandoned: each takes as long, however many
// there are.
func BenchmarkAbandon(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				w := newWorld(b, Config{}, perUser(fixed(1000, time.Hour)))
				st, _ := w.book.open("a")
				if err := w.book.report(w.now, st, many(n, "u")); err != nil {
					b.Fatal(err)
				}
				w.book.take(w.now, st)
				b.StartTimer()
				w.book.tick(w.now.Add(silentAfter))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/bucket")
		})
	}
}
