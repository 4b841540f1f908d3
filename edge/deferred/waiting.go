package deferred

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Waiting is a request that waits, as operators see it.
type Waiting struct {
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	Method   string    `json:"method"`
	URI      string    `json:"uri"`
	Bytes    int       `json:"bytes"` // of its body
	Accepted time.Time `json:"accepted"`
	Expires  time.Time `json:"expires"`
	// Next is where those after this one begin; see Queue.Waiting.
	Next uint64 `json:"next"`
}

// Waiting is at most n requests that wait, of a tenant, or of all (""), the oldest first, from
// one on: 0, or the Next of another. There may be fewer where reading them takes long.
func (q *Queue) Waiting(ctx context.Context, tenant string, from uint64, n int) ([]Waiting, error) {
	if tenant == "" {
		tenant = "*"
	}
	var out []Waiting
	err := q.walk(ctx, q.stream, q.subject(tenant), from, n, func(r *Request, m *jetstream.RawStreamMsg) {
		out = append(out, Waiting{
			ID: r.ID, Tenant: r.Tenant, Method: r.HTTP.Method, URI: r.HTTP.RequestURI, Bytes: len(r.Body),
			Accepted: r.Accepted, Expires: r.Expires, Next: m.Sequence + 1,
		})
	})
	return out, err
}

// Tenant is one of whose requests some wait.
type Tenant struct {
	Tenant  string    `json:"tenant"`
	Waiting uint64    `json:"waiting"`
	Oldest  time.Time `json:"oldest"` // of them was accepted
}

const (
	// mostTenants bounds what Tenants looks through, and mostTold what it returns.
	mostTenants = 100_000
	mostTold    = 100
)

// Tenants is at most n of those of whom the most requests wait, and how many there are in all.
func (q *Queue) Tenants(ctx context.Context, n int) (out []Tenant, of int, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	stream, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, 0, q.unavailable("ask for "+q.stream, err)
	}
	if of = int(stream.CachedInfo().State.NumSubjects); of > mostTenants {
		return nil, of, fmt.Errorf("deferred: %w: requests of %d keys wait, and no more than %d are sorted", ErrUnavailable, of, mostTenants)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(q.subject("*")))
	if err != nil {
		return nil, of, q.unavailable("ask for "+q.stream, err)
	}
	waits := info.State.Subjects
	var most []string
	for subject := range waits {
		most = append(most, subject)
	}
	slices.SortFunc(most, func(a, b string) int { return cmp.Or(cmp.Compare(waits[b], waits[a]), cmp.Compare(a, b)) })
	for _, subject := range most[:min(n, mostTold, len(most))] {
		m, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) { // they are done meanwhile
			continue
		}
		if err != nil {
			return out, of, q.unavailable("read "+q.stream, err)
		}
		if r, err := requestOf(m.Header, m.Data); err == nil { // else a worker throws it away
			out = append(out, Tenant{r.Tenant, waits[subject], r.Accepted})
		}
	}
	return out, of, nil
}

// walk visits n requests of a stream at the most, those under a subject from one on. Where time
// runs out it ends with those that it has.
func (q *Queue) walk(ctx context.Context, name, subject string, from uint64, n int, visit func(r *Request, m *jetstream.RawStreamMsg)) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	stream, err := q.js.Stream(ctx, name)
	if err != nil {
		return q.unavailable("ask for "+name, err)
	}
	from = max(from, 1)
	for visited := 0; visited < n; {
		m, err := stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound), err != nil && ctx.Err() != nil && visited > 0:
			return nil
		case err != nil:
			return q.unavailable("read "+name, err)
		}
		from = m.Sequence + 1
		r, err := requestOf(m.Header, m.Data)
		if err != nil {
			q.log.Error("a deferred request cannot be read", "stream", name, "sequence", m.Sequence, "err", err)
			continue
		}
		visit(r, m)
		visited++
	}
	return nil
}
