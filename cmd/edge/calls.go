package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// calls bounds what the gRPC server holds, over all connections: a call takes a goroutine
// and some kilobytes from its header on, and up to its whole message until that is there,
// which gRPC waits for without end. Streams of quotas are long by nature, and bounded by
// edge/rlqs; those of health and reflection have a bound of their own, so that they leave
// room for decisions.
type calls struct {
	underway, unread, watches             atomic.Int64
	mostUnderway, mostUnread, mostWatches int64
	patience                              time.Duration // for a call's message
}

const (
	// grpcMostOfConnection is how many calls of one connection are under way; a proxy has
	// one for each of its threads, and its clients wait for their answers.
	grpcMostOfConnection = 1000
	grpcMostUnderway     = 8192
	// grpcMostUnread is how many of those are read: each may take grpcMaxBytes.
	grpcMostUnread  = 2048
	grpcMostWatches = 1024
	// grpcPatience is how long a call's message may take from its header on: both come in one
	// packet, as a rule.
	grpcPatience = 5 * time.Second
	// grpcMaxHeader bounds a call's metadata.
	grpcMaxHeader = 32 << 10
)

func newCalls() *calls {
	return &calls{mostUnderway: grpcMostUnderway, mostUnread: grpcMostUnread, mostWatches: grpcMostWatches, patience: grpcPatience}
}

// options have a server keep to the bounds.
func (c *calls) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(grpcMostOfConnection), grpc.MaxHeaderListSize(grpcMaxHeader), grpc.ConnectionTimeout(grpcPatience),
		grpc.InTapHandle(c.begin), grpc.ChainUnaryInterceptor(c.unary), grpc.ChainStreamInterceptor(c.stream),
	}
}

// waiting is a call whose message is not there yet, and its context. Where that ends first,
// over is called, on a goroutine of its own; else whoever has the message lets the call go:
// that goroutine, of each call, was half of what the bounds cost.
type waiting struct {
	context.Context
	cancel context.CancelFunc
	calls  *calls
	of     *atomic.Int64 // that it is one of
	timer  *time.Timer
	unless func() bool // keeps over from being called
	read   atomic.Bool // and has
}

type waitingKey struct{}

// Value implements context.Context.
func (w *waiting) Value(key any) any {
	if key == (waitingKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// came notes that the message is there; again it does nothing.
func (w *waiting) came() {
	if !w.read.Load() && w.unless() {
		w.read.Store(true)
		w.timer.Stop()
		w.calls.unread.Add(-1)
	}
}

// ended lets the call go, be it that its message never came.
func (w *waiting) ended() {
	if w.came(); w.read.Load() {
		w.of.Add(-1)
		w.cancel()
	}
}

// over is that the stream has ended before its message came.
func (w *waiting) over() {
	w.timer.Stop()
	w.calls.unread.Add(-1)
	w.of.Add(-1)
	w.cancel()
}

// errBusy is no denial: a proxy does what it does where nothing was decided.
var errBusy = status.Error(codes.Unavailable, "too many calls are under way at this edge")

// begin takes a call in, or refuses it, as its header comes.
func (c *calls) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName {
		return ctx, nil
	}
	of, most := &c.underway, c.mostUnderway
	if strings.HasPrefix(info.FullMethodName, "/grpc.") { // of health and reflection
		of, most = &c.watches, c.mostWatches
	}
	if of.Add(1) > most {
		of.Add(-1)
		return nil, errBusy
	}
	if c.unread.Add(1) > c.mostUnread {
		c.unread.Add(-1)
		of.Add(-1)
		return nil, errBusy
	}
	own, cancel := context.WithCancel(ctx)
	w := &waiting{Context: own, cancel: cancel, calls: c, of: of, timer: time.AfterFunc(c.patience, cancel)}
	// The stream's own context ends with it: where the message came too late, as cancel has
	// it fail.
	w.unless = context.AfterFunc(ctx, w.over)
	return w, nil
}

func waitingOf(ctx context.Context) *waiting {
	w, _ := ctx.Value(waitingKey{}).(*waiting)
	return w
}

// unary is called with the message.
func (c *calls) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if w := waitingOf(ctx); w != nil {
		w.came()
		defer w.ended()
	}
	return handler(ctx, in)
}

// stream waits for the first message alone: whoever watches may go on for as long as he likes.
func (c *calls) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	w := waitingOf(ss.Context())
	if w == nil { // of quotas
		return handler(srv, ss)
	}
	defer w.ended()
	return handler(srv, begun{ss, w})
}

type begun struct {
	grpc.ServerStream
	w *waiting
}

func (b begun) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		b.w.came()
	}
	return err
}
