package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/proc"
)

// TestDataPlanesSpendAnEdgesQuota: what data planes are assigned over RLQS is of the limit
// that an edge decides by over HTTP, and an edge that is told to stop does not wait for
// their streams.
func TestDataPlanesSpendAnEdgesQuota(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	startAggregator(t, "eu", "", nats.URL, startRedis(t).Addr)
	e := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml")
	proc.Until(t, settles, func() error { // as long as it has not heard who shares the limit it has a part of it
		if r, err := e.check(call{Attributes: map[string]string{"user": "warm"}, Cost: 60}); err != nil || !r.Allowed {
			return fmt.Errorf("60 of 100: %+v, %v", r, err)
		}
		return nil
	})

	var planes []*dataplane.Plane
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	for range 2 {
		conn, err := grpc.NewClient(e.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		out, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: quotav3.RateLimitQuotaService_ServiceDesc.ServiceName})
		if err != nil || out.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of the quota service: %v, %v", out, err)
		}
		plane := dataplane.New(dataplane.Settings{
			Domain: "test", Interval: 100 * time.Millisecond,
			NoAssignment: &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}},
		})
		planes = append(planes, plane)
		client := quotav3.NewRateLimitQuotaServiceClient(conn)
		running.Go(func() { plane.Run(ctx, client, nil) }) // stop ends it; it is waited for above
	}
	admitted := 0
	proc.Until(t, settles, func() error {
		for _, plane := range planes {
			if plane.Allow(time.Now(), map[string]string{"user": "envoy"}) {
				admitted++
			}
		}
		if admitted < 50 {
			return fmt.Errorf("%d are admitted", admitted)
		}
		return nil
	})
	if r, err := e.check(call{Attributes: map[string]string{"user": "envoy"}, Cost: 51}); err != nil || r.Allowed {
		t.Errorf("51 more than %d of 100 over HTTP: %+v, %v, want it denied", admitted, r, err)
	}
	if text, err := get(e.Admin + "/metrics"); err != nil || !strings.Contains(text, "spillgate_rlqs_streams 2") || !strings.Contains(text, "spillgate_rlqs_buckets 1") {
		t.Errorf("the metrics do not tell of 2 streams with 1 bucket: %v", err)
	}
	began := time.Now()
	e.Signal(syscall.SIGTERM)
	if code := e.ExitCode(); code != 0 || time.Since(began) > 6*time.Second {
		t.Errorf("exit code %d after %v with streams open, want 0, and not the 7 s that calls may take", code, time.Since(began))
	}
}
