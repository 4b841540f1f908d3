package rls_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// empty is a handler that does nothing: what gRPC itself takes.
type empty struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (empty) ShouldRateLimit(_ context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

// BenchmarkShouldRateLimit is calls over loopback, 32 in flight, the client's part
// included: ours beside a handler that does nothing.
func BenchmarkShouldRateLimit(b *testing.B) {
	node, err := edge.Local(minutely("user", 1<<40, "user"))
	if err != nil {
		b.Fatal(err)
	}
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name        string
		service     rlsv3.RateLimitServiceServer
		descriptors int
	}{{"empty", empty{}, 1}, {"rls", rls.New(api), 1}, {"empty", empty{}, 10}, {"rls", rls.New(api), 10}} {
		b.Run(fmt.Sprintf("handler=%s/descriptors=%d", bb.name, bb.descriptors), func(b *testing.B) {
			server := grpc.NewServer()
			rlsv3.RegisterRateLimitServiceServer(server, bb.service)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); _ = server.Serve(listener) }() // stopped and waited for below
			defer func() { server.Stop(); <-done }()
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			client := rlsv3.NewRateLimitServiceClient(conn)
			var serial atomic.Int64
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				in := &rlsv3.RateLimitRequest{Domain: domain}
				n := int(serial.Add(1))
				for i := range bb.descriptors {
					in.Descriptors = append(in.Descriptors, of("user=u"+strconv.Itoa(100*n+i)))
				}
				for pb.Next() {
					if _, err := client.ShouldRateLimit(context.Background(), in); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkHandler is the handler alone.
func BenchmarkHandler(b *testing.B) {
	node, err := edge.Local(minutely("user", 1<<40, "user"))
	if err != nil {
		b.Fatal(err)
	}
	api, err := httpapi.New(node, httpapi.Config{Now: func() time.Time { return at }})
	if err != nil {
		b.Fatal(err)
	}
	set, _ := limit.Compile(limit.Document{Namespace: domain, Descriptors: &limit.DescriptorSpec{Below: []limit.DescriptorSpec{{Key: "user", Limit: most(1<<32 - 1)}}}})
	trees, err := edge.New(edge.Config{Region: "r", Pop: "p", Name: "n", Secret: make([]byte, 32)})
	if err != nil {
		b.Fatal(err)
	}
	trees.SetRules(set)
	treeAPI, err := httpapi.New(trees, httpapi.Config{Now: func() time.Time { return at }})
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		rules       string
		service     *rls.Service
		descriptors int
	}{{"own", rls.New(api), 1}, {"tree", rls.New(treeAPI), 1}, {"own", rls.New(api), 10}, {"tree", rls.New(treeAPI), 10}} {
		n, service := bb.descriptors, bb.service
		b.Run(fmt.Sprintf("rules=%s/descriptors=%d", bb.rules, n), func(b *testing.B) {
			in := &rlsv3.RateLimitRequest{Domain: domain, Descriptors: make([]*rlv3.RateLimitDescriptor, n)}
			for i := range in.Descriptors {
				in.Descriptors[i] = of("user=u" + strconv.Itoa(i))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := service.ShouldRateLimit(b.Context(), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
