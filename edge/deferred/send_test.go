package deferred

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// waiting has a request of a client's wait for one, which a site has room for at once.
func waiting(t testing.TB, q *Queue, client int, target string) string {
	t.Helper()
	address := fmt.Sprintf("192.0.2.%d:4711", client)
	r := &Request{ID: NewID(), Tenant: fmt.Sprint(client), Client: address, HTTP: call("GET", "http://api.example"+target, "")}
	if err := q.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// What is answered without end, or slowly, is done when as much time has passed as answers have
// to begin, or when it is too large: it keeps no worker from others.
func TestAnswersWithoutEnd(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Hour, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		page := []byte(strings.Repeat("x", 32<<10))
		for r.Context().Err() == nil {
			switch r.URL.Path {
			case "/endless":
				_, _ = w.Write(page)
			case "/slow":
				_, _ = w.Write(page[:1])
			default:
				return
			}
			_ = http.NewResponseController(w).Flush()
			pause(r.Context(), 10*time.Millisecond)
		}
	})), 0)
	f.cfg.Timeout = time.Second
	var ids []string
	for i := range 4 { // as many as there are workers
		ids = append(ids, waiting(t, q, i, []string{"/endless", "/slow"}[i%2]))
	}
	ids = append(ids, waiting(t, q, 9, "/short"))
	work(t, q, f.Send)
	for _, id := range ids {
		s := becomes(t, q, id, Done)
		if s.Status != http.StatusAccepted || s.Tries != 1 {
			t.Errorf("%+v, want done with the upstream's 202", s)
		}
		if cut := strings.Contains(s.Reason, "cut"); cut != (id != ids[4]) {
			t.Errorf("%+v, want that it says whether it was cut", s)
		}
	}
}

// An upstream that works as it answers is not broken off, though its status is known.
func TestAnswersAreTakenToTheirEnd(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	var worked atomic.Bool
	f := front(q, site(t, time.Hour, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := []byte(strings.Repeat("x", 32<<10))
		for range 20 {
			if _, err := w.Write(page); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			pause(r.Context(), 100*time.Millisecond)
		}
		worked.Store(r.Context().Err() == nil)
	})), 0)
	id := waiting(t, q, 1, "/")
	work(t, q, f.Send)
	if s := becomes(t, q, id, Done); s.Status != http.StatusOK || s.Reason != "" || !worked.Load() {
		t.Errorf("%+v, worked to its end: %v; want done after that", s, worked.Load())
	}
}

// An upstream that does not begin to answer in time has failed.
func TestAnswersThatDoNotBegin(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1})
	f := front(q, site(t, time.Hour, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), 0)
	f.cfg.Timeout = 300 * time.Millisecond
	id := waiting(t, q, 1, "/")
	work(t, q, f.Send)
	if s := becomes(t, q, id, Dead); s.Tries != 1 || s.Status != 0 || !strings.Contains(s.Reason, "did not begin its answer within 300ms") {
		t.Errorf("%+v, want dead, as the upstream did not answer in time", s)
	}
}

// While there is no upstream nothing is tried, however often it is looked for: what waits is done when it
// is back, or has expired for want of it.
func TestUpstreamThatIsAwayCostsNoTry(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1})
	var asked atomic.Int32
	var back atomic.Bool
	f := front(q, site(t, 100*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1); back.Load() {
			w.WriteHeader(http.StatusCreated)
			return
		}
		w.Header().Set("Proxy-Status", "spillgate; error=connection_refused")
		w.WriteHeader(http.StatusBadGateway)
	})), 0)
	late := put(t, q, "acme", time.Now().Add(2*time.Second))
	work(t, q, f.Send)
	if s := becomes(t, q, late, Dead); s.Tries != 0 || s.Reason != "expired: the upstream gave no answer: connection_refused" {
		t.Errorf("%+v, want expired, as there was no upstream", s)
	}
	looks, id := asked.Load(), waiting(t, q, 1, "/")
	proc.Until(t, time.Minute, func() error {
		if s, err := q.Status(t.Context(), id); err != nil || s.State != Queued || s.Tries != 0 || asked.Load() < looks+2 {
			return fmt.Errorf("%+v, %v, asked %d times; want it to wait on, asked several times", s, err, asked.Load())
		}
		return nil
	})
	back.Store(true)
	if s := becomes(t, q, id, Done); s.Tries != 1 || s.Status != http.StatusCreated || s.Reason != "" {
		t.Errorf("%+v, want done at the first try", s)
	}
	proc.Until(t, 10*time.Second, func() error {
		var got [ends]float64
		for i, c := range q.cfg.Metrics.ends {
			got[i] = testutil.ToFloat64(c)
		}
		if unreached := float64(asked.Load() - 1); got != [ends]float64{endDone: 1, endExpired: 1, endUnreached: unreached} {
			return fmt.Errorf("%v are counted of %v, asked %d times", got, endNames, asked.Load())
		}
		return nil
	})
}

// Once an upstream that was away is back, what waits is done as fast as its own limits have it, of all
// tenants; those whose limits have no room for long do not keep it from being found.
func TestAllIsDoneOnceTheUpstreamIsBack(t *testing.T) {
	const without, with, each = 40, 10, 3
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	var back atomic.Bool
	back.Store(true)
	rule := func(name string, per time.Duration, paths ...string) limit.RuleSpec {
		return limit.RuleSpec{Name: name, Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: per}}, Match: limit.MatchSpec{Path: paths}}
	}
	full, free := rule("full", time.Hour, "/full"), rule("free", 100*time.Millisecond)
	full.Priority = 1
	f := front(q, behind(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.Header().Set("Proxy-Status", "spillgate; error=connection_refused")
			w.WriteHeader(http.StatusBadGateway)
		}
	}), full, free), 0)
	of := func(i int, path string) *Request {
		r := &Request{ID: NewID(), Tenant: fmt.Sprint(path, i), Client: fmt.Sprintf("192.0.2.%d:4711", i), Expires: time.Now().Add(time.Hour), HTTP: call("PUT", "http://api.example"+path, "")}
		r.HTTP.RemoteAddr = r.Client
		return r
	}
	for i := range without {
		if w := get(f, of(i, "/full").HTTP); w.Code != http.StatusOK {
			t.Fatalf("client %d: %d, want the room that there is", i, w.Code)
		}
	}
	back.Store(false)
	var wait []string
	keep := func(r *Request) {
		t.Helper()
		if err := q.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range without {
		keep(of(i, "/full"))
	}
	for i := range with * each {
		r := of(i%with, "/")
		wait = append(wait, r.ID)
		keep(r)
	}
	work(t, q, f.Send)
	proc.Until(t, time.Minute, func() error {
		if n := testutil.ToFloat64(q.cfg.Metrics.ends[endUnreached]); n < 3 {
			return fmt.Errorf("it was looked for %v times", n)
		}
		return nil
	})
	back.Store(true)
	proc.Until(t, 30*time.Second, func() error {
		if n := testutil.ToFloat64(q.cfg.Metrics.ends[endDone]); n < with*each {
			return fmt.Errorf("%v of %d are done", n, with*each)
		}
		return nil
	})
	for _, id := range wait {
		becomes(t, q, id, Done)
	}
}

// One request after the other looks for an upstream that is away, ever more seldom, and all go on once
// one has found it.
func TestOneLooksForAll(t *testing.T) {
	var r reach
	now := time.Now()
	shut := func(want time.Duration) {
		t.Helper()
		if got, _ := r.shut(now); got != want {
			t.Errorf("the next waits for %v, want %v", got, want)
		}
	}
	shut(0)
	shut(0)
	for _, pause := range []time.Duration{awayLeast, 2 * awayLeast, 4 * awayLeast, 8 * awayLeast, awayMost, awayMost} {
		r.note(true, now)
		shut(pause)
		now = now.Add(pause - time.Millisecond)
		shut(time.Millisecond)
		now = now.Add(time.Millisecond)
		shut(0)         // it looks
		shut(awayLeast) // as that may be known by then
		r.giveBack(now) // it has no room, and was not sent
		shut(0)
	}
	r.note(false, now)
	shut(0)
	shut(0)
	r.note(true, now)
	shut(awayLeast)
	now = now.Add(-time.Hour) // the clock is set back
	shut(0)
}

// Who may look for an upstream, and is denied before he is sent, has another look in his place at once.
func TestLookThatIsDeniedIsAnothers(t *testing.T) {
	f := NewFront(site(t, time.Hour, &upstream{}), FrontConfig{})
	send := func() Outcome { return f.Send(t.Context(), &Attempt{request("a"), func() error { return nil }}) }
	if out := send(); out.Status != http.StatusCreated {
		t.Fatalf("%+v, want done", out)
	}
	f.reach.note(true, time.Now().Add(-time.Minute))
	if out := send(); out.By == "" || out.By == "upstream" {
		t.Fatalf("%+v, want that the limit denies it", out)
	}
	if wait, looks := f.reach.shut(time.Now()); wait != 0 || !looks {
		t.Errorf("the next waits for %v, looks: %v", wait, looks)
	}
}

// What the end of a worker's process cuts is no answer, and no try: it is done by the next.
func TestEndCutsNoAnswer(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1, Drain: 300 * time.Millisecond})
	var asked atomic.Int32
	var answers atomic.Bool
	f := front(q, site(t, 100*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); !answers.Load() {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusCreated)
	})), 0)
	id := waiting(t, q, 1, "/")
	stop := work(t, q, f.Send)
	proc.Until(t, 10*time.Second, func() error {
		if asked.Load() == 0 {
			return fmt.Errorf("the upstream was not asked yet")
		}
		return nil
	})
	stop()
	if s, err := q.Status(context.Background(), id); err != nil || s.State != Queued || s.Tries != 0 {
		t.Errorf("%+v, %v; want queued, and no try", s, err)
	}
	answers.Store(true)
	work(t, q, f.Send)
	if s := becomes(t, q, id, Done); s.Status != http.StatusCreated || s.Tries != 1 {
		t.Errorf("%+v, want done with the upstream's 201", s)
	}
}

// What is at the upstream as a worker is to end is waited for, and noted; and no more is taken.
func TestEndWaitsForAnswers(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	asked, answer := make(chan struct{}), make(chan struct{})
	var cut atomic.Bool
	f := front(q, site(t, time.Hour, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
			cut.Store(true)
		}
		w.WriteHeader(http.StatusCreated)
	})), 0)
	id := waiting(t, q, 1, "/")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // end ends it, and it is waited for below
		defer close(ended)
		q.Work(ctx, 4, f.Send)
	}()
	<-asked
	end()
	later := waiting(t, q, 2, "/")
	pause(t.Context(), 500*time.Millisecond) // it would be cut, or another taken, by now
	close(answer)
	select {
	case <-asked:
		t.Fatal("another was sent")
	case <-ended:
	}
	if s, err := q.Status(t.Context(), id); err != nil || s.State != Done || s.Status != http.StatusCreated || s.Tries != 1 || cut.Load() {
		t.Errorf("%+v, %v, cut: %v; want done with the upstream's 201", s, err, cut.Load())
	}
	if s, err := q.Status(t.Context(), later); err != nil || s.State != Queued || s.Tries != 0 {
		t.Errorf("the one that came later: %+v, %v; want queued", s, err)
	}
}

// Nothing that waits is done while the upstream says that it has no room, though the limits
// have.
func TestNothingIsDoneWithoutRoom(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{})
	f := front(q, site(t, time.Hour, u), 0)
	var room atomic.Bool
	var looks atomic.Int32
	f.cfg.Room = func() bool { looks.Add(1); return room.Load() }
	id := waiting(t, q, 1, "/")
	work(t, q, f.Send)
	proc.Until(t, 20*time.Second, func() error {
		if looks.Load() < 2 {
			return fmt.Errorf("it was not looked for room twice")
		}
		return nil
	})
	if s, err := q.Status(context.Background(), id); err != nil || s.State != Queued || s.Tries != 0 || len(u.all()) > 0 {
		t.Errorf("%+v, %v, the upstream saw %q; want that it waits", s, err, u.all())
	}
	room.Store(true)
	becomes(t, q, id, Done)
}
