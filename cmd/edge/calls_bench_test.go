package main

import (
	"context"
	"net"
	"syscall"
	"testing"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// BenchmarkCalls is what the bounds of the gRPC listener cost a call of RLS over loopback,
// 32 in flight; cpu-ns/op is of the client, too, and quieter than the time on a busy machine.
func BenchmarkCalls(b *testing.B) {
	node, err := edge.Local(limit.RuleSpec{Name: "user", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1 << 40, Per: 60e9}}})
	if err != nil {
		b.Fatal(err)
	}
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bounds := range []string{"none", "calls"} {
		b.Run("bounds="+bounds, func(b *testing.B) {
			options, bound := []grpc.ServerOption(nil), func(ln net.Listener) net.Listener { return ln }
			if bounds == "calls" {
				c := testCalls()
				options, bound = c.options(), c.bound
			}
			server := grpc.NewServer(append(options, grpc.NumStreamWorkers(grpcWorkers))...)
			rls.New(api).Register(server)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); _ = server.Serve(bound(listener)) }() // stopped and waited for below
			defer func() { server.Stop(); <-done }()
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			client := rlsv3.NewRateLimitServiceClient(conn)
			b.SetParallelism(16)
			b.ReportAllocs()
			before := processorTime(b)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				in := &rlsv3.RateLimitRequest{Domain: edge.LocalNamespace, Descriptors: []*rlv3.RateLimitDescriptor{{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}}}}}
				for pb.Next() {
					if _, err := client.ShouldRateLimit(context.Background(), in); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
