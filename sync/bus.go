package deltasync

import (
	"context"
	"errors"
)

// Errors that a Bus returns, wrapped; callers test for them with errors.Is.
var (
	// ErrNoResponders: nobody serves the subject now.
	ErrNoResponders = errors.New("no responders")
	// ErrClosed: the bus was closed.
	ErrClosed = errors.New("bus closed")
	// ErrTooLarge: the payload is above MaxPayload.
	ErrTooLarge = errors.New("payload too large")
)

// MaxPayload is the largest payload that a Bus must carry, in bytes. Frames
// stay below MaxFrame; the rest is room for other traffic.
const MaxPayload = 1 << 20

// Bus carries frames between edges and aggregators: at most once, in any
// order, possibly twice. What travels on it is idempotent, so it promises
// little and hides nothing: a request that got no reply says so.
//
// Subjects are dot-separated tokens; in a subscription "*" stands for one
// token and a last ">" for the rest. All methods may be called by many
// goroutines at once.
type Bus interface {
	// Request sends payload to one of those who serve subject and waits for
	// its reply until ctx ends. The caller may reuse payload afterwards; the
	// reply is the caller's. Errors: ErrNoResponders, ErrTooLarge, ErrClosed,
	// or ctx's.
	Request(ctx context.Context, subject string, payload []byte) ([]byte, error)

	// Publish sends payload to all who subscribed to subject. It does not
	// wait for them, and a nil error does not say that anybody heard.
	Publish(subject string, payload []byte) error

	// Serve answers requests on subject. Of those who serve it under the same
	// queue name one gets each request. handle runs on the bus's goroutines,
	// several at once; payload is its own to keep. A nil reply sends none.
	Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (Subscription, error)

	// Subscribe hands over everything published on subject, one at a time.
	// A receiver that falls behind loses messages; it never holds up others.
	Subscribe(subject string, handle func(subject string, payload []byte)) (Subscription, error)

	// Close ends all subscriptions, waits for handlers that run, and makes
	// every later call fail with ErrClosed. It may be called twice.
	Close() error
}

// Subscription is one Serve or Subscribe.
type Subscription interface {
	// Stop ends it; no handler starts after it returned.
	Stop() error
}
