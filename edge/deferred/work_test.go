package deferred

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// does has every request that has room answered with a status.
func does(status int) Send {
	return func(_ context.Context, a *Attempt) Outcome {
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		return Outcome{Status: status}
	}
}

// As many of a tenant's wait as may, and another's beside them.
func TestTenantsHaveTheirPlaces(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{PerTenant: 2})
	for _, tenant := range []string{"a b.>*", "*", ""} {
		put(t, q, tenant, time.Time{})
		first := put(t, q, tenant, time.Time{})
		over := &Request{ID: NewID(), Tenant: tenant, HTTP: call("PUT", "http://api.example/a", "")}
		if err := q.Put(t.Context(), over); !errors.Is(err, ErrFull) {
			t.Errorf("a third of %q: %v, want ErrFull", tenant, err)
		}
		if _, err := q.Status(t.Context(), over.ID); !errors.Is(err, ErrUnknown) {
			t.Errorf("the one that was refused: %v, want ErrUnknown", err)
		}
		if s, err := q.Status(t.Context(), first); err != nil || s.State != Queued {
			t.Errorf("%+v, %v; want queued", s, err)
		}
	}
	work(t, q, does(200))
	proc.Until(t, 10*time.Second, func() error {
		if waiting, _, err := q.Depth(context.Background()); err != nil || waiting > 0 {
			return errors.Join(err, errors.New("some wait"))
		}
		return nil
	})
	put(t, q, "*", time.Time{})
}

// An upstream that fails is asked as often as may be, and no longer; what it is sent has
// the same key each time, and again when somebody revives it.
func TestFailuresAreReported(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 2})
	var mu sync.Mutex
	var keys []string
	var status atomic.Int32
	status.Store(http.StatusBadGateway)
	work(t, q, func(_ context.Context, a *Attempt) Outcome {
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, a.HTTP.Header.Get(IdempotencyKey))
		if status.Load() == 0 {
			panic("the handler is broken")
		}
		return Outcome{Status: int(status.Load()), Wait: time.Millisecond}
	})
	id := put(t, q, "acme", time.Time{})
	if s := becomes(t, q, id, Dead); s.Tries != 2 || s.Status != http.StatusBadGateway || !strings.Contains(s.Reason, "502") {
		t.Errorf("%+v, want dead after two tries with 502", s)
	}
	letters, err := q.Dead(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || letters[0].ID != id || letters[0].Tenant != "acme" || letters[0].Method != "PUT" || letters[0].URI != "/a" || letters[0].Tries != 2 {
		t.Fatalf("%+v, %v; want the letter of %s", letters, err, id)
	}
	if more, err := q.Dead(t.Context(), letters[0].Next, 10); err != nil || len(more) != 0 {
		t.Errorf("after it: %+v, %v; want none", more, err)
	}
	status.Store(http.StatusNotFound) // an answer, and no failure
	again, err := q.Revive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if s := becomes(t, q, again, Done); s.Status != http.StatusNotFound {
		t.Errorf("%+v, want done with 404", s)
	}
	if twice, err := q.Revive(t.Context(), id); err != nil || twice != again {
		t.Errorf("revived twice: %s, %v; want %s again", twice, err, again)
	}
	if _, err := q.Revive(t.Context(), NewID()); !errors.Is(err, ErrUnknown) {
		t.Errorf("none: %v, want ErrUnknown", err)
	}
	mu.Lock()
	if !slices.Equal(keys, []string{id, id, id}) {
		t.Errorf("the upstream saw the keys %v, want %s thrice", keys, id)
	}
	mu.Unlock()
	status.Store(0)
	id = put(t, q, "acme", time.Time{})
	if s := becomes(t, q, id, Dead); !strings.Contains(s.Reason, "broken") {
		t.Errorf("%+v, want dead, as its handler is broken", s)
	}
	if err := q.Forget(t.Context(), id); err != nil {
		t.Error(err)
	}
	if letters, err := q.Dead(t.Context(), 0, 10); err != nil || len(letters) != 0 {
		t.Errorf("%+v, %v; want no letters", letters, err)
	}
}

// What an answer means goes by its status.
func TestStatusesDecide(t *testing.T) {
	for status, want := range map[int]string{
		200: "done", 202: "done", 302: "done", 303: "done", 304: "done", 400: "done", 401: "done", 404: "done", 409: "done", 499: "done",
		408: "failed", 425: "failed", 429: "failed", 500: "failed", 503: "failed", 0: "failed",
		301: "elsewhere", 307: "elsewhere", 308: "elsewhere",
	} {
		out, got := Outcome{Status: status}, "done"
		switch {
		case out.failed():
			got = "failed"
		case out.elsewhere():
			got = "elsewhere"
		}
		if got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}

// A redirection of the request itself is a dead letter that says where to, and is not followed.
func TestRedirectsAreReported(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	var asked atomic.Int32
	f := front(q, site(t, time.Hour, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "https://elsewhere.example/x?y", http.StatusPermanentRedirect)
	})), 0)
	id := waiting(t, q, 1, "/a")
	work(t, q, f.Send)
	if s := becomes(t, q, id, Dead); s.Tries != 1 || s.Status != http.StatusPermanentRedirect || !strings.Contains(s.Reason, `308: it is to be sent to "https://elsewhere.example/x?y"`) || asked.Load() != 1 {
		t.Errorf("%+v, asked %d times; want dead, and where to", s, asked.Load())
	}
}

// What finds no room in its time is dead, and said to be.
func TestExpiredIsReported(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	var asked atomic.Int32
	id := put(t, q, "acme", time.Now().Add(time.Second))
	work(t, q, func(context.Context, *Attempt) Outcome {
		asked.Add(1)
		return Outcome{Status: 429, Wait: time.Hour}
	})
	if s := becomes(t, q, id, Dead); s.Tries != 0 || !strings.Contains(s.Reason, "expired") {
		t.Errorf("%+v, want expired, and never tried", s)
	}
	if n := asked.Load(); n < 1 || n > 3 {
		t.Errorf("there was a look for room %d times, want at first, and at its end", n)
	}
}

// A worker that dies as it has a request leaves it to another, which cannot know what
// came of it; what the dead one would say of it later is not heard.
func TestWorkerDies(t *testing.T) {
	j := newJet(t)
	dies, lives := j.connect(), j.connect()
	q := j.queue(dies, Config{Lease: time.Second})
	id := put(t, q, "acme", time.Time{})
	has, let := make(chan struct{}), make(chan struct{})
	stop := work(t, q, func(_ context.Context, a *Attempt) Outcome {
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		close(has)
		<-let
		return Outcome{Status: 200}
	})
	<-has
	dies.Close()
	other := j.queue(lives, Config{Lease: time.Second})
	work(t, other, does(201))
	if s := becomes(t, other, id, Done); s.Tries != 2 || s.Status != 201 {
		t.Errorf("%+v, want done by the second worker's try", s)
	}
	close(let)
	stop()
	if s, err := other.Status(t.Context(), id); err != nil || s.Status != 201 {
		t.Errorf("%+v, %v; want what the second worker said", s, err)
	}
}

// Of two who have the same request one begins.
func TestOneBegins(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	id := put(t, q, "acme", time.Time{})
	a, err := q.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b := a
	if err := q.note(t.Context(), id, &a); err != nil {
		t.Fatal(err)
	}
	if err := q.note(t.Context(), id, &b); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the second one: %v, want a refusal", err)
	}
}

// What nobody of ours wrote is thrown away, and what comes after it is done.
func TestForeignMessages(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	for _, data := range []string{"", "GET", strings.Repeat("\x00", 100)} {
		if _, err := q.js.Publish(t.Context(), q.subject("acme"), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	id := put(t, q, "acme", time.Time{})
	work(t, q, does(200))
	becomes(t, q, id, Done)
	proc.Until(t, 10*time.Second, func() error {
		if waiting, dead, err := q.Depth(context.Background()); err != nil || waiting+dead > 0 {
			return errors.Join(err, errors.New("some are there still"))
		}
		return nil
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{{}, {Region: "e.u"}, {Region: "*"}, {Region: "eu", Tries: -1}, {Region: "eu", Lease: -1}} {
		if _, err := Open(t.Context(), nil, cfg); err == nil {
			t.Errorf("%+v: want an error", cfg)
		}
	}
}
