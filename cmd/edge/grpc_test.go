package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterapi"
	"github.com/spillgate/spillgate/edge/limiterpb"
	"github.com/spillgate/spillgate/edge/rlqs"
	"github.com/spillgate/spillgate/edge/rls"
	"github.com/spillgate/spillgate/test/proc"
)

// serving is the whole gRPC listener over an embedded limiter.
func serving(t *testing.T) string {
	t.Helper()
	node, err := edge.Local(limit.RuleSpec{Name: "user", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	return servingOver(t, node)
}

func servingOver(t *testing.T, node *edge.Node) string {
	t.Helper()
	return servingBy(t, node, testCalls())
}

func servingBy(t *testing.T, node *edge.Node, calls *calls) string {
	t.Helper()
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	quotas, err := rlqs.New(node, rlqs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveGRPC(ctx, ctx, listener, rls.New(api), quotas, limiterapi.New(api), calls, nil) }() // the cleanup stops it and waits
	var running sync.WaitGroup
	running.Go(func() { quotas.Run(ctx) }) // so it does of this
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dialled(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Health knows the services by their names, and by the one that the reference has for itself.
func TestHealthOverGRPC(t *testing.T) {
	health := healthpb.NewHealthClient(dialled(t, serving(t)))
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService", "spillgate.v1.Limiter"} {
		got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v, want it serving", name, got, err)
		}
	}
}

// slow opens streams on a connection of its own, each with so much of a message that does not
// end, and counts those that the server ends: all, where it ends the connection as none of
// their messages may be awaited for longer.
func slow(t *testing.T, addr, method string, streams, of int) *atomic.Int64 {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriterSize(c, 64<<10) // all at once: a connection's only call, as its first is for a moment else, counts otherwise
	if _, err := io.WriteString(out, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	ended, framer := &atomic.Int64{}, http2.NewFramer(out, nil)
	began, done := time.Now(), make(chan struct{})
	go func() { // until the cleanup closes the connection, and waits
		defer close(done)
		for {
			frame, err := http2.NewFramer(io.Discard, c).ReadFrame()
			if err != nil {
				if time.Since(began) > grpcLongPatience {
					ended.Store(int64(streams))
				}
				return
			}
			if frame.Header().Type == http2.FrameRSTStream {
				ended.Add(1)
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	message := binary.BigEndian.AppendUint32([]byte{0}, 1<<20-1)
	message = append(message, make([]byte, of)...)
	for i := range streams {
		block.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "a"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				t.Fatal(err)
			}
		}
		id := uint32(2*i + 1)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if of > 0 {
			if err := framer.WriteData(id, false, message); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	return ended
}

// Calls whose message never ends are bounded, by connection and in sum, and end; who calls
// meanwhile, and streams that are long by nature, are served.
func TestSlowCallsAreBounded(t *testing.T) {
	addr := serving(t)
	watch, err := healthpb.NewHealthClient(dialled(t, addr)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	const each, method = 3000, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	ended := []*atomic.Int64{slow(t, addr, method, each, 0), slow(t, addr, method, each, 16), slow(t, addr, "/spillgate.v1.Limiter/Check", each, 16)}
	refused := func() (n int64) {
		for _, e := range ended {
			n += e.Load()
		}
		return n
	}
	atLeast := func(want int64) func() error {
		return func() error {
			if n := refused(); n < want {
				return fmt.Errorf("%d of %d slow calls have ended, want %d", n, 3*each, want)
			}
			return nil
		}
	}
	proc.Until(t, time.Minute, atLeast(3*each-grpcMostUnread))
	if took := time.Since(began); took < grpcPatience {
		runtime.ReadMemStats(&during)
		if grew := int64(during.HeapInuse+during.StackInuse) - int64(before.HeapInuse+before.StackInuse); grew > 128<<20 {
			t.Errorf("%d MiB more are in use", grew>>20)
		}
	}
	proc.Until(t, grpcPatience+time.Minute, atLeast(3*each)) // alone it takes 20 s: two connections wait for room, one after the other
	out, err := rlsv3.NewRateLimitServiceClient(dialled(t, addr)).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: edge.LocalNamespace, Descriptors: []*rlv3.RateLimitDescriptor{{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}}}},
	})
	if err != nil || out.OverallCode != rlsv3.RateLimitResponse_OK {
		t.Errorf("a call after them: %v, %v", out, err)
	}
	if err := watch.Context().Err(); err != nil {
		t.Errorf("who watches health: %v", err)
	}
}

// What is no UTF-8 is decided about, as Envoy writes it where its clients do; from programs
// that speak our own protocol it is a mistake.
func TestEnvoysBytesAreTakenIn(t *testing.T) {
	w := serveWatched(t, grpcPatience)
	conn := dialled(t, w.addr)
	const call = "\x0a\x05local\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff"
	if err := conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, call, new(string), grpc.ForceCodec(text{})); err != nil {
		t.Errorf("ShouldRateLimit: %v", err)
	}
	if err := conn.Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, call[:len(call)-1], new(string), grpc.ForceCodec(text{})); status.Code(err) != codes.Internal {
		t.Errorf("ShouldRateLimit of a part of a message: %v", err)
	}
	if err := conn.Invoke(t.Context(), limiterpb.Limiter_Check_FullMethodName, "\x12\x09\x0a\x04user\x12\x01\xff", new(string), grpc.ForceCodec(text{})); status.Code(err) != codes.Internal {
		t.Errorf("Limiter/Check: %v", err)
	}
	if n := w.refused(t, httpapi.RefusedMessage); n != 2 {
		t.Errorf("%v messages are counted that no service was asked about, want 2", n)
	}
}
