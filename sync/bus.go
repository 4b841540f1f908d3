package deltasync

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Errors that a Bus returns, wrapped; callers test for them with errors.Is.
var (
	// ErrNoResponders: nobody serves the subject now.
	ErrNoResponders = errors.New("no responders")
	// ErrSubject: no message can have this subject.
	ErrSubject = errors.New("bad subject")
	// ErrClosed: the bus was closed.
	ErrClosed = errors.New("bus closed")
	// ErrTooLarge: the payload is above MaxPayload.
	ErrTooLarge = errors.New("payload too large")
)

// MaxPayload is the largest payload that a Bus must carry, in bytes. Frames
// stay below MaxFrame; the rest is room for other traffic.
const MaxPayload = 1 << 20

// MaxSubject is the longest subject, in bytes: ours are below 100, and NATS
// refuses a line of 4096 by closing the connection.
const MaxSubject = 1024

// Bus carries frames between edges and aggregators: at most once, in any
// order, possibly twice. What travels on it is idempotent, so it promises
// little and hides nothing: a request that got no reply says so.
//
// Subjects are dot-separated tokens, see CheckSubject; in a subscription "*"
// stands for one token and a last ">" for one or more. A subject is for
// requests or for publishing, not for both: what is published never reaches
// Serve, nor a request Subscribe. All methods may be called by many goroutines
// at once, and all but Close from handlers. sync/bustest tests each sentence.
type Bus interface {
	// Request sends payload to one of those who serve subject and waits for
	// its reply until ctx ends. The caller may reuse payload afterwards; the
	// reply is the caller's. Errors: ErrNoResponders, at once, when nobody
	// serves subject or the bus cannot be reached; ErrSubject, ErrTooLarge,
	// ErrClosed, or ctx's. A request that failed may have been handled.
	Request(ctx context.Context, subject string, payload []byte) ([]byte, error)

	// Publish sends payload to all who subscribed to subject, the publisher
	// included. It does not wait for them, and a nil error does not say that
	// anybody heard. The caller may reuse payload afterwards. Errors:
	// ErrSubject, ErrTooLarge, ErrClosed, or that the bus cannot be reached.
	Publish(subject string, payload []byte) error

	// Serve answers requests on subject. Of those who serve it under the same
	// queue name, in whatever pattern, one gets each request; under several
	// names one of each does, and the first reply counts. handle runs on the
	// bus's goroutines, several at once; ctx ends when the bus closes, and
	// payload is its own to keep. The bus copies the reply. A nil reply sends
	// none, and so does one above MaxPayload. When more requests wait than the
	// bus has room for, further ones are lost.
	//
	// When Serve returns, whoever is connected to the same server of the bus can
	// reach handle, and soon, when the servers have told each other, everybody
	// can; if the bus is out of reach, that holds from when it is back. Stop is
	// heard of in the same way.
	Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (Subscription, error)

	// Subscribe hands over everything published on subject, one at a time, and
	// what one connection published in its order. payload is the handler's own
	// to keep. A receiver that falls behind loses messages; it never holds up
	// others. It takes effect as Serve does.
	Subscribe(subject string, handle func(subject string, payload []byte)) (Subscription, error)

	// Close ends all subscriptions and, with ErrClosed, the requests under
	// way; it waits for handlers that run, and makes every later call fail
	// with ErrClosed. It may be called twice, but not by a handler, which
	// would wait for itself.
	Close() error
}

// Subscription is one Serve or Subscribe.
type Subscription interface {
	// Stop ends it: nothing is handed over afterwards. Handlers already under
	// way go on; Close waits for them. It may be called twice, by a handler
	// too, and after Close.
	Stop() error
}

// CheckSubject returns ErrSubject, wrapped, unless subject is one that can be
// sent to: at most MaxSubject bytes, of non-empty tokens without white space,
// control characters or wildcards.
func CheckSubject(subject string) error { return checkTokens(subject, false) }

// CheckPattern is CheckSubject for what is served or subscribed to: "*" may
// stand for a token, and ">" for the last.
func CheckPattern(pattern string) error { return checkTokens(pattern, true) }

func checkTokens(subject string, wildcards bool) error {
	if len(subject) > MaxSubject {
		return fmt.Errorf("%w: %d bytes, want at most %d", ErrSubject, len(subject), MaxSubject)
	}
	for rest, more := subject, true; more; {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		switch {
		case token == "":
			return fmt.Errorf("%w %q: an empty token", ErrSubject, subject)
		case wildcards && (token == "*" || token == ">" && !more):
			continue
		}
		for _, c := range []byte(token) {
			if c <= ' ' || c == 0x7f || c == '*' || c == '>' {
				return fmt.Errorf("%w %q: %q in token %q", ErrSubject, subject, c, token)
			}
		}
	}
	return nil
}
