package deferred

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// slow is an upstream that takes its time with each request, and notes who sent what.
type slow struct {
	takes time.Duration

	mu   sync.Mutex
	sent map[string]int // by id
	has  map[string]int // by who sends: how many it has sent
}

func newSlow(takes time.Duration) *slow {
	return &slow{takes: takes, sent: map[string]int{}, has: map[string]int{}}
}

// by is the Send of one who sends.
func (u *slow) by(who string) Send {
	return func(ctx context.Context, a *Attempt) Outcome {
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		u.mu.Lock()
		u.sent[a.ID]++
		u.has[who]++
		u.mu.Unlock()
		pause(ctx, u.takes)
		return Outcome{Status: 200}
	}
}

// Workers that are busy for longer than a lease while others wait send none twice: not what
// waits for one of them, nor what they have. What a dead one had is sent again, and that alone.
func TestBusyWorkersSendOnce(t *testing.T) {
	const requests, workers = 16, 4 // of work
	for name, dies := range map[string]bool{"all live": false, "one dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJet(t)
			cfg := Config{Lease: 1500 * time.Millisecond}
			first, second := j.connect(), j.connect()
			q, other := j.queue(first, cfg), j.queue(second, cfg)
			var ids []string
			for i := range requests {
				ids = append(ids, put(t, q, fmt.Sprint(i%8), time.Time{}))
			}
			u := newSlow(2500 * time.Millisecond)
			want := map[int]int{1: requests}
			if dies {
				work(t, other, u.by("dead"))
				proc.Until(t, 10*time.Second, func() error {
					u.mu.Lock()
					defer u.mu.Unlock()
					if n := u.has["dead"]; n < workers {
						return fmt.Errorf("it has %d requests", n)
					}
					return nil
				})
				second.Close()
				want = map[int]int{1: requests - workers, 2: workers}
				other = j.queue(j.connect(), cfg)
			}
			work(t, q, u.by("first"))
			work(t, other, u.by("second"))
			for _, id := range ids {
				becomes(t, q, id, Done)
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			got := map[int]int{}
			for _, id := range ids {
				got[u.sent[id]]++
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("so many times so many were sent: %v, want %v", got, want)
			}
		})
	}
}

// A request that another worker has is put off, however often it is delivered, and taken a
// lease after that one was last heard of.
func TestRunningIsPutOff(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Lease: 2 * time.Second})
	id, s := running(t, q)
	u := newSlow(0)
	work(t, q, u.by("other"))
	for range 16 { // it is heard of for two leases
		pause(t.Context(), 250*time.Millisecond)
		if q.renew(t.Context(), id, &s) != ours {
			t.Fatal("another worker has taken it")
		}
	}
	delivered(t, q, 2)
	last := s.Updated
	if s = becomes(t, q, id, Done); s.Tries != 2 || s.Updated.Sub(last) < 2*time.Second {
		t.Errorf("%+v, want done by a second try, a lease after %v", s, last)
	}
}

func TestHeld(t *testing.T) {
	at := time.Unix(1000, 0)
	q := &Queue{cfg: Config{Lease: 30 * time.Second, Now: func() time.Time { return at }}}
	for name, tt := range map[string]struct {
		state State
		age   time.Duration
		want  time.Duration
	}{
		"that waits":               {Queued, 0, 0},
		"that is over":             {Done, 0, 0},
		"new":                      {Running, 0, 30 * time.Second},
		"not heard of for a while": {Running, 20 * time.Second, 10 * time.Second},
		"not heard of for a lease": {Running, 30 * time.Second, 0},
		"of a clock ahead":         {Running, -2 * time.Second, 32 * time.Second},
		"of a clock far ahead":     {Running, -31 * time.Second, 0},
	} {
		if got := q.held(&Status{State: tt.state, Updated: at.Add(-tt.age)}); got != tt.want {
			t.Errorf("one %s is held for %v, want %v", name, got, tt.want)
		}
	}
}

// A request that takes longer than its lease is noted anew meanwhile, and what came of it is
// written over that.
func TestHoldIsNoted(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Lease: 500 * time.Millisecond})
	id, has := put(t, q, "acme", time.Time{}), make(chan struct{})
	work(t, q, func(_ context.Context, a *Attempt) Outcome {
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		<-has
		return Outcome{Status: 200}
	})
	let := sync.OnceFunc(func() { close(has) })
	t.Cleanup(let)
	began := becomes(t, q, id, Running).Updated
	proc.Until(t, 10*time.Second, func() error {
		if s, err := q.Status(context.Background(), id); err != nil || s.State != Running || s.Updated.Sub(began) < q.cfg.Lease {
			return errors.Join(err, fmt.Errorf("%+v is not noted anew yet", s))
		}
		return nil
	})
	let()
	if s := becomes(t, q, id, Done); s.Tries != 1 {
		t.Errorf("%+v, want done by the first try", s)
	}
}

// A note that was written though its answer got lost is known again; what another worker
// wrote is left alone.
func TestRenewKnowsItsOwn(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	for name, tt := range map[string]struct {
		state State
		tries int
		want  holder
	}{
		"its own, unheard":          {Running, 1, ours},
		"another's":                 {Running, 2, anothers},
		"what came of another's":    {Done, 2, anothers},
		"another's that was cut":    {Queued, 1, anothers},
		"another's that has failed": {Queued, 2, anothers},
	} {
		id, s := running(t, q)
		there := s
		there.State, there.Tries = tt.state, tt.tries
		if err := q.note(t.Context(), id, &there); err != nil {
			t.Fatal(err)
		}
		if got := q.renew(t.Context(), id, &s); got != tt.want || got == ours && s.revision != there.revision {
			t.Errorf("%s: %v, revision %d; want %v and %d", name, got, s.revision, tt.want, there.revision)
		}
	}
}

// running is a request that waits, of which it is noted that a worker has it.
func running(t *testing.T, q *Queue) (string, Status) {
	t.Helper()
	id := put(t, q, "acme", time.Time{})
	s, err := q.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s.State, s.Tries = Running, 1
	if err := q.note(t.Context(), id, &s); err != nil {
		t.Fatal(err)
	}
	return id, s
}

// What was running as its worker died, and had no tries left, is not tried again: it may be what
// they die of.
func TestLastTryOfADeadWorker(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Lease: 500 * time.Millisecond, Tries: 2})
	id, s := running(t, q)
	s.Tries = 2
	if err := q.note(t.Context(), id, &s); err != nil {
		t.Fatal(err)
	}
	work(t, q, func(context.Context, *Attempt) Outcome {
		t.Error("it is tried once more")
		return Outcome{Status: 204}
	})
	if s := becomes(t, q, id, Dead); s.Tries != 2 || !strings.Contains(s.Reason, "given up after 2 tries") {
		t.Errorf("%+v, want that it is given up after 2 tries", s)
	}
}

// A request is tried again when its upstream says so, be that in hours; where that is past its end, sooner.
func TestRetryAfterIsHeeded(t *testing.T) {
	at := time.Unix(1000, 0)
	q := &Queue{cfg: Config{Now: func() time.Time { return at }}}
	r := &Request{Expires: at.Add(24 * time.Hour)}
	for asked, want := range map[time.Duration]time.Duration{0: retryLeast, time.Second: time.Second, 100 * time.Second: 100 * time.Second, 3 * time.Hour: 3 * time.Hour, 24 * time.Hour: 12 * time.Hour, 48 * time.Hour: 12 * time.Hour} {
		if got := q.putOff(r, asked); got != want {
			t.Errorf("asked for %v it is put off for %v, want %v", asked, got, want)
		}
	}
}
