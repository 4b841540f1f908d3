package main

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/rlqs"
)

// calls bounds what the gRPC server holds, over all connections: a call takes a goroutine
// and some kilobytes from its header on, and up to its whole message until that is there,
// which gRPC waits for without end. Streams of quotas are long by nature, and bounded by
// edge/rlqs; those of health and reflection have a bound of their own, so that they leave
// room for decisions.
//
// Whoever sends calls whole, in one packet, as clients do, needs no place among those that are
// waited for: these are for others, and an address has a part of them alone.
type calls struct {
	places   *places
	room     *httpapi.Room
	refusals *httpapi.Refusals

	underway, watches, quotas, unread, open         atomic.Int64
	mostUnderway, mostWatches, mostUnread, mostOpen int64
	patience                                        time.Duration // for a call's message
	roomWait                                        time.Duration // of a large one
	clock                                           atomic.Int64  // seconds that it has run
	waiting                                         atomic.Int64  // messages that have begun, or a call has, by the frames

	mu    sync.Mutex // guards conns
	conns map[*conn]struct{}
}

const (
	// grpcMostOfConnection is how many calls of one connection are under way; a proxy has
	// one for each of its threads, and its clients wait for their answers.
	grpcMostOfConnection = 1000
	grpcMostUnderway     = 8192
	// grpcMostUnread is how many calls are taken in whose message is not there: each may take
	// smallMessage, and more where there is room. An address has a quarter of them, but for
	// proxies: clients send the headers of all that they ask at a time before the messages.
	grpcMostUnread  = 4096
	grpcUnreadParts = 4
	grpcMostWatches = 1024
	// grpcBesideHealth is how many checks of health there may be where all calls are under way:
	// an edge whose clients wait for their turns is well.
	grpcBesideHealth = 128
	// grpcLastingParts: of the streams that last one address has such a part at the most.
	grpcLastingParts = 4
	// grpcPatience is how long a call's message may take from its header on: both come in one
	// packet, as a rule. Of streams that is the first; the next may take grpcLongPatience from
	// when it begins, and then the connection ends, as it is not known which stream it is.
	grpcPatience     = 5 * time.Second
	grpcLongPatience = 10 * time.Second
	// grpcRoomWait is how long a large message waits for room before it is refused: others are
	// read by then, or do not come.
	grpcRoomWait = 10 * time.Second
	// grpcMaxHeader bounds a call's metadata: a proxy sends some hundred bytes, and whoever has a
	// token some kilobytes.
	grpcMaxHeader = 16 << 10
	// grpcWindow is how much of a stream comes that is not read yet, and grpcConnWindow of a
	// connection at once: gRPC's own grow to 16 MiB each.
	grpcWindow     = 64 << 10
	grpcConnWindow = 1 << 20
)

func newCalls(room *httpapi.Room, trusted httpapi.Proxies, refusals *httpapi.Refusals) *calls {
	return &calls{
		places: newPlaces(listenerGRPC, trusted, refusals), room: room, refusals: refusals, conns: map[*conn]struct{}{},
		mostUnderway: grpcMostUnderway, mostUnread: grpcMostUnread, mostWatches: grpcMostWatches, mostOpen: grpcMostOpen, patience: grpcPatience, roomWait: grpcRoomWait,
	}
}

// options have a server keep to the bounds, that serves a listener of bound.
func (c *calls) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(grpcMostOfConnection), grpc.MaxHeaderListSize(grpcMaxHeader), grpc.ConnectionTimeout(grpcPatience),
		grpc.StaticStreamWindowSize(grpcWindow), grpc.StaticConnWindowSize(grpcConnWindow),
		grpc.InTapHandle(c.begin), grpc.ChainUnaryInterceptor(c.unary), grpc.ChainStreamInterceptor(c.stream),
	}
}

// bound is a listener whose connections are bounded, and read along.
func (c *calls) bound(ln net.Listener) net.Listener {
	return &entrance{ln, c.places, func(nc net.Conn, from *address) net.Conn {
		at := &conn{place: place{Conn: nc, places: c.places, from: from}, calls: c, skip: preface, open: map[uint32]*incoming{}}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns[at] = struct{}{}
		return at
	}}
}

func (c *calls) forget(at *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, at)
}

// run ends connections whose messages do not come, or whose answers do not go, until ctx ends.
func (c *calls) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.tick()
		}
	}
}

func (c *calls) tick() {
	c.clock.Add(1)
	c.mu.Lock()
	conns := make([]*conn, 0, len(c.conns))
	for at := range c.conns {
		conns = append(conns, at)
	}
	c.mu.Unlock()
	for _, at := range conns {
		switch {
		case at.tick(int(grpcLongPatience / time.Second)):
			c.cut(at, httpapi.RefusedSlow)
		case at.untaken(grpcTaken):
			c.cut(at, httpapi.RefusedUntaken)
		}
	}
}

func (c *calls) cut(at *conn, reason string) {
	_ = at.Close() // whatever that says, it is over
	c.refusals.Tell(listenerGRPC, reason)
}

// underway is a call, and its context. Where that ends first, over is called, on a goroutine
// of its own; else whoever has answered lets the call go: that goroutine, of each call, was
// half of what the bounds cost.
type underway struct {
	context.Context
	of     *atomic.Int64 // that it is one of
	unless func() bool   // keeps over from being called
	stream *conn         // that it is one of; nil of others
	part   *atomic.Int64 // of its address's, likewise; nil of calls that do not last

	// Where its message is not there yet:
	calls  *calls   // nil where it takes no place of those that wait
	from   *address // nil where it came over no listener of calls
	timer  *time.Timer
	cancel context.CancelFunc
	read   atomic.Bool // its message is there by now, or it has ended
}

type underwayKey struct{}

// Value implements context.Context.
func (u *underway) Value(key any) any {
	if key == (underwayKey{}) {
		return u
	}
	return u.Context.Value(key)
}

// came notes that the message is there; again it does nothing.
func (u *underway) came() {
	if u.timer != nil {
		u.timer.Stop()
		u.arrived()
	}
}

// arrived gives back the place of those that wait, once.
func (u *underway) arrived() {
	if u.read.CompareAndSwap(false, true) && u.calls != nil {
		u.calls.arrived(u.from)
	}
}

// ended lets the call go.
func (u *underway) ended() {
	if u.unless() {
		u.over()
	}
}

// over is that the call has ended, be it that its message never came.
func (u *underway) over() {
	u.of.Add(-1)
	if u.part != nil {
		u.part.Add(-1)
	}
	if u.stream != nil {
		u.stream.streams.Add(-1)
	}
	if u.came(); u.timer != nil {
		u.cancel()
	}
}

// await has a call be one that waits for its message, where there is a place for it.
func (c *calls) await(from *address) bool {
	if c.unread.Add(1) <= c.mostUnread {
		if from == nil || from.unread.Add(1) <= c.mostUnread/grpcUnreadParts || !from.who.IsValid() {
			return true
		}
		from.unread.Add(-1)
	}
	c.unread.Add(-1)
	return false
}

// lasts has a stream of quotas, health or reflection take a place of its address, which has a
// part of all: where others' proxies find none they take this edge for dead.
func (c *calls) lasts(of *atomic.Int64, from *address, part **atomic.Int64) bool {
	most := int64(0)
	switch of {
	case &c.watches:
		*part, most = &from.watches, c.mostWatches/grpcLastingParts
	case &c.quotas:
		*part, most = &from.quotas, rlqs.DefaultMaxStreams/grpcLastingParts
	default:
		return true
	}
	if (*part).Add(1) <= most || !from.who.IsValid() {
		return true
	}
	(*part).Add(-1)
	return false
}

// arrived gives the place back.
func (c *calls) arrived(from *address) {
	c.unread.Add(-1)
	if from != nil {
		from.unread.Add(-1)
	}
}

// What is refused is no denial: a proxy does what it does where nothing was decided.
var (
	errBusy   = status.Error(codes.Unavailable, "too many calls are under way at this edge")
	errRoom   = status.Error(codes.Unavailable, "this edge has no room for so large a message now, of this address or of all: ask again, or another edge")
	errUnread = status.Error(codes.Unavailable, "too many calls wait for their message at this edge, of this address or of all")
)

// noRoom is what gRPC's refusal of a message has in it that conn made too long.
const noRoom = "(4294967295 vs."

// begin takes a call in, or refuses it, as its header comes.
func (c *calls) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	of, most := &c.underway, c.mostUnderway
	at := connOf(ctx)
	switch {
	case info.FullMethodName == quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName:
		of, most = &c.quotas, math.MaxInt64 // edge/rlqs bounds them
	case info.FullMethodName == healthpb.Health_Check_FullMethodName: // it is as short as a decision, and they may all wait
		most += grpcBesideHealth
	case strings.HasPrefix(info.FullMethodName, "/grpc."): // streams of health and reflection
		of, most = &c.watches, c.mostWatches
	}
	var part *atomic.Int64 // of one address
	if of.Add(1) > most || at != nil && (c.crowded(at.from) || !c.lasts(of, at.from, &part)) {
		of.Add(-1)
		c.refusals.Tell(listenerGRPC, httpapi.RefusedCalls)
		return nil, errBusy
	}
	u := &underway{Context: ctx, of: of, part: part}
	waits := int64(math.MaxInt64)
	if at != nil {
		waits, u.from = at.waits.Load(), at.from
	}
	if waits > 0 { // else the message came with the header
		if waits > 1 { // a connection's only one takes no place: its packet may just have been cut
			if !c.await(u.from) {
				if of.Add(-1); part != nil {
					part.Add(-1)
				}
				c.refusals.Tell(listenerGRPC, httpapi.RefusedUnread)
				return nil, errUnread
			}
			u.calls = c
		}
		u.Context, u.cancel = context.WithCancel(ctx)
		u.timer = time.AfterFunc(c.patience, c.late(u, at))
	}
	if of != &c.underway && at != nil {
		u.stream = at
		at.streams.Add(1)
	}
	// The stream's own context ends with it: where the message came too late, as cancel has
	// it fail.
	u.unless = context.AfterFunc(ctx, u.over)
	return u, nil
}

// late is that a call's message was not read in time. It is slow where it did not come: what we
// have not come to read, or had wait for room, is not; nor are long reports, as long as they come,
// or as we have read so little of them that no more may.
func (c *calls) late(u *underway, at *conn) func() {
	had := int64(0)
	if at != nil {
		had = at.came.Load()
	}
	return func() {
		quotas := at != nil && u.of == &c.quotas // any other is read once its caller has said all
		switch {
		case u.read.Load():
		case quotas && at.whole():
			u.arrived()
		case quotas && (at.came.Load()-had >= leastComes || !at.silent(c.patience)), at != nil && at.stalled(c.patience):
			time.AfterFunc(c.patience, c.late(u, at))
		default:
			c.refusals.Tell(listenerGRPC, httpapi.RefusedSlow)
			u.cancel()
		}
	}
}

// leastComes is how many bytes come of long reports in grpcPatience at the least.
const leastComes = 256 << 10

func underwayOf(ctx context.Context) *underway {
	u, _ := ctx.Value(underwayKey{}).(*underway)
	return u
}

// unary is called with the message.
func (c *calls) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	u := underwayOf(ctx)
	u.came()
	defer u.ended()
	return handler(ctx, in)
}

// stream waits for the first message alone: whoever watches may go on for as long as he likes.
func (c *calls) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	u := underwayOf(ss.Context())
	defer u.ended()
	return handler(srv, &begun{ServerStream: ss, underway: u, conn: connOf(u)})
}

type begun struct {
	grpc.ServerStream
	underway *underway
	conn     *conn
	read     bool
}

// RecvMsg implements grpc.ServerStream. What it gave before is done with.
func (b *begun) RecvMsg(m any) error {
	if b.read && b.conn != nil && !b.conn.read() {
		return errRoom
	}
	err := b.ServerStream.RecvMsg(m)
	switch {
	case err == nil:
		b.read = true
		b.underway.came()
	case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), noRoom):
		return errRoom
	}
	return err
}
