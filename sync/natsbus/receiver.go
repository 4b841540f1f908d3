package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	deltasync "github.com/spillgate/spillgate/sync"
)

const (
	// maxHandlers is how many handlers of one Serve run at once.
	maxHandlers = 64
	// maxPending and maxPendingBytes bound what waits for one receiver; the
	// client's own bounds are a thousand times that. A message that finds no
	// room is lost, which costs less than one delivered late.
	maxPending      = 512
	maxPendingBytes = 16 << 20
)

// receiver is one Serve or Subscribe.
type receiver struct {
	bus     *Bus
	sub     *nats.Subscription
	stopped atomic.Bool
	once    sync.Once
	err     error // of end; written by once
}

// Serve implements deltasync.Bus.
func (b *Bus) Serve(subject, queue string, handle func(ctx context.Context, subject string, payload []byte) []byte) (deltasync.Subscription, error) {
	if err := deltasync.CheckSubject(queue); err != nil {
		return nil, fmt.Errorf("serve %.100q: queue: %w", subject, err)
	}
	places := make(chan struct{}, maxHandlers)
	return b.receive(subject, queue, func(r *receiver, m *nats.Msg) {
		if m.Reply == "" {
			return // a publication
		}
		if !strings.HasPrefix(m.Reply, inboxPrefix) {
			b.misdirected(m)
			return
		}
		places <- struct{}{} // handlers free theirs; until then requests wait in the client's queue
		if !r.begin() {
			<-places
			return
		}
		// Ends with its handler; Close waits for it.
		go func() {
			defer b.handlers.Done()
			defer func() { <-places }()
			b.reply(m, handle(b.closed, m.Subject, m.Data))
		}()
	})
}

// misdirected notes a request whose answer is to go where no requester listens. It is the
// asker's to say where, and no server asks whether he might speak there himself: what he is
// answered would be told to others, as if whoever serves had something to tell them.
func (b *Bus) misdirected(m *nats.Msg) {
	if n := b.strays.Add(1); bits.OnesCount64(n) == 1 { // ever more seldom
		b.log.Warn("a request was not answered: its reply is to go to no inbox; somebody with the right to ask tries to have us speak for him", "subject", m.Subject, "reply", m.Reply, "such", n)
	}
}

// reply sends payload to the requester of m, if there is one to send.
func (b *Bus) reply(m *nats.Msg, payload []byte) {
	switch {
	case payload == nil:
	case len(payload) > deltasync.MaxPayload:
		b.log.Error("reply is too large and was not sent", "subject", m.Subject, "bytes", len(payload), "max", deltasync.MaxPayload)
	default:
		// The requester hears nothing and asks again: that is all there is to do.
		if err := m.Respond(payload); err != nil {
			b.log.Debug("reply was not sent", "subject", m.Subject, "error", err)
		}
	}
}

// Subscribe implements deltasync.Bus.
func (b *Bus) Subscribe(subject string, handle func(subject string, payload []byte)) (deltasync.Subscription, error) {
	return b.receive(subject, "", func(r *receiver, m *nats.Msg) {
		// Requests, replies and the server's own talk are no publications.
		if m.Reply != "" || strings.HasPrefix(m.Subject, inboxPrefix) || strings.HasPrefix(m.Subject, "$") {
			return
		}
		if r.begin() {
			defer b.handlers.Done()
			handle(m.Subject, m.Data)
		}
	})
}

// receive subscribes; queue is empty for all messages.
func (b *Bus) receive(pattern, queue string, handle func(*receiver, *nats.Msg)) (deltasync.Subscription, error) {
	if err := deltasync.CheckPattern(pattern); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if b.closed.Err() != nil {
		return nil, fmt.Errorf("subscribe %s: %w", pattern, deltasync.ErrClosed)
	}
	r := &receiver{bus: b}
	var err error
	if r.sub, err = b.nc.QueueSubscribe(pattern, queue, func(m *nats.Msg) { handle(r, m) }); err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", pattern, b.failure(err))
	}
	if err := r.sub.SetPendingLimits(maxPending, maxPendingBytes); err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", pattern, b.failure(err))
	}
	if !b.add(r) {
		return nil, errors.Join(fmt.Errorf("subscribe %s: %w", pattern, deltasync.ErrClosed), r.end())
	}
	b.flush()
	return r, nil
}

// add lets Close know of r, unless that has begun.
func (b *Bus) add(r *receiver) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.own[r] = struct{}{}
	}
	return !b.ended
}

// begin announces a handler to Close, unless r was stopped.
func (r *receiver) begin() bool {
	r.bus.mu.Lock()
	defer r.bus.mu.Unlock()
	if r.bus.ended || r.stopped.Load() {
		return false
	}
	r.bus.handlers.Add(1)
	return true
}

// Stop implements deltasync.Subscription. The server knows of it on return,
// so that requests go elsewhere, unless it does not answer.
func (r *receiver) Stop() error {
	err := r.end()
	r.bus.flush()
	return err
}

// end stops r once.
func (r *receiver) end() error {
	r.once.Do(func() {
		r.stopped.Store(true)
		b := r.bus
		b.mu.Lock()
		delete(b.own, r)
		b.lost += r.lost()
		b.mu.Unlock()
		if err := r.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.err = fmt.Errorf("stop %s: %w", r.sub.Subject, err)
		}
	})
	return r.err
}

// lost is how many messages r had no room for.
func (r *receiver) lost() uint64 {
	n, err := r.sub.Dropped()
	if err != nil {
		return 0 // stopped: end has counted them
	}
	return uint64(n)
}
