// Package client asks a Spillgate edge: whether a request may pass, and what one has cost.
//
//	limiter, err := client.NewHTTP("http://127.0.0.1:8080", client.Config{})
//	...
//	reply, err := limiter.Check(ctx, client.Check{Namespace: "shop", Attributes: map[string]string{"user": "u1"}})
//	switch {
//	case err != nil: // nothing was decided: reply.Allowed is what Config.FailClosed says
//	case !reply.Allowed: // denied: reply.RetryAfter, reply.Headers
//	}
//
// It speaks HTTP and is std alone; edge/client/grpcclient has the same over gRPC.
//
// A denial is a Reply, and no error. An error says that nothing was decided: it is a
// *Fault where the edge failed or could not be reached, when the request passes or not as the
// caller chose, and a *Mistake where the call itself is wrong, which no other try mends. Of
// those the ones that are in what the request says (it is longer than an edge takes, say, or
// not UTF-8) deny it whatever the caller chose: else who writes such requests has no limit.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Limiter is an edge that is asked over a network.
type Limiter interface {
	// Check asks whether a request may pass, and charges it if so. Where it has an error
	// nothing was decided; Reply.Allowed then says whether the request is to pass all the
	// same, and Reply.Undecided is true: as Config.FailClosed has it, and never where the
	// mistake is in what the request says (Mistake.Setup).
	Check(ctx context.Context, check Check) (Reply, error)
	// Report charges what a request turned out to cost, or gives it back. It is no use to
	// try again what has failed: it may have been counted.
	Report(ctx context.Context, report Report) (Recorded, error)
}

// Check is one request.
type Check struct {
	// Namespace is whose rules are meant. "": the edge's only one, or its default.
	Namespace string
	// Attributes are what rules read: user, client_ip, method, path, host, header.X-Name,
	// and names of your own. A path is what the client wrote, escapes and all.
	Attributes map[string]string
	// Cost is what it costs; 0: as the rule says.
	Cost uint64
	// Peek asks without being counted.
	Peek bool
}

// Report is what a request turned out to cost, or to be answered.
type Report struct {
	Namespace  string
	Attributes map[string]string // those of the check; with response.status where Answered
	// Cost is what is charged, whatever room there is; negative: given back; 0: as the rule
	// says.
	Cost int64
	// Answered charges rules that count certain responses only.
	Answered bool
	// DecisionID is that of the reply to the check: of a strict limit what it was charged is
	// free at once then.
	DecisionID string
}

// Reply is what an edge decided.
type Reply struct {
	Allowed    bool
	Undecided  bool   // nothing was decided; Allowed is as Check says
	DecisionID string // by which the edge's operator is told why, and a Report gives back
	Rule       string // that decided; "": none applies
	Policy     string // its rate; "": it has none, and allows or denies whatever it matches
	Limit      uint64
	Remaining  uint64
	RetryAfter time.Duration // of a denial: how long to wait
	Delay      time.Duration // of what a queue admitted: until its turn, which the caller waits for
	Zone       string        // normal, soft, elastic, hard, shadow; "": no limit was asked
	NearLimit  bool
	Basis      Basis
	// Status is what the client of a denied request over HTTP is to be answered with; of one
	// that no edge can be told of 400, 414 or 431, and of one that is denied as nothing was
	// decided (Config.FailClosed) 503.
	Status int
	// Headers are what the client of a request over HTTP is to be told: Retry-After, and
	// those of the rule's profiles.
	Headers map[string]string
}

// Basis is what an edge decided by.
type Basis struct {
	Local, Merged   uint64        // what the edge counted itself, and has heard of
	Age             time.Duration // since it heard of the key; -1: never
	Regions         int
	ErrorBound      *uint64 // by how much the limit may be exceeded; nil: not known
	ErrorBoundSurge *uint64
	ShortOfShare    bool // denied for want of the edge's share, while others may have room
	CutOff          bool // denied as the edge cannot hear of others: a fault, not a limit
}

// Recorded is what became of a report.
type Recorded struct {
	Recorded  bool // any rule counted it, or gave anything back
	Rule      string
	Policy    string
	Limit     uint64
	Remaining uint64
	NearLimit bool
}

// Config is how a client behaves. The zero value is usable.
type Config struct {
	// Timeout is how long a call may take, the connection included. Default (0): 100 ms,
	// as an edge is near and decides in microseconds: longer makes requests wait for an
	// edge that is dead, shorter has more of them undecided. Negative: as long as the
	// call's context has.
	//
	// The edge is told, and waits for no rights of a strict limit (strict_wait) for longer
	// than three quarters of it: a request that gets none in that time is denied, and does
	// not pass undecided. For a strict_wait to be of full use Timeout is to be a third
	// longer, and more by the way to the edge: 400 ms for one of 250 ms.
	Timeout time.Duration

	// FailClosed has requests denied about which nothing was decided, as the edge failed,
	// was not reached, or has no such namespace. Default: they pass, so that a limiter that
	// is away takes no service down.
	FailClosed bool
}

const defaultTimeout = 100 * time.Millisecond

// Bound is a context that ends when a call is to: transports call it.
func (c *Config) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case c.Timeout < 0:
		return ctx, func() {}
	case c.Timeout == 0:
		return context.WithTimeout(ctx, defaultTimeout)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// Undecided is the reply of a call that failed with an error.
func (c *Config) Undecided(err error) Reply {
	reply := Reply{Allowed: !c.FailClosed, Undecided: true, Basis: Basis{Age: -1}}
	if wrong := (*Mistake)(nil); errors.As(err, &wrong) && !wrong.Setup {
		reply.Allowed, reply.Status = false, wrong.HTTPStatus()
	} else if !reply.Allowed {
		reply.Status, reply.RetryAfter = http.StatusServiceUnavailable, time.Second
		reply.Headers = map[string]string{"Retry-After": "1"}
	}
	return reply
}

// Fault is that the limiter failed, or was not reached in time.
type Fault struct {
	Op  string // "check" or "report"
	Err error
}

func (e *Fault) Error() string { return fmt.Sprintf("limiter: %s: %v", e.Op, e.Err) }
func (e *Fault) Unwrap() error { return e.Err }

// Mistake is that a call is wrong: what, where and how to mend it.
type Mistake struct {
	Op     string
	Detail string
	// Setup is that the program's settings are wrong (there are no rules for the namespace,
	// the edge wants credentials), whatever the request is. Else it is the request that an
	// edge cannot be told of.
	Setup bool
	// Status is what the request's client over HTTP is to be answered with; 0: 400.
	Status int
}

// HTTPStatus is what the client of a request over HTTP is to be answered with.
func (e *Mistake) HTTPStatus() int {
	if e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError {
		return e.Status
	}
	return http.StatusBadRequest
}

func (e *Mistake) Error() string { return fmt.Sprintf("limiter: %s: %s", e.Op, e.Detail) }

// IsFault says that the limiter failed, as opposed to whoever asked it.
func IsFault(err error) bool {
	var fault *Fault
	return errors.As(err, &fault)
}
