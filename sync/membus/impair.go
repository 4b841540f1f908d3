package membus

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
)

// orphanWait is how long a request is given whose requester has left before it
// was sent. Nobody reads its reply.
const orphanWait = time.Second

// Link is what happens to messages on their way. The zero value is a perfect
// network.
type Link struct {
	// Delay is how long a message takes, one way; Jitter is added to it,
	// between none and all of it with equal chance. Messages of one delay stay
	// in order; those of different delays overtake each other.
	Delay, Jitter time.Duration
	// Loss, Duplicate and Reorder are probabilities for one message: to
	// vanish, to come twice, and to be held back for a further Delay + Jitter
	// + 1 ms, so that later ones overtake it.
	Loss, Duplicate, Reorder float64
	// Cut is a frozen link: messages vanish, those under way as well, and
	// nobody is told.
	Cut bool
}

// Faults says how a bus is impaired.
type Faults struct {
	// Seed makes every choice. The n-th message sent on a subject meets the
	// same fate in every run, whatever happens on other subjects: a request
	// draws for its reply too when it is made. So runs are equal where each
	// subject's messages are sent in the same order. (Subjects share 256
	// sequences, by a hash of their names.)
	Seed uint64
	// Link is asked for each message when it leaves, and for a delayed one
	// again when it arrives, so that cuts come and go while the bus runs.
	// It is called by many goroutines at once. A bus that stands for one site
	// has a Link of its own, which knows that site. nil: a perfect network.
	Link func(subject string) Link
}

// Impaired is a bus whose messages suffer. It impairs what is sent through it:
// publications, requests, and their replies on the way back; what others send
// is theirs to impair. So a link between two sites is bad both ways if each
// wraps its bus. A refusal, ErrNoResponders, takes as long as a reply. Delays
// run on package time, so under testing/synctest they cost nothing.
type Impaired struct {
	inner  deltasync.Bus
	faults Faults
	closed context.Context
	close  context.CancelFunc

	fates  fates
	line   line
	counts counters
	asking sync.WaitGroup // requests that the line has sent; Add only by the line
}

var _ deltasync.Bus = (*Impaired)(nil)

// Impair makes the network around inner a bad one. The impaired bus owns
// inner and closes it when it is closed itself.
func Impair(inner deltasync.Bus, faults Faults) *Impaired {
	i := &Impaired{inner: inner, faults: faults}
	i.closed, i.close = context.WithCancel(context.Background())
	i.fates.seed = faults.Seed
	return i
}

// Publish implements deltasync.Bus. It fails only with what is known here; a
// delayed message that cannot be published when it arrives is lost.
func (i *Impaired) Publish(subject string, payload []byte) error {
	if err := check(i.closed, subject, payload); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	f := i.fate(i.fates.next(subject).there, subject)
	switch {
	case f.lost:
		return nil
	case f.unharmed():
		return i.inner.Publish(subject, payload)
	}
	own := bytes.Clone(payload)
	i.send(f, len(own), func() {
		if i.link(subject).Cut || i.inner.Publish(subject, own) != nil {
			i.counts.lost.Add(1)
		}
	})
	return nil
}

// outcome is what came of a request.
type outcome struct {
	reply []byte
	err   error
}

// Request implements deltasync.Bus. A request whose requester has left is
// delivered nevertheless, as it would be by a network.
func (i *Impaired) Request(ctx context.Context, subject string, payload []byte) ([]byte, error) {
	if err := check(i.closed, subject, payload); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, err)
	}
	d := i.fates.next(subject)
	o := i.there(ctx, d.there, subject, payload)
	if ctx.Err() == nil && i.closed.Err() == nil {
		o = i.back(ctx, d.back, subject, o)
	}
	if o.err != nil {
		return nil, fmt.Errorf("impaired: %w", o.err)
	}
	return o.reply, nil
}

// there takes a request to its server.
func (i *Impaired) there(ctx context.Context, d draw, subject string, payload []byte) outcome {
	f := i.fate(d, subject)
	switch {
	case f.lost:
		return i.await(ctx, subject, nil)
	case f.unharmed():
		return i.ask(ctx, subject, payload)
	}
	outcomes := make(chan outcome, len(f.delays)) // so that none waits to be read
	own := bytes.Clone(payload)
	i.send(f, len(own), func() {
		if i.link(subject).Cut {
			i.counts.lost.Add(1)
			return
		}
		// Ends with its request, which ends with Close at the latest; Close
		// waits for it.
		i.asking.Go(func() {
			under := ctx
			if ctx.Err() != nil {
				orphan, cancel := context.WithTimeout(context.Background(), orphanWait)
				defer cancel()
				under = orphan
			}
			outcomes <- i.ask(under, subject, own)
		})
	})
	return i.await(ctx, subject, outcomes)
}

// ask is a request to the inner bus that Close ends.
func (i *Impaired) ask(ctx context.Context, subject string, payload []byte) outcome {
	under, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(i.closed, cancel)()
	reply, err := i.inner.Request(under, subject, payload)
	if err != nil && i.closed.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("request %s: %w", subject, deltasync.ErrClosed)
	}
	return outcome{reply, err}
}

// back takes a reply to its requester. That it may come twice makes no
// difference there.
func (i *Impaired) back(ctx context.Context, d draw, subject string, o outcome) outcome {
	f := i.fate(d, subject)
	if f.lost {
		return i.await(ctx, subject, nil)
	}
	if f.delays[0] <= 0 {
		return o
	}
	arrived := make(chan outcome, 1)
	i.send(fate{copies: 1, delays: f.delays}, len(o.reply), func() {
		if i.link(subject).Cut {
			i.counts.lost.Add(1)
			return
		}
		arrived <- o
	})
	return i.await(ctx, subject, arrived)
}

// await returns the first outcome, or why nobody waits for it any more.
func (i *Impaired) await(ctx context.Context, subject string, outcomes <-chan outcome) outcome {
	select {
	case o := <-outcomes:
		return o
	case <-ctx.Done():
		return outcome{err: fmt.Errorf("request %s: %w", subject, ctx.Err())}
	case <-i.closed.Done():
		return outcome{err: fmt.Errorf("request %s: %w", subject, deltasync.ErrClosed)}
	}
}

// send has arrive called for each copy that f makes of a message, in time.
func (i *Impaired) send(f fate, size int, arrive func()) {
	now := time.Now()
	for _, d := range f.delays[:f.copies] {
		if !i.line.add(flight{due: now.Add(d), size: size, arrive: arrive}) {
			i.counts.overflowed.Add(1)
		}
	}
}

// link is how the subject's messages fare now.
func (i *Impaired) link(subject string) Link {
	if i.faults.Link == nil {
		return Link{}
	}
	return i.faults.Link(subject)
}

// fate decides about a message that leaves now, and counts it.
func (i *Impaired) fate(d draw, subject string) fate {
	f := d.fate(i.link(subject))
	i.counts.add(f)
	return f
}

// Serve implements deltasync.Bus. Nothing is impaired here: the requester's
// bus does that.
func (i *Impaired) Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (deltasync.Subscription, error) {
	return i.inner.Serve(subject, queue, handle)
}

// Subscribe implements deltasync.Bus. Nothing is impaired here: the
// publisher's bus does that.
func (i *Impaired) Subscribe(subject string, handle func(subject string, payload []byte)) (deltasync.Subscription, error) {
	return i.inner.Subscribe(subject, handle)
}

// Counts is what happened to messages so far.
func (i *Impaired) Counts() Counts { return i.counts.read() }

// Close implements deltasync.Bus. What is under way is lost.
func (i *Impaired) Close() error {
	i.close()
	i.line.end()
	i.asking.Wait()
	return i.inner.Close()
}
