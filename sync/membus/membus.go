// Package membus is a bus inside one process: for tests, simulations and the
// demo, and wrapped around any bus, a bad network (see Impair).
package membus

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	deltasync "github.com/spillgate/spillgate/sync"
)

// Bus is one connection to a bus that lives in memory. Connections to one bus
// differ in what Close ends.
type Bus struct {
	hub    *hub
	closed context.Context // what handlers run under; ends when Close begins
	close  context.CancelFunc

	mu       sync.Mutex
	ended    bool                   // guarded by mu; no handler starts from then on
	own      map[*receiver]struct{} // guarded by mu
	handlers sync.WaitGroup         // Add only with mu held and ended false

	lost atomic.Uint64
}

var _ deltasync.Bus = (*Bus)(nil)

// New makes a bus and returns a connection to it.
func New() *Bus { return connect(&hub{}) }

// Connect returns another connection to the same bus.
func (b *Bus) Connect() *Bus { return connect(b.hub) }

func connect(h *hub) *Bus {
	b := &Bus{hub: h, own: map[*receiver]struct{}{}}
	b.closed, b.close = context.WithCancel(context.Background())
	return b
}

// Request implements deltasync.Bus. A request to several queues is offered to
// all of them before the first reply is awaited.
func (b *Bus) Request(ctx context.Context, subject string, payload []byte) ([]byte, error) {
	if err := check(b.closed, subject, payload); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, err)
	}
	servers := b.hub.servers(subject)
	if len(servers) == 0 {
		return nil, fmt.Errorf("request %s: %w", subject, deltasync.ErrNoResponders)
	}
	reply := make(chan []byte, 1)
	for _, s := range servers {
		s.offer(message{subject: subject, payload: bytes.Clone(payload), reply: reply})
	}
	select {
	case r := <-reply:
		return r, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("request %s: %w", subject, ctx.Err())
	case <-b.closed.Done():
		return nil, fmt.Errorf("request %s: %w", subject, deltasync.ErrClosed)
	}
}

// Publish implements deltasync.Bus.
func (b *Bus) Publish(subject string, payload []byte) error {
	if err := check(b.closed, subject, payload); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	for _, s := range b.hub.subscribers(subject) {
		s.offer(message{subject: subject, payload: bytes.Clone(payload)})
	}
	return nil
}

// check returns why subject and payload cannot be sent by a bus that is closed
// when closed has ended.
func check(closed context.Context, subject string, payload []byte) error {
	switch {
	case closed.Err() != nil:
		return deltasync.ErrClosed
	case len(payload) > deltasync.MaxPayload:
		return fmt.Errorf("%w: %d bytes on %.100q, at most %d", deltasync.ErrTooLarge, len(payload), subject, deltasync.MaxPayload)
	}
	return deltasync.CheckSubject(subject)
}

// Serve implements deltasync.Bus.
func (b *Bus) Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (deltasync.Subscription, error) {
	if err := deltasync.CheckSubject(queue); err != nil {
		return nil, fmt.Errorf("serve %.100q: queue: %w", subject, err)
	}
	return b.receive(&receiver{pattern: subject, queue: queue, width: maxHandlers, handle: func(m message) {
		r := handle(b.closed, m.subject, m.payload)
		if r == nil || len(r) > deltasync.MaxPayload {
			return
		}
		select {
		case m.reply <- append(make([]byte, 0, len(r)), r...):
		default: // one of another queue was faster
		}
	}})
}

// Subscribe implements deltasync.Bus.
func (b *Bus) Subscribe(subject string, handle func(subject string, payload []byte)) (deltasync.Subscription, error) {
	return b.receive(&receiver{pattern: subject, width: 1, handle: func(m message) { handle(m.subject, m.payload) }})
}

// receive adds r to the bus.
func (b *Bus) receive(r *receiver) (deltasync.Subscription, error) {
	if err := deltasync.CheckPattern(r.pattern); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	r.bus = b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil, fmt.Errorf("subscribe %s: %w", r.pattern, deltasync.ErrClosed)
	}
	b.own[r] = struct{}{}
	b.hub.add(r)
	return r, nil
}

// Lost is how many messages this connection did not hand over because its
// receivers were too slow.
func (b *Bus) Lost() uint64 { return b.lost.Load() }

// Close implements deltasync.Bus.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.ended = true
	own := b.own
	b.own = nil
	b.mu.Unlock()
	b.close()
	for r := range own {
		r.end()
	}
	b.handlers.Wait()
	return nil
}
