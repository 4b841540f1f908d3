package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/test/proc"
)

// waits answers once its caller is gone, or at once.
type waits struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (waits) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	if in.Domain == "wait" {
		<-ctx.Done()
	}
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// text is a codec of messages as they are on the wire.
type text struct{}

func (text) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }
func (text) Unmarshal([]byte, any) error   { return nil }
func (text) Name() string                  { return "proto" }

var _ encoding.Codec = text{}

// An address has a part of the places for calls without their message, and proxies have all.
func TestProxiesWaitForManyMessages(t *testing.T) {
	c := testCalls()
	one, proxies := &address{who: netip.MustParseAddr("192.0.2.1")}, &address{}
	taken := func(from *address) (n int) {
		for c.await(from) {
			n++
		}
		return n
	}
	if n, rest := taken(one), taken(proxies); n != grpcMostUnread/grpcUnreadParts || rest != grpcMostUnread-n {
		t.Errorf("an address has %d places, and proxies the %d that are left; of %d", n, rest, grpcMostUnread)
	}
}

// Requests over HTTP/2 have as many places as an address has connections, which are given back.
func TestRequestsHaveTheirPlaces(t *testing.T) {
	p := newPlaces(listenerProxy, nil, httpapi.NewRefusals(nil, nil))
	var leave func()
	taken := func(peer string) (n int) {
		for {
			l, ok := p.take(peer)
			if !ok {
				return n
			}
			leave, n = l, n+1
		}
	}
	if n, want := taken("192.0.2.1:5"), rooms[listenerProxy].part; n != want {
		t.Errorf("an address has %d places, want %d", n, want)
	}
	if leave(); taken("192.0.2.1:6") != 1 || taken("192.0.2.2:5") != rooms[listenerProxy].part {
		t.Error("what is given back, or another's, is not taken")
	}
}

// testCalls are bounds whose refusals nobody sees.
func testCalls() *calls {
	refusals := httpapi.NewRefusals(nil, nil)
	return newCalls(httpapi.NewRoom(httpapi.DefaultRoom, refusals), nil, refusals)
}

// One address has a part of the streams that watch health, and none of the calls that ask for
// it: others' proxies take this edge for dead where they cannot ask.
func TestWatchersLeaveRoomForHealth(t *testing.T) {
	c := testCalls()
	c.mostWatches = 2 * grpcLastingParts
	client := healthpb.NewHealthClient(dialled(t, servingBy(t, limitertest.Node(t), c)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func() error {
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.Unavailable} {
		if err := watch(); status.Code(err) != want {
			t.Errorf("watch %d: %v, want %v", i, err, want)
		}
	}
	c.watches.Add(c.mostWatches) // others' of other addresses
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v, want it answered", err)
	}
	c.watches.Add(-c.mostWatches)
	c.underway.Add(c.mostUnderway) // that wait for their turns
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v beside calls that wait, want it answered", err)
	}
	c.underway.Add(-c.mostUnderway)
	cancel()
	ctx = t.Context()
	proc.Until(t, 20*time.Second, watch) // their places are given back
}

// However a call ends, it is no longer counted: done, given up by its client before its
// message or after, cut off as that does not come, not understood, or of a method that is
// not there.
func TestCallsAreLetGo(t *testing.T) {
	c := testCalls()
	c.patience = 2 * time.Second
	c.room = httpapi.NewRoom(1<<30, c.refusals) // for what slow says that it sends
	server := grpc.NewServer(append(c.options(), grpc.NumStreamWorkers(2))...)
	rlsv3.RegisterRateLimitServiceServer(server, waits{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(c.bound(listener)) }() // the cleanup stops it and waits
	t.Cleanup(func() { server.Stop(); <-done })
	conn := dialled(t, listener.Addr().String())
	client := rlsv3.NewRateLimitServiceClient(conn)
	counts := func() string {
		return fmt.Sprint(c.underway.Load(), " under way, ", c.unread.Load(), " unread, ", c.watches.Load(), " watches")
	}
	becomes := func(want string) {
		t.Helper()
		proc.Until(t, 20*time.Second, func() error {
			if got := counts(); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	const none = "0 under way, 0 unread, 0 watches"
	var all sync.WaitGroup
	for i := range 64 { // some are given up as they begin
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 > 0 {
				go cancel() // ends at once
			}
			_, _ = client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{})
			cancel()
		})
	}
	all.Wait()
	becomes(none)

	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() { _, _ = client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "wait"}) })
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	becomes("1 under way, 0 unread, 1 watches")
	cancel()
	all.Wait()
	becomes(none)

	for _, call := range []struct{ method, message string }{{"/nothing.There/Call", ""}, {rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, "\xff"}} {
		if err := conn.Invoke(t.Context(), call.method, call.message, new(string), grpc.ForceCodec(text{})); err == nil {
			t.Errorf("%s of %q was answered", call.method, call.message)
		}
	}
	becomes(none)
	slow(t, listener.Addr().String(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, 10, 16)
	slow(t, listener.Addr().String(), healthpb.Health_Watch_FullMethodName, 10, 0)
	becomes("10 under way, 20 unread, 10 watches")
	becomes(none)
}
