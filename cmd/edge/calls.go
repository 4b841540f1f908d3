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

// waiting is a call whose message is not there yet.
type waiting struct {
	unread *atomic.Int64
	timer  *time.Timer
	read   atomic.Bool
}

type waitingKey struct{}

// came notes that the message is there, or that the call is over; once.
func (w *waiting) came() {
	if w.read.CompareAndSwap(false, true) {
		w.timer.Stop()
		w.unread.Add(-1)
	}
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
	ctx, cancel := context.WithCancel(ctx)
	w := &waiting{unread: &c.unread, timer: time.AfterFunc(c.patience, cancel)}
	context.AfterFunc(ctx, func() { // the stream ended, or its message came too late
		w.came()
		of.Add(-1)
		cancel()
	})
	return context.WithValue(ctx, waitingKey{}, w), nil
}

func came(ctx context.Context) {
	if w, ok := ctx.Value(waitingKey{}).(*waiting); ok {
		w.came()
	}
}

// unary is called with the message.
func (c *calls) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	came(ctx)
	return handler(ctx, in)
}

// stream waits for the first message alone: whoever watches may go on for as long as he likes.
func (c *calls) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, begun{ss})
}

type begun struct{ grpc.ServerStream }

func (b begun) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		came(b.Context())
	}
	return err
}
