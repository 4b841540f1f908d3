// Package natsbus carries frames over core NATS.
//
// A bus outlives its servers: it starts without one, never gives up looking,
// and keeps nothing for later, because a frame that waited is worth less than
// the next one. While no server is connected, Request and Publish fail at once
// with ErrDisconnected. A request under way when a connection breaks ends with
// its context, and so does one to a server that is frozen: until its silence
// is noticed, after at most 6 s, nothing tells it from a slow one. Only when
// so much was sent into the silence that the socket is full, a call may take
// longer than its context allows, by writeTimeout and dialTimeout at most: the
// client holds its lock while it writes and while it connects.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	deltasync "github.com/spillgate/spillgate/sync"
)

// ErrDisconnected says that no server is connected now. Requests that fail with it also
// fail with deltasync.ErrNoResponders.
var ErrDisconnected = errors.New("not connected to NATS")

const (
	// pingInterval and maxPings notice a frozen server: the client's default
	// of 2 min let 25 s of frames pile up, to be delivered when they were
	// worth nothing.
	pingInterval = 2 * time.Second
	maxPings     = 2
	// dialTimeout bounds one attempt to connect, and with it how long Connect
	// takes when a server does not answer.
	dialTimeout = 2 * time.Second
	// reconnectWait and reconnectJitter pace attempts: jitter, or a server
	// that comes back meets all its edges in the same instant.
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 500 * time.Millisecond
	// writeTimeout bounds one write to the socket. It is short because callers
	// wait for the client's lock meanwhile.
	writeTimeout = time.Second
	// flushTimeout bounds the wait for the server to learn of a subscription.
	flushTimeout = time.Second
)

// Values of Bus.link.
const (
	linkUnknown = iota // no callback was called yet
	linkUp
	linkDown
)

// Bus is a connection to NATS.
type Bus struct {
	nc     *nats.Conn
	log    *slog.Logger
	closed context.Context // what handlers run under; ends when Close begins
	close  context.CancelFunc

	teardown sync.Once

	// link is what the client's callbacks said last. The client's own word
	// costs its lock, for which one waits while it tries to connect.
	link atomic.Int32
	// shown is what a server that asked for our certificate was answered in the
	// last TLS handshake; nil: it did not ask.
	shown atomic.Pointer[string]
	// strays counts requests that were misdirected.
	strays atomic.Uint64

	mu       sync.Mutex
	ended    bool                   // guarded by mu; no handler starts from then on
	own      map[*receiver]struct{} // guarded by mu
	lost     uint64                 // guarded by mu; of receivers that were stopped
	outage   outage                 // guarded by mu; zero while connected
	handlers sync.WaitGroup         // Add only with mu held and ended false
}

var _ deltasync.Bus = (*Bus)(nil)

// Connect returns a bus for cfg. It tries each server once and returns without
// an error also when none answered; the bus then goes on looking. An error
// means that cfg itself is of no use.
func Connect(cfg Config) (*Bus, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	b := &Bus{log: cfg.Logger, own: map[*receiver]struct{}{}}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.closed, b.close = context.WithCancel(context.Background())
	// NoEcho stays off: an aggregator may serve and ask over one connection,
	// and a receiver knows its own frames by their sender.
	var user *nkeyFile
	if cfg.NKeySeedFile != "" {
		user = &nkeyFile{path: cfg.NKeySeedFile, dialer: net.Dialer{Timeout: dialTimeout}}
		o, err := user.option()
		if err != nil {
			b.close()
			return nil, err
		}
		opts = append(opts, o)
	}
	opts = append(opts,
		nats.Timeout(dialTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // a user that is not known yet may be later
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.ConnectHandler(b.up),
		nats.ReconnectHandler(b.up),
		nats.DisconnectErrHandler(b.down),
		nats.ReconnectErrHandler(b.down),
		nats.ErrorHandler(b.asyncError),
		b.certificates(cfg),
	)
	b.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), opts...)
	if err != nil {
		b.close()
		return nil, fmt.Errorf("nats: %w", err)
	}
	if user != nil {
		user.conn.Store(b.nc)
	}
	// The callbacks come late, and the caller wants to send now; but they know
	// better if they have come.
	now := int32(linkDown)
	if b.nc.IsConnected() {
		now = linkUp
	}
	b.link.CompareAndSwap(linkUnknown, now)
	go b.watch()
	return b, nil
}

// JetStream is that of the bus's server, or of a domain beyond it, where one is named.
func (b *Bus) JetStream(domain string) (jetstream.JetStream, error) {
	js, err := jetstream.New(b.nc)
	if domain != "" {
		js, err = jetstream.NewWithDomain(b.nc, domain)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return js, nil
}

// connected reports whether there is a server, without waiting.
func (b *Bus) connected() bool { return b.link.Load() == linkUp }

// up is told of a connection.
func (b *Bus) up(nc *nats.Conn) {
	b.mu.Lock()
	b.outage = outage{}
	b.link.Store(linkUp)
	b.mu.Unlock()
	b.shown.Store(nil)
	b.log.Info("connected to NATS", "server", nc.ConnectedUrlRedacted())
}

// down is told why a connection was lost, or why no server was reached.
func (b *Bus) down(_ *nats.Conn, err error) {
	b.link.Store(linkDown)
	if err == nil {
		err = errors.New("the connection was closed")
	}
	b.hear(err)
}

// asyncError is told what the client or the server found wrong outside any
// call. A slow receiver is reported once until it has caught up. Attempts that are
// turned away come here each time.
func (b *Bus) asyncError(_ *nats.Conn, s *nats.Subscription, err error) {
	if s == nil && !b.connected() {
		b.hear(err)
		return
	}
	subject := ""
	if s != nil {
		subject = s.Subject
	}
	b.log.Warn("NATS reports an error", "subject", subject, "error", err)
}

// Request implements deltasync.Bus.
func (b *Bus) Request(ctx context.Context, subject string, payload []byte) ([]byte, error) {
	if err := b.check(subject, payload); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("request %s: %w", subject, err)
	}
	if !b.connected() {
		return nil, fmt.Errorf("request %s: %w", subject, b.unanswered(nats.ErrDisconnected))
	}
	under, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closed, cancel)()
	m, err := b.nc.RequestWithContext(under, subject, payload)
	switch {
	case err == nil:
		return m.Data, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, nats.ErrNoResponders):
		err = deltasync.ErrNoResponders
	default:
		err = b.unanswered(err)
	}
	return nil, fmt.Errorf("request %s: %w", subject, err)
}

// Publish implements deltasync.Bus.
func (b *Bus) Publish(subject string, payload []byte) error {
	if err := b.check(subject, payload); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if !b.connected() {
		return fmt.Errorf("publish %s: %w", subject, b.failure(nats.ErrDisconnected))
	}
	if err := b.nc.Publish(subject, payload); err != nil {
		return fmt.Errorf("publish %s: %w", subject, b.failure(err))
	}
	return nil
}

// check returns why subject and payload cannot be sent.
func (b *Bus) check(subject string, payload []byte) error {
	switch {
	case b.closed.Err() != nil:
		return deltasync.ErrClosed
	case len(payload) > deltasync.MaxPayload:
		return fmt.Errorf("%w: %d bytes on %.100q, at most %d", deltasync.ErrTooLarge, len(payload), subject, deltasync.MaxPayload)
	}
	return deltasync.CheckSubject(subject)
}

// unanswered is failure of a request: where no server is, nobody answers.
func (b *Bus) unanswered(err error) error {
	if err = b.failure(err); errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("%w: %w", deltasync.ErrNoResponders, err)
	}
	return err
}

// failure is what the contract calls an error of the client's. A bus that was
// closed meanwhile is that, and not disconnected.
func (b *Bus) failure(err error) error {
	switch {
	case b.closed.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
		return deltasync.ErrClosed
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w for this server: its max_payload is %d, want %d", deltasync.ErrTooLarge, b.nc.MaxPayload(), deltasync.MaxPayload)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return ErrDisconnected // that nothing is kept meanwhile is our own choice
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err) // such as a broken socket
}

// Close implements deltasync.Bus. Replies of handlers that were under way are
// still sent.
func (b *Bus) Close() error {
	b.teardown.Do(func() {
		b.mu.Lock()
		b.ended = true
		own := maps.Clone(b.own)
		b.mu.Unlock()
		b.close()
		for r := range own {
			if err := r.end(); err != nil {
				b.log.Warn("a NATS subscription did not end", "subject", r.sub.Subject, "error", err)
			}
		}
		b.handlers.Wait()
		b.flush()
		b.nc.Close()
	})
	return nil
}

// flush waits until the server has read everything sent so far. When it does
// not answer there is nothing to be done: what was sent goes to the next one.
func (b *Bus) flush() {
	if !b.connected() {
		return
	}
	if err := b.nc.FlushTimeout(flushTimeout); err != nil {
		b.log.Debug("NATS does not answer", "error", err)
	}
}
