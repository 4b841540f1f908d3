package deferred

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Letter is a dead letter: a request that was given up.
type Letter struct {
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	Method   string    `json:"method"`
	URI      string    `json:"uri"`
	Reason   string    `json:"reason"`
	Tries    int       `json:"tries"`
	Accepted time.Time `json:"accepted"`
	Died     time.Time `json:"died"`
	// Next is where the letters after this one begin; see Dead.
	Next uint64 `json:"next"`
}

// mostLetters bounds what Dead returns at once, and what is told of those that wait.
const mostLetters = 1000

// Dead is at most n dead letters, the oldest first, from one on: 0, or the Next of another.
// There may be fewer where reading them takes long.
func (q *Queue) Dead(ctx context.Context, from uint64, n int) ([]Letter, error) {
	var out []Letter
	err := q.walk(ctx, q.dead, q.grave("*"), from, min(n, mostLetters), func(r *Request, m *jetstream.RawStreamMsg) {
		out = append(out, letterOf(r, m))
	})
	return out, err
}

func letterOf(r *Request, m *jetstream.RawStreamMsg) Letter {
	reason, _ := strconv.Unquote(m.Header.Get(headerReason))
	tries, _ := strconv.Atoi(m.Header.Get(headerTries))
	return Letter{
		ID: r.ID, Tenant: r.Tenant, Method: r.HTTP.Method, URI: r.HTTP.RequestURI, Reason: reason,
		Tries: tries, Accepted: r.Accepted, Died: m.Time, Next: m.Sequence + 1,
	}
}

// letter is the dead letter of an id, with the request.
func (q *Queue) letter(ctx context.Context, id string) (*Request, jetstream.Stream, uint64, error) {
	if !validID(id) {
		return nil, nil, 0, fmt.Errorf("deferred: %q: %w", id, ErrUnknown)
	}
	stream, err := q.js.Stream(ctx, q.dead)
	if err != nil {
		return nil, nil, 0, q.unavailable("ask for "+q.dead, err)
	}
	m, err := stream.GetLastMsgForSubject(ctx, q.grave(id))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil, 0, fmt.Errorf("deferred: %s: %w among the dead", id, ErrUnknown)
	}
	if err != nil {
		return nil, nil, 0, q.unavailable("look for "+id, err)
	}
	r, err := requestOf(m.Header, m.Data)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("deferred: dead letter %s: %w", id, err)
	}
	return r, stream, m.Sequence, nil
}

// Revive has a dead request wait once more, under a new id, which it returns: it has as
// long to wait as it had at first, and all tries. Its Idempotency-Key stays. Of several who
// do it, at once or one after the other, all get the same id, and it waits once. One that was
// revived, and is dead again, is ErrDeadAgain: it has a letter of its own.
func (q *Queue) Revive(ctx context.Context, id string) (string, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	r, stream, sequence, err := q.letter(ctx, id)
	if errors.Is(err, ErrUnknown) {
		return q.revived(ctx, id, err)
	}
	if err != nil {
		return "", err
	}
	r.Expires = q.cfg.Now().Add(r.Expires.Sub(r.Accepted))
	r.ID = idOf("revive", id)
	if _, err := q.putOnce(ctx, r, q.ended); err != nil {
		return "", err
	}
	if err := stream.DeleteMsg(ctx, sequence); err != nil && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) { // that is another who was first
		q.log.Warn("a dead letter that waits once more is among the dead still: forget it, or revive it again, which does no more while that waits", "id", id, "again", r.ID, "err", err)
	}
	return r.ID, nil
}

// revived is under which id a dead request that has no letter any more waits again, or is done;
// unless is why not, where nobody has revived it.
func (q *Queue) revived(ctx context.Context, id string, unless error) (string, error) {
	again := idOf("revive", id)
	for range mostNext {
		s, err := q.Status(ctx, again)
		switch {
		case errors.Is(err, ErrUnknown):
			return "", unless
		case err != nil:
			return "", err
		case !q.ended(&s):
			return again, nil
		}
		unless = fmt.Errorf("deferred: %s was revived as %s: %w: look at that one", id, again, ErrDeadAgain)
		again = next(again, &s)
	}
	return "", unless
}

// Latest is what became of a request; if that was given up, and has been revived since, of what it
// waits as now, or waited as last.
func (q *Queue) Latest(ctx context.Context, id string) (Status, error) {
	s, err := q.Status(ctx, id)
	for again, tries := idOf("revive", id), 0; err == nil && s.State == Dead && tries < mostNext; tries++ {
		then, err := q.Status(ctx, again)
		switch {
		case err == nil:
			id, s = again, then
			again = idOf("revive", id)
		case errors.Is(err, ErrUnknown) && tries > 0 && again != next(id, &s): // its letter may have been there still
			again = next(id, &s)
		case errors.Is(err, ErrUnknown):
			return s, nil
		default:
			return Status{}, err
		}
	}
	return s, err
}

// Forget throws a dead letter away.
func (q *Queue) Forget(ctx context.Context, id string) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	_, stream, sequence, err := q.letter(ctx, id)
	if err != nil {
		return err
	}
	if err := stream.DeleteMsg(ctx, sequence); err != nil {
		return q.unavailable("forget the dead letter "+id, err)
	}
	return nil
}
