package deferred

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/test/proc"
)

// noted is how many messages the bucket has, those of what was deleted too.
func noted(t testing.TB, q *Queue) uint64 {
	t.Helper()
	s, err := q.js.Stream(context.Background(), "KV_"+q.bucket)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// request is one that can be kept.
func request(tenant string) *Request {
	return &Request{ID: NewID(), Tenant: tenant, Client: "192.0.2.7:4711", HTTP: call("PUT", "http://api.example/a", "")}
}

// publish has a request stand in the queue, and nothing else: whoever kept it ended then.
func publish(t testing.TB, q *Queue, r *Request) {
	t.Helper()
	r.Accepted, r.Expires = time.Now(), time.Now().Add(time.Hour)
	m, err := r.message(q.subject(r.Tenant))
	if err == nil {
		_, err = q.js.PublishMsg(context.Background(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// delivered waits until workers were given messages so often.
func delivered(t testing.TB, q *Queue, want uint64) {
	t.Helper()
	proc.Until(t, time.Minute, func() error {
		c, err := q.js.Consumer(context.Background(), q.stream, "replay")
		if err == nil && c.CachedInfo().Delivered.Consumer < want {
			err = fmt.Errorf("delivered %d times of %d", c.CachedInfo().Delivered.Consumer, want)
		}
		return err
	})
}

// What is refused leaves nothing behind, however often it comes.
func TestRefusedLeavesNothing(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{PerTenant: 2})
	put(t, q, "acme", time.Time{})
	put(t, q, "acme", time.Time{})
	for range 20 {
		if err := q.Put(t.Context(), request("acme")); !errors.Is(err, ErrFull) {
			t.Fatalf("%v, want ErrFull", err)
		}
	}
	if n := noted(t, q); n != 2 {
		t.Errorf("the bucket has %d messages, want one of each that waits", n)
	}
}

// What cannot be noted is taken back.
func TestUnnotedIsTakenBack(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	r := request("acme")
	if _, err := q.statuses.Create(t.Context(), r.ID, []byte("another's")); err != nil {
		t.Fatal(err)
	}
	if err := q.Put(t.Context(), r); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d wait, %v; want none", waiting, err)
	}
	if _, err := q.Status(t.Context(), r.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	m, err := q.js.Stream(t.Context(), "KV_"+q.bucket)
	if err != nil {
		t.Fatal(err)
	}
	last, err := m.GetLastMsgForSubject(t.Context(), "$KV."+q.bucket+"."+r.ID)
	if err != nil || last.Header.Get(jetstream.MsgTTLHeader) != markerTTL.String() {
		t.Errorf("%v, %v; want a mark that expires", last, err)
	}
}

// A request that a worker meets before its status is there is done once that is.
func TestStatusComesLate(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Timeout: 5 * time.Second})
	var sent atomic.Int32
	work(t, q, func(ctx context.Context, a *Attempt) Outcome { sent.Add(1); return does(200)(ctx, a) })
	r := request("acme")
	publish(t, q, r)
	delivered(t, q, unclaimedLeast+1)
	s := Status{State: Queued, Accepted: r.Accepted, Expires: r.Expires}
	if _, err := q.statuses.Create(t.Context(), r.ID, s.encoded()); err != nil {
		t.Fatal(err)
	}
	if s = becomes(t, q, r.ID, Done); s.Tries != 1 || sent.Load() != 1 {
		t.Errorf("%+v, sent %d times; want once", s, sent.Load())
	}
}

// A request whose client was not told, as what kept it ended half-way, is neither lost nor
// done: and whoever kept it, and only was slow, cannot say any more that it waits.
func TestUnclaimedIsReported(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Timeout: 500 * time.Millisecond})
	var sent atomic.Int32
	stop := work(t, q, func(ctx context.Context, a *Attempt) Outcome { sent.Add(1); return does(200)(ctx, a) })
	r := request("acme")
	publish(t, q, r)
	if s := becomes(t, q, r.ID, Dead); s.Tries != 0 || !strings.Contains(s.Reason, "not told") || sent.Load() != 0 {
		t.Errorf("%+v, sent %d times; want dead, and never sent", s, sent.Load())
	}
	letters, err := q.Dead(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || letters[0].ID != r.ID {
		t.Errorf("%+v, %v; want one letter", letters, err)
	}
	if _, err := q.statuses.Create(t.Context(), r.ID, nil); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("a status that comes late: %v, want a refusal", err)
	}
	// So does one of which a worker said that, and ended.
	stop()
	r = request("acme")
	publish(t, q, r)
	s := Status{State: Unclaimed, Accepted: r.Accepted, Expires: r.Expires}
	if _, err := q.statuses.Create(t.Context(), r.ID, s.encoded()); err != nil {
		t.Fatal(err)
	}
	work(t, q, func(ctx context.Context, a *Attempt) Outcome { sent.Add(1); return does(200)(ctx, a) })
	if s := becomes(t, q, r.ID, Dead); s.Tries != 0 || sent.Load() != 0 {
		t.Errorf("%+v, sent %d times; want dead, and never sent", s, sent.Load())
	}
}

// hasty is JetStream for a client who leaves while it is told of a request.
type hasty struct {
	jetstream.JetStream
	leave func()
}

func (h hasty) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if err := h.Conn().PublishMsg(m); err != nil {
		return nil, err
	}
	h.leave()
	return h.JetStream.PublishMsg(ctx, m, opts...)
}

// Who leaves while his request is kept has it wait, and makes no dead letter.
func TestWhoLeavesMakesNoDeadLetter(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	for _, r := range []*Request{request("acme"), keyed("k")} {
		ctx, leave := context.WithCancel(t.Context())
		js := q.js
		q.js = hasty{js, leave}
		_, err := front(q, nil, 0).keep(ctx, q, r)
		if q.js = js; err != nil {
			t.Errorf("%v, want that it is kept", err)
		}
		if s, err := q.Status(t.Context(), r.ID); err != nil || s.State != Queued {
			t.Errorf("%+v, %v; want queued", s, err)
		}
		if err := q.Put(ctx, request("acme")); !errors.Is(err, ErrUnavailable) {
			t.Errorf("who has left before: %v, want ErrUnavailable", err)
		}
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 2 {
		t.Errorf("%d wait, %v; want two", waiting, err)
	}
}

// A request that is larger than the stream takes, or a server, is denied, and no other's.
func TestTooLargeForJetStream(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	alter(t, q.js, q.stream, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 << 10 })
	f := front(q, site(t, time.Hour, &upstream{}), 0)
	get(f, call("PUT", "/", "")) // there is room for one
	for body, want := range map[string]int{"small": http.StatusAccepted, strings.Repeat("x", 20<<10): http.StatusTooManyRequests} {
		for range 2 {
			if w := get(f, call("PUT", "/", body)); w.Code != want {
				t.Errorf("%d bytes: %d %s, want %d", len(body), w.Code, w.Body, want)
			}
		}
	}
	if n := testutil.ToFloat64(f.cfg.Metrics.requests[resultLarge]); n != 2 || f.asks.Load() != 0 {
		t.Errorf("%v are counted as large, and JetStream is asked again from %d on; want 2, and at once", n, f.asks.Load())
	}
	long := request(strings.Repeat("x", 1<<20)) // in its header
	if err := q.Put(t.Context(), long); !errors.Is(err, ErrTooLarge) {
		t.Errorf("larger than a server takes: %v, want ErrTooLarge", err)
	}
}

// A bucket that is full of what became of others refuses, and what was kept until then is
// done, and noted.
func TestStatusesAreBounded(t *testing.T) {
	for name, looks := range map[string]bool{"an eighth is left": true, "to the last byte": false} {
		t.Run(name, func(t *testing.T) {
			j := newJet(t)
			q := j.queue(j.connect(), Config{Bytes: 100 << 10, Tries: 1})
			if !looks {
				q.looks.Store(math.MaxInt64)
			}
			var kept []string
			var err error
			for err == nil && len(kept) < 1000 {
				if looks {
					q.looks.Store(0)
				}
				r := request(fmt.Sprint(len(kept)))
				if err = q.Put(t.Context(), r); err == nil {
					kept = append(kept, r.ID)
				}
			}
			if !errors.Is(err, ErrFull) {
				t.Fatalf("%d are kept, %v; want ErrFull", len(kept), err)
			}
			most := uint64(100 << 10)
			if looks {
				most = most/8*7 + 2*statusBytes
			}
			if status, err := q.statuses.Status(t.Context()); err != nil || status.Bytes() > most || status.Bytes() < most-4*statusBytes {
				t.Errorf("the bucket has %d bytes, %v; want no more than %d, and not much less", status.Bytes(), err, most)
			}
			if n := noted(t, q); n > uint64(len(kept))+1 { // the last one's mark
				t.Errorf("%d are kept, and the bucket has %d messages", len(kept), n)
			}
			long := Outcome{Err: errors.New(strings.Repeat("\x01long ", 1000))}
			work(t, q, func(ctx context.Context, a *Attempt) Outcome {
				if out := does(200)(ctx, a); a.Tenant != "0" || out.Err != nil {
					return out
				}
				return long
			})
			for i, id := range kept {
				want := Done
				if i == 0 {
					want = Dead
				}
				if s := becomes(t, q, id, want); s.Tries != 1 {
					t.Errorf("%+v, want one try", s)
				}
			}
		})
	}
}

// Of edges that differ the first one's settings stand, until an operator applies others; who has
// others says so, and does not overwrite them.
func TestSettingsAreTheQueues(t *testing.T) {
	j := newJet(t)
	nc := j.connect()
	bounds := func(q *Queue) [4]int64 {
		t.Helper()
		var out [4]int64
		for i, name := range []string{q.stream, q.dead, "KV_" + q.bucket} {
			s, err := q.js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if out[i] = s.CachedInfo().Config.MaxBytes; i == 0 {
				out[3] = s.CachedInfo().Config.MaxMsgsPerSubject
			}
		}
		return out
	}
	var says strings.Builder
	opens := func(cfg Config) (*Queue, *Front) {
		t.Helper()
		says.Reset()
		q := j.queue(nc, cfg)
		f := front(q, nil, 0)
		f.log = slog.New(slog.NewTextHandler(&says, nil))
		for range 2 {
			f.works(q.plan, DefaultCommand)
		}
		return q, f
	}
	first, _ := opens(Config{PerTenant: 2, Bytes: 1 << 20})
	cfg := Config{Region: "eu", PerTenant: 3, Bytes: 2 << 20}
	other, f := opens(cfg)
	if got, want := bounds(first), [4]int64{1 << 20, 1 << 20, 1 << 20, 2}; got != want {
		t.Errorf("the queue is bounded by %v, want the first edge's %v", got, want)
	}
	for _, want := range []string{"level=WARN", "SG_DEFER_eu: max_msgs_per_subject is 2, want 3", "SG_DEAD_eu: max_bytes is 1048576, want 2097152", DefaultCommand} {
		if strings.Count(says.String(), want) != 1 || f.Trouble() == nil {
			t.Errorf("the other edge says %q, want %s once; trouble: %v", says.String(), want, f.Trouble())
		}
	}
	put(t, first, "acme", time.Time{})
	plan, err := Inspect(t.Context(), other.js, cfg)
	if err == nil {
		err = plan.Apply(t.Context())
	}
	if got, want := bounds(first), [4]int64{2 << 20, 2 << 20, 2 << 20, 3}; got != want || err != nil {
		t.Errorf("the queue is bounded by %v, %v; want the other edge's %v", got, err, want)
	}
	if waiting, _, err := first.Depth(t.Context()); err != nil || waiting != 1 {
		t.Errorf("%d wait, %v; want the one that did", waiting, err)
	}
	if _, f := opens(cfg); strings.Contains(says.String(), "WARN") || f.Trouble() != nil {
		t.Errorf("one that has the same says %q, %v", says.String(), f.Trouble())
	}
}
