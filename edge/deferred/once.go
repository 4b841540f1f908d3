package deferred

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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
// all of it: an id is a part of it, or sameID's secret.
func idOf(parts ...string) string { return idBy(sha256.New(), parts) }

func idBy(h hash.Hash, parts []string) string {
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fleeting are fields in which a request differs from the same one sent again: its time, how
// often it was sent, what its connection is asked to become, which only the first on it may say, and
// what it is traced by, as clients, proxies and meshes write that anew with each try. Those of fleetingFrom begin so.
var (
	fleeting = []string{"Date", "Expect", "Connection", "Upgrade", "Http2-Settings", "X-Request-Start", // of the routers of some clouds
		"X-Envoy-Attempt-Count", "Amz-Sdk-Request", "X-Stainless-Retry-Count",
		"X-Request-Id", "X-Correlation-Id", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context",
		"Traceparent", "Tracestate", "Baggage", "Grpc-Trace-Bin", // W3C, OpenCensus
		"B3", "Uber-Trace-Id", "X-Ot-Span-Context", "Sentry-Trace", "Sw8", "Newrelic", "X-Dynatrace", "Elastic-Apm-Traceparent"}
	fleetingFrom = []string{"X-B3-", "X-Datadog-", "X-Instana-", "Ot-Tracer-", "Sw8-"}
)

func isFleeting(name string) bool {
	return slices.Contains(fleeting, name) || slices.ContainsFunc(fleetingFrom, func(start string) bool { return strings.HasPrefix(name, start) })
}

// sameID is the id of a request that its client has a key for: the one that it had before,
// where the client sends it again. All of it counts, and what it is signed with above all, or
// somebody's request would be lost to another's who thought of the same key. Without the secret
// nobody knows it, though he knows the request, as of one that is signed with nothing.
func (q *Queue) sameID(r *Request) string {
	if clientKey(r.HTTP) == "" {
		return ""
	}
	from, _, err := net.SplitHostPort(r.Client)
	if err != nil {
		from = r.Client
	}
	scheme := "http"
	if r.HTTP.TLS != nil {
		scheme = "https"
	}
	ends := nominated(r.HTTP.Header)
	parts := []string{"deferred key", r.Tenant, r.Upstream, from, scheme, r.HTTP.Method, r.HTTP.Host, r.HTTP.URL.RequestURI(), string(r.Body)}
	for _, name := range slices.Sorted(maps.Keys(r.HTTP.Header)) {
		if !isFleeting(name) && !named(ends, name) {
			values := r.HTTP.Header[name]
			parts = append(append(parts, name, strconv.Itoa(len(values))), values...)
		}
	}
	return idBy(hmac.New(sha256.New, q.cfg.Secret), parts)
}

// clientKey is the Idempotency-Key of a client's own. One that its Connection names goes no
// further than here (RFC 9110, section 7.6.1), and is none.
func clientKey(r *http.Request) string {
	if named(nominated(r.Header), IdempotencyKey) {
		return ""
	}
	return r.Header.Get(IdempotencyKey)
}

// mostNext bounds how many ids of requests that are past are looked through for the one that
// follows.
const mostNext = 16

// putOnce is Put of a request whose id is made of what it is. If one of that id was kept before,
// nothing is: first is what became of that. Where that is past it goes on to the id that follows,
// which is the same for all who do; after mostNext of them it waits under one of its own.
func (q *Queue) putOnce(ctx context.Context, r *Request, past func(*Status) bool) (first *Status, err error) {
	for range mostNext {
		var gone *goneError
		switch first, err = q.putFirst(ctx, r); {
		case errors.As(err, &gone):
			r.ID = idOf("gone", r.ID, strconv.FormatUint(gone.sequence, 10))
		case err != nil || first == nil || !past(first):
			return first, err
		default:
			r.ID = next(r.ID, first)
		}
	}
	r.ID = NewID()
	return nil, q.Put(ctx, r)
}

// next is the id that follows that of a request which is past. What it was accepted at is in all
// of its statuses, and in that of no other of its id.
func next(id string, s *Status) string {
	return idOf("next", id, strconv.FormatInt(s.Accepted.UnixNano(), 10))
}

// putFirst is putOnce under the one id.
func (q *Queue) putFirst(ctx context.Context, r *Request) (first *Status, err error) {
	s, err := q.Status(ctx, r.ID)
	if errors.Is(err, ErrUnknown) {
		if err = q.put(ctx, r, true); !errors.Is(err, errAgain) {
			return nil, err
		}
		if s, err = q.Status(ctx, r.ID); errors.Is(err, ErrUnknown) { // a server tells that has not heard of it yet
			s, err = Status{State: Queued, Expires: r.Expires}, nil
		}
	}
	return &s, err
}

// errAgain: another put the same at once.
var errAgain = errors.New("it is kept already")

// goneError: one of the same id was put a while ago, and of that there is nothing any more,
// neither message nor status; JetStream keeps no other under it yet.
type goneError struct{ sequence uint64 }

func (e *goneError) Error() string { return "one of its id was kept, and is gone" }

// ended says that a request will not be done any more: it was given up, or is to be, and even
// whoever had it as its time ended has said nothing for a lease.
func (q *Queue) ended(s *Status) bool {
	switch s.State {
	case Dead, Unclaimed:
		return true
	case Done:
		return false
	}
	last := s.Expires
	if s.Updated.After(last) {
		last = s.Updated
	}
	return q.cfg.Now().After(last.Add(q.cfg.Lease))
}

// keep has a request of a client's wait. First is not nil where the client asked before, under
// the same key, and is told again what it was told: while that waits, and for as long as
// JetStream knows it after.
func (f *Front) keep(ctx context.Context, q *Queue, r *Request) (first *Status, err error) {
	def(&r.Upstream, q.cfg.Upstream)
	same := q.sameID(r)
	if same == "" {
		return nil, q.Put(ctx, r)
	}
	r.ID = same
	return q.putOnce(ctx, r, func(s *Status) bool {
		return q.ended(s) || s.State == Done && q.cfg.Now().Sub(s.Updated) >= duplicates
	})
}
