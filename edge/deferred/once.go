package deferred

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// What is asked to wait several times is to wait once: a dead letter that two operators
// revive, a client that asks again under its Idempotency-Key as it did not hear of its 202.
// The id of such a request says what it is, so that all but the first find it there.

// idOf is an id that all have who name the same. It is guessed by nobody who does not know
// all of it.
func idOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fleeting are fields in which a request differs from the same one sent again.
var fleeting = []string{"Date", "Traceparent", "Tracestate", "Baggage", "X-Request-Id", "X-Correlation-Id"}

// sameID is the id of a request that its client has a key for: the one that it had before,
// where the client sends it again. All of it counts, and what it is signed with above all, or
// somebody's request would be lost to another's who thought of the same key.
func sameID(r *Request) string {
	if clientKey(r.HTTP) == "" {
		return ""
	}
	from, _, err := net.SplitHostPort(r.Client)
	if err != nil {
		from = r.Client
	}
	parts := []string{"key", r.Tenant, from, r.HTTP.Method, r.HTTP.Host, r.HTTP.URL.RequestURI(), string(r.Body)}
	for _, name := range slices.Sorted(maps.Keys(r.HTTP.Header)) {
		if !slices.Contains(fleeting, name) {
			values := r.HTTP.Header[name]
			parts = append(append(parts, name, strconv.Itoa(len(values))), values...)
		}
	}
	return idOf(parts...)
}

// clientKey is the Idempotency-Key of a client's own. One that its Connection names goes no
// further than here (RFC 9110, section 7.6.1), and is none.
func clientKey(r *http.Request) string {
	if slices.ContainsFunc(nominated(r.Header), func(name string) bool { return strings.EqualFold(name, IdempotencyKey) }) {
		return ""
	}
	return r.Header.Get(IdempotencyKey)
}

// PutOnce is Put of a request whose id is made of what it is. If one of that id was kept
// before, nothing is: first is what became of that.
func (q *Queue) PutOnce(ctx context.Context, r *Request) (first *Status, err error) {
	s, err := q.Status(ctx, r.ID)
	if errors.Is(err, ErrUnknown) {
		if err = q.put(ctx, r, true); !errors.Is(err, errAgain) {
			return nil, err
		}
		s, err = q.Status(ctx, r.ID)
	}
	return &s, err
}

// errAgain: another put the same at once.
var errAgain = errors.New("it is kept already")

// keep has a request of a client's wait. First is not nil where the client asked before, under
// the same key, and is told again what it was told: while that waits, and for as long as
// JetStream knows it after.
func (f *Front) keep(ctx context.Context, q *Queue, r *Request) (first *Status, err error) {
	fresh, same := r.ID, sameID(r)
	if same == "" {
		return nil, q.Put(ctx, r)
	}
	r.ID = same
	first, err = q.PutOnce(ctx, r)
	if err != nil || first == nil || !first.over() && first.State != Unclaimed ||
		first.State == Done && q.cfg.Now().Sub(first.Updated) < duplicates {
		return first, err
	}
	r.ID = fresh
	return nil, q.Put(ctx, r)
}
