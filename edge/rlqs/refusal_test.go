package rlqs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
)

// message is one of reports, in their order.
func message(of ...*quotav3.RateLimitQuotaUsageReports) *quotav3.RateLimitQuotaUsageReports {
	out := &quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace}
	for _, in := range of {
		out.BucketQuotaUsages = append(out.BucketQuotaUsages, in.BucketQuotaUsages...)
	}
	return out
}

// strategies are what a stream is told of each user.
func (w *world) strategies(st *stream) map[string]*typev3.RateLimitStrategy {
	out := map[string]*typev3.RateLimitStrategy{}
	for _, a := range w.book.take(w.now, st) {
		m := a.message()
		out[m.BucketId.Bucket["user"]] = m.GetQuotaAssignmentAction().GetRateLimitStrategy()
	}
	return out
}

// usedBy is what the node has counted of a user's window.
func (w *world) usedBy(name string) uint64 {
	req := w.node.Rules().Namespace(edge.LocalNamespace).NewRequest()
	defer req.Release()
	req.Set("user", name)
	req.Peek = true
	d := w.node.Check(w.now, req)
	return d.Limit - d.Remaining
}

// What a client of a data plane can bring about costs him his bucket, and nobody the stream:
// the others of the message are counted and answered.
func TestClientsAreTurnedAway(t *testing.T) {
	long := strings.Repeat("x", maxIDBytes)
	for _, c := range []struct {
		name, user    string
		cfg           Config
		why           refusal
		first, usedUp string // what is told of it
	}{
		{"a long id", long, Config{}, refusedLong, "deny", "deny"},
		{"the longest id that has a place", long[len("user"):], Config{}, placed, "tokens", "tokens"},
		{"a byte that is no text", "\xff", Config{}, refusedText, "nothing", "nothing"},
		{"more than a stream may have", "u9", Config{MaxStreamBuckets: 2}, refusedOfPlane, "nothing", "deny"},
		{"more than the edge has room for", "u9", Config{MaxBuckets: 2}, refusedOfEdge, "nothing", "deny"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.cfg, perUser(fixed(10, time.Hour)))
			st, _ := w.book.open("a")
			told := func(name string) string {
				s, told := w.strategies(st)[name]
				switch {
				case !told:
					return "nothing"
				case s.GetTokenBucket() != nil:
					return "tokens"
				}
				return map[typev3.RateLimitStrategy_BlanketRule]string{typev3.RateLimitStrategy_DENY_ALL: "deny"}[s.GetBlanketRule()]
			}
			his := map[string]string{"user": c.user}
			if err := w.book.report(w.now, st, message(usage("", user, 3, 0), many(1, "other"), usage("", his, 4, 1), usage("", his, 2, 0))); err != nil {
				t.Fatalf("the stream ends: %v", err)
			}
			if got := told(c.user); got != c.first {
				t.Errorf("of it %s is told, want %s", got, c.first)
			}
			if c.why == placed {
				return
			}
			if got := w.usedBy(c.user); got != 6 {
				t.Errorf("%d are charged of the 6 that it used", got)
			}
			if got := testutil.ToFloat64(w.book.metrics.turnedAway[c.why]); got != 2 {
				t.Errorf("%v reports are counted as turned away, of 2", got)
			}
			if len(st.subs) != 2 || len(w.book.buckets) != 2 {
				t.Errorf("%d have a place, of %d buckets, want the other 2", len(st.subs), len(w.book.buckets))
			}
			w.now = w.now.Add(time.Second)
			if err := w.book.report(w.now, st, message(usage("", his, 4, 1))); err != nil {
				t.Fatalf("the stream ends: %v", err)
			}
			if got := told(c.user); got != c.usedUp {
				t.Errorf("of it %s is told as its limit is used up, want %s", got, c.usedUp)
			}
			if got := w.used(); got < 3 {
				t.Errorf("the others' usage is not counted: %d", got)
			}
		})
	}
}

// The others of a message are answered.
func TestTheOthersAreAssigned(t *testing.T) {
	for _, bad := range []map[string]string{{"user": strings.Repeat("x", maxIDBytes)}, {"user": "\xff"}, {}} {
		w := newWorld(t, Config{}, perUser(fixed(10, time.Hour)))
		st, _ := w.book.open("a")
		if err := w.book.report(w.now, st, message(usage("", bad, 1, 0), usage("", user, 1, 0))); err != nil {
			t.Fatal(err)
		}
		if s := w.strategies(st)["u1"]; s.GetTokenBucket().GetMaxTokens() == 0 {
			t.Errorf("beside %.20v the other is told %v", bad, s)
		}
	}
}

// A data plane whose clients invent users all the time keeps the assignments of those that
// it has.
func TestACrowdTakesNobodysQuota(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 20}, perUser(fixed(100, time.Second)))
	p := w.join("a", 50, dataplane.Settings{NoAssignment: denyAll})
	w.run(3*time.Second, nil)
	before, n := p.admitted, 0
	w.run(20*time.Second, func() {
		n++
		p.Allow(w.now, map[string]string{"user": fmt.Sprint("invented", n)})
	})
	if p.ended != nil {
		t.Fatalf("the stream ended: %v", p.ended)
	}
	if got := p.admitted - before; got < 950 {
		t.Errorf("%d of 1000 were admitted beside the crowd", got)
	}
	if got := testutil.ToFloat64(w.book.metrics.turnedAway[refusedOfPlane]); got < 1000 {
		t.Errorf("%v reports were turned away: no crowd", got)
	}
	if len(p.st.subs) > 20 {
		t.Errorf("%d buckets of a stream", len(p.st.subs))
	}
}

// What waits to be told those who are turned away is bounded, and ends no stream.
func TestTurningAwayIsBounded(t *testing.T) {
	alone.Mark(t)
	w := newWorld(t, Config{MaxStreamBuckets: 100}, perUser(fixed(1, time.Hour)))
	st, _ := w.book.open("a")
	if err := w.book.report(w.now, st, many(100, "u")); err != nil {
		t.Fatal(err)
	}
	w.book.take(w.now, st)
	for i := range 1000 {
		for _, size := range []int{maxIDBytes, 200_000} {
			id := map[string]string{"user": fmt.Sprint(i, strings.Repeat("x", size))}
			if err := w.book.report(w.now, st, message(usage("", id, 2, 0))); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
	}
	bytes := 0
	for _, a := range st.outbox {
		bytes += idBytes(a.sub.bucket.id)
	}
	if bytes > maxWaiting || bytes == 0 {
		t.Errorf("%d actions wait, whose ids have %d bytes", len(st.outbox), bytes)
	}
	w.book.take(w.now, st)
	for i := range 1000 {
		if err := w.book.report(w.now, st, message(usage("", map[string]string{"user": fmt.Sprint("v", i)}, 2, 0))); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := len(st.outbox); n != 200 {
		t.Errorf("%d actions wait, want twice what the stream may have", n)
	}
	for range idleAfter / restAfter { // they are denied, and make way only then
		w.rest(st, many(100, "u"))
	}
	if err := w.book.report(w.now, st, message(many(100, "w"))); err != nil || len(st.subs) != 100 || st.subs[nameOf("local", &quotav3.BucketId{Bucket: map[string]string{"user": "w0"}})] == nil {
		t.Errorf("those that get a place: %v, %d", err, len(st.subs))
	}
	w.book.take(w.now, st)
	if err := w.book.report(w.now, st, message(usage("", map[string]string{"user": strings.Repeat("y", maxIDBytes)}, 2, 0))); err != nil || len(st.outbox) != 1 {
		t.Errorf("once it was read, %d wait: %v", len(st.outbox), err)
	}
}
