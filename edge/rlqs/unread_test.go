package rlqs_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/rlqs"
)

// unread is a stream, over a connection in memory, to a service that nobody runs.
type unread struct {
	*testing.T
	quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient
	service *rlqs.Service
	reg     *prometheus.Registry
}

// overUnread runs a test, in virtual time, of a stream that is not read before the test does.
func overUnread(t *testing.T, cfg rlqs.Config, test func(u *unread)) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		cfg.Registerer = reg
		node, err := edge.Local(hourly(1000))
		if err != nil {
			t.Fatal(err)
		}
		service, err := rlqs.New(node, cfg)
		if err != nil {
			t.Fatal(err)
		}
		inMemory := bufconn.Listen(1 << 16)
		server := grpc.NewServer(envoytext.ServerOption())
		service.Register(server)
		go func() { _ = server.Serve(inMemory) }() // Stop ends it
		defer server.Stop()
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(1<<16),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inMemory.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		call := opened(t, conn)
		synctest.Wait() // it is open
		test(&unread{t, call, service, reg})
	})
}

// reports reports so many requests of each of a crowd's buckets.
func (u *unread) reports(crowd int, requests uint64) {
	u.Helper()
	in := &quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace}
	for i := range 500 {
		in.BucketQuotaUsages = append(in.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": fmt.Sprint(crowd, "-", i, strings.Repeat("x", 90))}}, NumRequestsAllowed: requests,
		})
	}
	if err := u.Send(in); err != nil {
		u.Fatal(err)
	}
	synctest.Wait()
}

// refused is how many streams were, as they are not read.
func (u *unread) refused() float64 {
	return counted(u.T, u.reg, "spillgate_rlqs_refused_total", "buckets")
}

// hasEnded reads what the stream said, to its end; which is to be there by now.
func (u *unread) hasEnded(want codes.Code) {
	u.Helper()
	if counted(u.T, u.reg, "spillgate_rlqs_streams", "") != 0 {
		u.Fatal("the stream goes on")
	}
	for {
		if _, err := u.Recv(); err != nil {
			if status.Code(err) != want {
				u.Errorf("who reads at last hears %v, want %v", err, want)
			}
			return
		}
	}
}

// A stream that is not read ends, though what is sent stands.
func TestUnreadStreamsEnd(t *testing.T) {
	overUnread(t, rlqs.Config{MaxStreamBuckets: 1000}, func(u *unread) {
		for crowd := 0; u.refused() == 0; crowd++ {
			if u.reports(crowd, 1); crowd == 20 {
				u.Fatal("no stream is refused")
			}
			for range 2 { // which has the crowd make way for others
				time.Sleep(3 * time.Second) // virtual
				if u.refused() == 0 {
					u.reports(crowd, 0)
				}
			}
		}
		u.hasEnded(codes.ResourceExhausted)
	})
}

// An edge that drains ends a stream that is not read as any other.
func TestDrainEndsUnreadStreams(t *testing.T) {
	overUnread(t, rlqs.Config{}, func(u *unread) {
		for crowd := range 10 { // half a megabyte
			u.reports(crowd, 1)
		}
		u.service.Drain()
		synctest.Wait()
		u.hasEnded(codes.Unavailable)
	})
}
