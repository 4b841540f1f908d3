package deferred

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/test/proc"
)

// plan is what the queue of eu has, beside what it is to have.
func plan(t testing.TB, js jetstream.JetStream) *Plan {
	t.Helper()
	var p *Plan
	proc.Until(t, time.Minute, func() (err error) { // leafs may have yet to tell each other what they serve
		p, err = Inspect(t.Context(), js, Config{Region: "eu", Timeout: 5 * time.Second})
		return err
	})
	return p
}

// alter changes a stream behind the queue's back.
func alter(t testing.TB, js jetstream.JetStream, name string, change func(c *jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err == nil {
		c := s.CachedInfo().Config
		change(&c)
		_, err = js.UpdateStream(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Where JetStream refuses a part it is told what was made before, and what is left; once it does not, the
// rest is made.
func TestPlanGoesOn(t *testing.T) {
	j := newJet(t)
	js, err := jetstream.New(j.connect())
	if err != nil {
		t.Fatal(err)
	}
	other := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"sg.v1.dead.>"}}
	if _, err := js.CreateStream(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	err = plan(t, js).Apply(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "make SG_DEAD_eu: ") || !strings.HasSuffix(err.Error(), "; done is SG_DEFER_eu, left is SG_DEAD_eu, KV_SG_DEFERRED_eu, SG_DEFER_eu > replay: the same again goes on with that") {
		t.Errorf("%v; want what is done, and what is left", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err = plan(t, js).Apply(ended); err == nil || !strings.Contains(err.Error(), "; done is nothing, left is SG_DEAD_eu (maybe), KV_SG_DEFERRED_eu, ") {
		t.Errorf("%v; want that it is not known", err)
	}
	if err := js.DeleteStream(t.Context(), other.Name); err != nil {
		t.Fatal(err)
	}
	if err := plan(t, js).Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := plan(t, js); !p.Fits() {
		t.Errorf("%s; want all as it is to be", p)
	}
}

// An operator makes what is missing, is told what differs, and changes that; what waits stays.
func TestPlan(t *testing.T) {
	j := newJet(t)
	js, err := jetstream.New(j.connect())
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t, js)
	if want := "SG_DEFER_eu is missing; SG_DEAD_eu is missing; KV_SG_DEFERRED_eu is missing; SG_DEFER_eu > replay is missing"; p.String() != want || p.Fits() || p.reason() != reasonMissing {
		t.Errorf("of nothing: %s, %s; want %s", p, p.reason(), want)
	}
	for range 2 { // the second time there is nothing to do
		if err := p.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p = plan(t, js); !p.Fits() || p.String() != "" {
			t.Fatalf("%s; want all as it is to be", p)
		}
	}
	id := put(t, j.queue(j.connect(), Config{}), "acme", time.Time{})
	for _, tt := range []struct {
		stream string
		change func(c *jetstream.StreamConfig)
		reason string
		says   string
	}{
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, reasonSettings, "SG_DEFER_eu: max_bytes is 1048576, want 1073741824"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }, reasonUnfit, "SG_DEFER_eu: max_bytes is none, want 1073741824"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, reasonUnfit, "SG_DEFER_eu: max_age is 1h0m0s, want none"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "sg.v1.up.eu.>") }, reasonUnfit, `SG_DEFER_eu: subjects is ["sg.v1.defer.eu.*","sg.v1.up.eu.\u003e"], want ["sg.v1.defer.eu.*"]`},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.NoAck = true }, reasonUnfit, "SG_DEFER_eu: no_ack is true, want none"},
		{"SG_DEAD_eu", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, reasonSettings, "SG_DEAD_eu: max_age is 1h0m0s, want 168h0m0s"},
		{"SG_DEAD_eu", func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: "sg.v1.dead.eu.y", Destination: "sg.v1.hot.eu.3"}
		}, reasonUnfit, "SG_DEAD_eu: republish is {"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute }, reasonSettings, "SG_DEFER_eu: duplicate_window is 1m0s, want 2m0s"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 20 }, reasonSettings, "SG_DEFER_eu: max_msg_size is 1048576, want none"},
		{"SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.AllowDirect = true }, reasonSettings, "SG_DEFER_eu: allow_direct is true, want none"},
		{"KV_SG_DEFERRED_eu", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, reasonUnfit, "KV_SG_DEFERRED_eu: allow_direct is none, want true"},
		{"KV_SG_DEFERRED_eu", func(c *jetstream.StreamConfig) { c.AllowRollup = true }, reasonSettings, "KV_SG_DEFERRED_eu: allow_rollup_hdrs is true, want none"},
		{"KV_SG_DEFERRED_eu", func(c *jetstream.StreamConfig) { c.AllowRollup, c.SubjectDeleteMarkerTTL = true, time.Minute }, reasonSettings, "KV_SG_DEFERRED_eu: allow_rollup_hdrs is true, want none; KV_SG_DEFERRED_eu: subject_delete_marker_ttl is 1m0s, want none"}, // as edges made it once
		{"KV_SG_DEFERRED_eu", func(c *jetstream.StreamConfig) { c.Description, c.Compression = "ours", jetstream.S2Compression }, "", ""},
	} {
		alter(t, js, tt.stream, tt.change)
		p := plan(t, js)
		if p.reason() != tt.reason || !strings.HasPrefix(p.String(), tt.says) || strings.Count(p.String(), ";") != strings.Count(tt.says, ";") {
			t.Errorf("%q for %q, want %q for %s", p, p.reason(), tt.says, tt.reason)
		}
		if err := p.Apply(t.Context()); err != nil {
			t.Error(err)
		}
		if p = plan(t, js); !p.Fits() {
			t.Errorf("%s: %s remains", tt.says, p)
		}
	}
	s, err := js.Stream(t.Context(), "KV_SG_DEFERRED_eu")
	if err != nil || s.CachedInfo().Config.Compression != jetstream.S2Compression {
		t.Errorf("%v, want it compressed, as the operator has it", err)
	}
	// What JetStream cannot change is told, and the rest is left as it was.
	if err := js.DeleteStream(t.Context(), "SG_DEAD_eu"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SG_DEAD_eu", Subjects: []string{"sg.v1.dead.eu.*"}, Storage: jetstream.MemoryStorage, Retention: jetstream.WorkQueuePolicy, MaxBytes: 1 << 20, Duplicates: duplicates}); err != nil {
		t.Fatal(err)
	}
	alter(t, js, "SG_DEFER_eu", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
	err = plan(t, js).Apply(t.Context())
	for _, want := range []string{"nothing is changed", "SG_DEAD_eu: retention is workqueue, want limits: JetStream cannot", "SG_DEAD_eu: storage is memory, want file: JetStream cannot", "nats stream rm SG_DEAD_eu"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if s := plan(t, js).String(); !strings.Contains(s, "SG_DEFER_eu: max_bytes is 1048576") {
		t.Errorf("%s; want that nothing was changed", s)
	}
	if err := js.DeleteStream(t.Context(), "SG_DEAD_eu"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateConsumer(t.Context(), "SG_DEFER_eu", jetstream.ConsumerConfig{Durable: replay, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 2}); err != nil {
		t.Fatal(err)
	}
	if p = plan(t, js); !strings.Contains(p.String(), "SG_DEFER_eu > replay: ack_wait is 1m0s, want 30s") || !strings.Contains(p.String(), "replay: max_deliver is 2, want none") {
		t.Errorf("%s; want the consumer's", p)
	}
	if err := p.Apply(t.Context()); err != nil {
		t.Error(err)
	}
	if p = plan(t, js); !p.Fits() {
		t.Errorf("%s remains", p)
	}
	q := j.queue(j.connect(), Config{})
	work(t, q, does(200))
	becomes(t, q, id, Done)
}

// runs has a front open the queue, and do what waits, until the test ends, or stop is called.
func runs(t testing.TB, f *Front, js jetstream.JetStream, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { f.Run(ctx, js, cfg, 4) })
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

// troubled waits until a front is in a trouble, and no other, by its metrics; "": in none.
func troubled(t testing.TB, f *Front, want string) {
	t.Helper()
	proc.Until(t, time.Minute, func() error {
		for i, reason := range reasons {
			if is := testutil.ToFloat64(f.cfg.Metrics.queue[i]) == 1; is != (reason == want) {
				return fmt.Errorf("%s: %v, want %q alone; %v", reason, is, want, f.Trouble())
			}
		}
		if (want == "") != (f.Trouble() == nil) || want == "" && f.queue.Load() == nil {
			return fmt.Errorf("%v, want %q", f.Trouble(), want)
		}
		return nil
	})
}

// An edge that finds a queue which loses requests has none wait, says so, and goes on by itself
// when an operator has mended it; also while it runs.
func TestQueueThatIsUnfit(t *testing.T) {
	t.Parallel()
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := NewFront(site(t, time.Hour, &upstream{}), FrontConfig{})
	waits := func(want int) {
		t.Helper()
		if w := get(f, call("PUT", "/", "x")); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	loses := func() {
		alter(t, q.js, q.stream, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	}
	get(f, call("PUT", "/", "")) // there is room for one
	loses()
	runs(t, f, q.js, Config{Region: "eu", Command: "edge deferred apply --yes -c edge.yaml"})
	for range 2 {
		troubled(t, f, reasonUnfit)
		waits(http.StatusTooManyRequests)
		if err := f.Trouble(); !strings.Contains(err.Error(), "SG_DEFER_eu: max_age is 1h0m0s, want none") || !strings.HasSuffix(err.Error(), "edge deferred apply --yes -c edge.yaml") {
			t.Errorf("%v, want what is wrong, and the command", err)
		}
		if w := get(f.Admin(), call("GET", "/admin/v1/deferred", "")); w.Code != 503 || !strings.Contains(w.Body.String(), "edge deferred apply --yes -c edge.yaml") {
			t.Errorf("the admin is told %d %s, want the same", w.Code, w.Body)
		}
		if err := plan(t, q.js).Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		troubled(t, f, "")
		waits(http.StatusAccepted)
		loses() // while it runs
	}
}

// Where it may, an edge makes what is missing, at once, and not what differs.
func TestEdgesMakeWhatIsMissing(t *testing.T) {
	j := newJet(t)
	js, err := jetstream.New(j.connect())
	if err != nil {
		t.Fatal(err)
	}
	f := NewFront(nil, FrontConfig{})
	runs(t, f, js, Config{Region: "eu"})
	troubled(t, f, "")
	if p := plan(t, js); !p.Fits() {
		t.Error(p)
	}
	if names := streams(t, js); !slices.Equal(names, []string{"KV_SG_DEFERRED_eu", "SG_DEAD_eu", "SG_DEFER_eu"}) {
		t.Errorf("streams %v", names)
	}
}

func streams(t testing.TB, js jetstream.JetStream) (names []string) {
	t.Helper()
	list := js.StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// What would lose requests, or keep them without bounds, is told from what does no harm, whatever
// that is.
func TestDifferencesThatStand(t *testing.T) {
	q, err := newQueue(nil, Config{Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	stream := func(want jetstream.StreamConfig, change func(c *jetstream.StreamConfig)) []Difference {
		is := want
		change(&is)
		return differences(&want, &is)
	}
	consumer := func(change func(c *jetstream.ConsumerConfig)) []Difference {
		want := q.replayConfig()
		is := want
		change(&is)
		return differences(&want, &is)
	}
	waiting := q.waitingConfig()
	for _, tt := range []struct {
		setting string
		stands  bool
		is      []Difference
	}{
		{"deny_purge", true, stream(waiting, func(c *jetstream.StreamConfig) { c.DenyPurge = true })},
		{"duplicate_window", true, stream(waiting, func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour })},
		{"max_consumers", true, stream(waiting, func(c *jetstream.StreamConfig) { c.MaxConsumers = 3 })},
		{"max_msgs", true, stream(waiting, func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 })},
		{"max_age", true, stream(q.deadConfig(), func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })},
		{"max_ack_pending", true, consumer(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1000 })},
		{"num_replicas", true, consumer(func(c *jetstream.ConsumerConfig) { c.Replicas = 3 })},

		{"retention", false, stream(waiting, func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })},
		{"storage", false, stream(waiting, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage })},
		{"discard", false, stream(waiting, func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld })},
		{"discard_new_per_subject", false, stream(waiting, func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject = false })},
		{"max_age", false, stream(waiting, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })},
		{"max_age", false, stream(q.statusConfig(), func(c *jetstream.StreamConfig) { c.MaxAge = 0 })},
		{"subjects", false, stream(waiting, func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} })},
		{"no_ack", false, stream(waiting, func(c *jetstream.StreamConfig) { c.NoAck = true })},
		{"republish", false, stream(waiting, func(c *jetstream.StreamConfig) { c.RePublish = &jetstream.RePublish{Destination: "x"} })},
		{"sealed", false, stream(waiting, func(c *jetstream.StreamConfig) { c.Sealed = true })},
		{"deny_delete", false, stream(waiting, func(c *jetstream.StreamConfig) { c.DenyDelete = true })},
		{"deny_delete", false, stream(q.statusConfig(), func(c *jetstream.StreamConfig) { c.DenyDelete = false })},
		{"max_deliver", false, consumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 2 })},
		{"filter_subject", false, consumer(func(c *jetstream.ConsumerConfig) { c.FilterSubject = "x" })},
		{"max_batch", false, consumer(func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 })},
	} {
		if len(tt.is) != 1 || tt.is[0].Setting != tt.setting || tt.is[0].stands != tt.stands {
			t.Errorf("%s: %v, want it alone, and that the queue works with it: %v", tt.setting, tt.is, tt.stands)
		}
	}
}

// A bucket that lets single messages expire since an operator changed it is used so at once.
func TestBucketLearnsToForget(t *testing.T) {
	j := newJet(t)
	js, err := jetstream.New(j.connect())
	if err != nil {
		t.Fatal(err)
	}
	before, err := newQueue(js, Config{Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	bucket := before.statusConfig()
	bucket.AllowMsgTTL = false
	if _, err := js.CreateStream(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	q := j.queue(j.connect(), Config{})
	f := front(q, nil, 0)
	if q.markers.Load() {
		t.Fatal("it lets messages expire from the start: this tests nothing")
	}
	if err := plan(t, js).Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !f.saw(q, plan(t, js), nil) || !q.markers.Load() {
		t.Error("what becomes of requests is kept as before")
	}
}

// An edge that loses JetStream says so, and before it has heard of it; and that it has it again.
func TestJetStreamGoesAway(t *testing.T) {
	t.Parallel()
	j := newJet(t)
	js, err := jetstream.New(j.connect())
	if err != nil {
		t.Fatal(err)
	}
	f := NewFront(nil, FrontConfig{})
	if err := f.Trouble(); err == nil || !strings.Contains(err.Error(), "not answered yet") {
		t.Errorf("before it was asked: %v", err)
	}
	runs(t, f, js, Config{Region: "eu", Timeout: time.Second})
	troubled(t, f, "")
	opened := f.queue.Load()
	j.server.Shutdown()
	troubled(t, f, reasonAway)
	if f.queue.Load() != opened {
		t.Error("the queue was given up")
	}
	j.start()
	troubled(t, f, "")
	if f.queue.Load() != opened {
		t.Error("the queue was opened anew")
	}
}
