package deferred

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/test/proc"
)

// Several who revive a dead letter at once, or again, have it wait once.
func TestRevivedAtOnceWaitsOnce(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1, Timeout: 10 * time.Second})
	stop := work(t, q, does(500))
	id := put(t, q, "acme", time.Time{})
	becomes(t, q, id, Dead)
	stop()
	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = q.Revive(t.Context(), id); err != nil {
				t.Errorf("reviver %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for _, again := range ids {
		if again != ids[0] || again == id {
			t.Fatalf("ids %v, want one new one", ids)
		}
	}
	if waiting, dead, err := q.Depth(t.Context()); err != nil || waiting != 1 || dead != 0 {
		t.Errorf("%d wait, %d are dead, %v; want that one waits", waiting, dead, err)
	}
	stop = work(t, q, does(201))
	becomes(t, q, ids[0], Done)
	stop() // it is taken from the queue after it is said to be done
	if again, err := q.Revive(t.Context(), id); err != nil || again != ids[0] {
		t.Errorf("revived once more: %s, %v; want %s", again, err, ids[0])
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d wait, %v; want none", waiting, err)
	}
}

// traced are fields by which requests are traced, as those write them whose they are.
var traced = []string{"traceparent", "tracestate", "baggage", "b3", "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId", "X-B3-Sampled",
	"X-Request-ID", "X-Correlation-ID", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "grpc-trace-bin", "uber-trace-id", "x-ot-span-context",
	"x-datadog-trace-id", "x-datadog-parent-id", "x-datadog-sampling-priority", "x-datadog-tags", "sentry-trace", "ot-tracer-spanid",
	"sw8", "sw8-correlation", "newrelic", "X-dynaTrace", "X-INSTANA-T", "elastic-apm-traceparent", "X-Request-Start", "Date",
	"x-envoy-attempt-count", "amz-sdk-request", "X-Stainless-Retry-Count"}

// The README tells by which fields alone what is sent again may differ.
func TestReadmeTellsWhatMayDiffer(t *testing.T) {
	b, err := os.ReadFile("../../configs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, says, _ := strings.Cut(string(b), "These fields alone may differ: ")
	says, _, _ = strings.Cut(says, "\n")
	want := slices.Clone(fleeting)
	for _, start := range fleetingFrom {
		want = append(want, start+"*")
	}
	var told []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(says, -1) {
		told = append(told, http.CanonicalHeaderKey(m[1]))
	}
	slices.Sort(want)
	if slices.Sort(told); !slices.Equal(told, want) {
		t.Errorf("it tells %q, want %q", told, want)
	}
}

// A client that asks again under its key is told of the request that waits already; but not
// where anything that matters is another's, or differs.
func TestSameKeyWaitsOnce(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{Timeout: 10 * time.Second})
	f := front(q, site(t, time.Hour, u), 0)
	ask := func(change func(r *http.Request)) (id, state string) {
		t.Helper()
		r := call("POST", "http://api.example/a?q=1", "body", IdempotencyKey, "k1", "Authorization", "a")
		for _, name := range traced {
			r.Header.Set(name, NewID())
		}
		if change != nil {
			change(r)
		}
		w := get(f, r)
		var told struct{ ID, State string }
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Code != http.StatusAccepted || w.Header().Get("Location") != StatusPath+told.ID {
			t.Fatalf("%d %v %s, want 202", w.Code, w.Header(), w.Body)
		}
		return told.ID, told.State
	}
	for _, from := range []string{"192.0.2.7:1", "192.0.2.8:1"} { // uses the limits up
		r := call("GET", "/", "")
		r.RemoteAddr = from
		get(f, r)
	}
	var mu sync.Mutex
	at := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			id, _ := ask(nil)
			mu.Lock()
			defer mu.Unlock()
			at[id]++
		})
	}
	wg.Wait()
	if len(at) != 1 {
		t.Fatalf("ids %v, want one", at)
	}
	var first string
	for first = range maps.Keys(at) {
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	others := map[string]string{first: "the first"}
	for name, change := range map[string]func(*http.Request){
		"another key":      set(IdempotencyKey, "k2"),
		"another's login":  set("Authorization", "b"),
		"another field":    set("X-Api-Key", "b"),
		"what is no trace": set("X-B3", "b"),
		"another body": func(r *http.Request) {
			*r = *call("POST", "http://api.example/a?q=1", "else", IdempotencyKey, "k1", "Authorization", "a")
		},
		"another method":   func(r *http.Request) { r.Method = "PUT" },
		"another host":     func(r *http.Request) { r.Host = "else.example" },
		"another query":    func(r *http.Request) { r.URL.RawQuery = "q=2" },
		"another scheme":   func(r *http.Request) { r.TLS = &tls.ConnectionState{} },
		"another address":  func(r *http.Request) { r.RemoteAddr = "192.0.2.8:1" },
		"a PUT, no key":    func(r *http.Request) { r.Method = "PUT"; r.Header.Del(IdempotencyKey) },
		"a PUT, once more": func(r *http.Request) { r.Method = "PUT"; r.Header.Del(IdempotencyKey) },
	} {
		id, _ := ask(change)
		if same, known := others[id]; known {
			t.Errorf("%s has the id of %s", name, same)
		}
		others[id] = name
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != uint64(len(others)) {
		t.Errorf("%d wait, %v; want %d", waiting, err, len(others))
	}
	if n := testutil.ToFloat64(f.cfg.Metrics.requests[resultAgain]); n != 7 {
		t.Errorf("%v were told again, want 7", n)
	}
}

// What is over is told again for a while, but not what was given up: that waits anew.
func TestSameKeyAfterTheEnd(t *testing.T) {
	j := newJet(t)
	now := time.Now()
	var mu sync.Mutex
	q := j.queue(j.connect(), Config{Tries: 1, Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	f := front(q, nil, 0)
	keep := func(key string) (id string, first *Status) {
		t.Helper()
		r := request("acme")
		r.HTTP.Header.Set(IdempotencyKey, key)
		first, err := f.keep(t.Context(), q, r)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, first
	}
	stop := work(t, q, does(201))
	done, _ := keep("done")
	becomes(t, q, done, Done)
	stop()
	if id, first := keep("done"); id != done || first == nil || first.State != Done {
		t.Errorf("%s, %+v; want %s, which is done", id, first, done)
	}
	stop = work(t, q, does(500))
	dead, _ := keep("dead")
	becomes(t, q, dead, Dead)
	stop()
	anew := func(key, ended string) { // once, however often its client asks
		t.Helper()
		id, first := keep(key)
		if id == ended || first != nil {
			t.Errorf("%s: %s, %+v; want that it waits anew", key, id, first)
		}
		for range 2 {
			if again, first := keep(key); again != id || first == nil || first.State != Queued {
				t.Errorf("%s: %s, %+v; want %s, which waits", key, again, first, id)
			}
		}
	}
	anew("dead", dead)
	mu.Lock()
	now = now.Add(duplicates)
	mu.Unlock()
	anew("done", done)
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 2 {
		t.Errorf("%d wait, %v; want two", waiting, err)
	}
	if id := q.sameID(&Request{ID: strings.Repeat("a", 32), HTTP: call("PUT", "/", "")}); id != "" {
		t.Errorf("without a key its id is %s, want none", id)
	}
}

// keyed is a request of a client's, who has a key for it.
func keyed(key string) *Request {
	r := request("acme")
	r.HTTP.Header.Set(IdempotencyKey, key)
	return r
}

// What is for another upstream is another's, though all else is the same.
func TestSameKeyElsewhere(t *testing.T) {
	j := newJet(t)
	ids := map[string]bool{}
	for _, upstream := range []string{"http://shop:80", "http://blog:80", "http://shop:80"} {
		q, r := j.queue(j.connect(), Config{Upstream: upstream, Secret: []byte("the region's")}), keyed("k")
		if _, err := front(q, nil, 0).keep(t.Context(), q, r); err != nil {
			t.Fatal(err)
		}
		ids[r.ID] = true
	}
	if len(ids) != 2 {
		t.Errorf("ids %v, want one of each upstream", ids)
	}
}

// Who knows a request and its key, but not the region's secret, does not know where it waits.
func TestSameKeyIsGuessedByNobody(t *testing.T) {
	j := newJet(t)
	ids := map[string]bool{}
	for _, secret := range []string{"", "", "the region's", "the region's", "another's"} {
		q, r := j.queue(j.connect(), Config{Secret: []byte(secret)}), keyed("k")
		if _, err := front(q, nil, 0).keep(t.Context(), q, r); err != nil {
			t.Fatal(err)
		}
		ids[r.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("ids %v, want one of each secret, and of each that has none", ids)
	}
}

// What was done, and is forgotten while JetStream drops another of its id, waits all the same.
func TestSameKeyOnceItIsForgotten(t *testing.T) {
	if lifeLeast <= duplicates {
		t.Errorf("what became of a request is known for %v, want longer than the %v in which JetStream drops another of its id", lifeLeast, duplicates)
	}
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, nil, 0)
	q.lifeLeast = time.Second
	q.looks.Store(math.MaxInt64) // there is little room
	q.bound.Store(8 << 10)
	q.noted.Store(7 << 10)
	keep := func() (id string, first *Status) {
		t.Helper()
		r := keyed("k")
		first, err := f.keep(t.Context(), q, r)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, first
	}
	stop := work(t, q, does(201))
	done, _ := keep()
	proc.Until(t, 30*time.Second, func() error {
		if waiting, _, err := q.Depth(t.Context()); err != nil || waiting > 0 {
			return errors.Join(errors.New("it is not done yet"), err)
		}
		if _, err := q.Status(t.Context(), done); !errors.Is(err, ErrUnknown) {
			return errors.Join(errors.New("it is known still"), err)
		}
		return nil
	})
	stop()
	again, first := keep()
	if again == done || first != nil {
		t.Errorf("%s, %+v; want that it waits anew", again, first)
	}
	if id, first := keep(); id != again || first == nil || first.State != Queued {
		t.Errorf("%s, %+v; want %s, which waits", id, first, again)
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 1 {
		t.Errorf("%d wait, %v; want one", waiting, err)
	}
	q.lifeLeast = time.Minute
	work(t, q, does(201))
	becomes(t, q, again, Done)
}

// What was to wait until a while ago is over, whatever its status says: its message may be gone.
func TestSameKeyAfterItsTime(t *testing.T) {
	j := newJet(t)
	now := time.Now()
	q := j.queue(j.connect(), Config{Now: func() time.Time { return now }})
	f := front(q, nil, 0)
	keep := func() (id string, first *Status) {
		t.Helper()
		r := keyed("k")
		r.Expires = now.Add(time.Minute)
		first, err := f.keep(t.Context(), q, r)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, first
	}
	id, _ := keep()
	if err := q.waiting.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute + q.cfg.Lease) // who had it until then may say so yet
	if is, first := keep(); is != id || first == nil || first.State != Queued {
		t.Errorf("%s, %+v; want %s", is, first, id)
	}
	now = now.Add(time.Second)
	anew, first := keep()
	if anew == id || first != nil {
		t.Errorf("%s, %+v; want that it waits anew", anew, first)
	}
	if is, first := keep(); is != anew || first == nil {
		t.Errorf("%s, %+v; want %s", is, first, anew)
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 1 {
		t.Errorf("%d wait, %v; want one", waiting, err)
	}
	if s := (Status{State: Running, Expires: now.Add(-time.Hour), Updated: now.Add(-time.Second)}); q.ended(&s) {
		t.Error("one that runs past its time is said to have ended")
	}
}

// behindAll is a bucket of which each server that is asked has heard nothing yet.
type behindAll struct{ jetstream.KeyValue }

func (behindAll) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	return nil, jetstream.ErrKeyNotFound
}

// Who asks again is told that it waits, though the server that is asked has not heard of that.
func TestSameKeyWhereAServerIsBehind(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, nil, 0)
	q.statuses = behindAll{q.statuses}
	var ids [2]string
	for i := range ids {
		r := keyed("k")
		r.Expires = time.Now().Add(time.Hour)
		first, err := f.keep(t.Context(), q, r)
		if err != nil || (first != nil) != (i > 0) || i > 0 && (first.State != Queued || !first.Expires.Equal(r.Expires)) {
			t.Fatalf("asked %d times before: %+v, %v", i, first, err)
		}
		ids[i] = r.ID
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 1 || ids[0] != ids[1] {
		t.Errorf("%d wait, %v, as %v; want one", waiting, err, ids)
	}
}

// A dead letter whose revival is dead, too, is not thrown away for nothing.
func TestRevivalThatDies(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1})
	dies := func(id string) {
		t.Helper()
		stop := work(t, q, does(500))
		becomes(t, q, id, Dead)
		stop()
	}
	id := put(t, q, "acme", time.Time{})
	dies(id)
	r, _, _, err := q.letter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.Expires, r.ID = time.Now().Add(time.Hour), idOf("revive", id)
	if _, err := q.putOnce(t.Context(), r, q.ended); err != nil { // by who did not get to delete the letter
		t.Fatal(err)
	}
	first := r.ID
	dies(first)
	second, err := q.Revive(t.Context(), id)
	if err != nil || second == first {
		t.Fatalf("%s, %v; want another than %s", second, err, first)
	}
	if waiting, dead, err := q.Depth(t.Context()); err != nil || waiting != 1 || dead != 1 {
		t.Errorf("%d wait, %d are dead, %v; want one, and the first revival", waiting, dead, err)
	}
	if s, err := q.Latest(t.Context(), id); err != nil || s.State != Queued { // as its client sees it, who has no other id
		t.Errorf("its client is told %+v, %v; want that it waits", s, err)
	}
	if again, err := q.Revive(t.Context(), id); err != nil || again != second {
		t.Errorf("%s, %v; want %s", again, err, second)
	}
	dies(second)
	again, err := q.Revive(t.Context(), id)
	if !errors.Is(err, ErrDeadAgain) || !strings.Contains(err.Error(), second) || statusOf(err) != http.StatusConflict {
		t.Errorf("%s, %v; want a refusal that names %s", again, err, second)
	}
	if waiting, dead, err := q.Depth(t.Context()); err != nil || waiting != 0 || dead != 2 {
		t.Errorf("%d wait, %d are dead, %v; want both", waiting, dead, err)
	}
	if third, err := q.Revive(t.Context(), second); err != nil {
		t.Fatal(err)
	} else {
		stop := work(t, q, does(204))
		becomes(t, q, third, Done)
		stop()
	}
	if s, err := q.Latest(t.Context(), id); err != nil || s.State != Done || s.Status != 204 {
		t.Errorf("its client is told %+v, %v; want that it is done", s, err)
	}
	if s, err := q.Status(t.Context(), id); err != nil || s.State != Dead {
		t.Errorf("of the one id alone: %+v, %v; want that it is dead", s, err)
	}
}
