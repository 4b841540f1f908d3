package deferred

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/test/proc"
)

// says is a log that tests may read.
type says struct {
	mu sync.Mutex // guards what follows
	b  bytes.Buffer
}

func (s *says) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *says) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A PoP that means ill ends no other's edges by what it writes into the region's queue.
func TestHostileMessages(t *testing.T) {
	j, log := newJet(t), &says{}
	q := j.queue(j.connect(), Config{Tries: 2, Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))})
	for _, at := range []string{"2126-11-27T00:00:00+24:00", "9999-12-31T23:59:59-01:00"} { // which JSON has no word for
		m, err := request("acme").message(q.subject("acme"))
		if err != nil {
			t.Fatal(err)
		}
		m.Header.Set(headerExpires, at)
		m.Header.Set(headerAccepted, at)
		if _, err := q.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	id := put(t, q, "acme", time.Time{})
	if list, err := q.Waiting(t.Context(), "", 0, 10); err != nil || len(list) != 2 || list[1].ID != id { // the first can be told so that JSON has a word for it
		t.Errorf("%+v, %v wait; want %s", list, err, id)
	}
	s, err := q.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s.Tries = -9
	if err := q.note(t.Context(), id, &s); err != nil {
		t.Fatal(err)
	}
	work(t, q, does(500))
	becomes(t, q, id, Dead)
	proc.Until(t, time.Minute, func() error {
		if waiting, dead, err := q.Depth(t.Context()); err != nil || waiting > 0 || dead != 2 {
			return errors.Join(err, errors.New("they wait still"))
		}
		return nil
	})
	if strings.Contains(log.String(), "panic") {
		t.Errorf("%s", log)
	}
}

// bug is a bucket that none of ours is.
type bug struct{ jetstream.KeyValue }

func (bug) Get(context.Context, string) (jetstream.KeyValueEntry, error) { panic("a bug") }

// A bug that a request meets ends nobody else's.
func TestPanicOverARequest(t *testing.T) {
	j, log := newJet(t), &says{}
	q := j.queue(j.connect(), Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	put(t, q, "acme", time.Time{})
	q.statuses = bug{q.statuses}
	work(t, q, does(200))
	proc.Until(t, time.Minute, func() error {
		if !strings.Contains(log.String(), "a bug") {
			return errors.New("nothing is told")
		}
		return nil
	})
}
