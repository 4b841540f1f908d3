package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/limiterpb"
	"github.com/spillgate/spillgate/test/proc"
)

// TestEnvoyAsksAnEdge: over gRPC an edge decides by the same counters as over HTTP, says
// that it serves and what, and that it stops when it does.
func TestEnvoyAsksAnEdge(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	startAggregator(t, "eu", "", nats.URL, startRedis(t).Addr)
	e := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml")
	conn, err := grpc.NewClient(e.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	asked := rlsv3.NewRateLimitServiceClient(conn)
	ask := func(hits uint64) *rlsv3.RateLimitResponse {
		t.Helper()
		out, err := asked.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "test", Descriptors: []*rlv3.RateLimitDescriptor{{
			Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: "envoy"}}, HitsAddend: wrapperspb.UInt64(hits),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	proc.Until(t, settles, func() error { // as long as it has not heard who shares the limit it has a part of it
		if out := ask(60); out.OverallCode != rlsv3.RateLimitResponse_OK || out.Statuses[0].CurrentLimit.GetRequestsPerUnit() != 100 {
			return fmt.Errorf("60 of 100: %v", out)
		}
		return nil
	})
	if r, err := e.check(call{Attributes: map[string]string{"user": "envoy"}, Cost: 30}); err != nil || !r.Allowed || r.Remaining != 10 {
		t.Fatalf("30 more over HTTP: %+v, %v, want 10 left", r, err)
	}
	own := limiterpb.NewLimiterClient(conn) // and ours counts by them, too
	if r, err := own.Check(ctx, &limiterpb.CheckRequest{Namespace: "test", Attributes: map[string]string{"user": "envoy"}, Cost: proto.Uint64(11)}); err != nil || r.Allowed || r.Remaining != 10 {
		t.Fatalf("11 more of spillgate.v1.Limiter: %v, %v, want it denied with 10 left", r, err)
	}
	out := ask(11)
	var problem struct{ Instance string }
	if err := json.Unmarshal(out.RawBody, &problem); err != nil || out.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("11 more: %v, %v, want over limit", out, err)
	}
	if why, err := get(e.Admin + problem.Instance); err != nil || !strings.Contains(why, `"rule": "minute"`) {
		t.Errorf("%s: %s, %v, want what denied", problem.Instance, why, err)
	}

	health := healthpb.NewHealthClient(conn)
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService", "spillgate.v1.Limiter"} {
		state, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil || state.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v, want serving", service, state, err)
		}
	}
	watch, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := watch.Recv(); err != nil || state.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health: %v, %v, want serving", state, err)
	}
	if services, err := reflected(ctx, conn); err != nil || !slices.Contains(services, "envoy.service.ratelimit.v3.RateLimitService") || !slices.Contains(services, "spillgate.v1.Limiter") {
		t.Errorf("reflection: %v, %v, want the rate limit service and the limiter too", services, err)
	}

	e.Signal(syscall.SIGTERM)
	if state, err := watch.Recv(); err != nil || state.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health when it was told to stop: %v, %v, want not serving", state, err)
	}
	cancel() // the watch is a call under way
	if code := e.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// reflected are the services that a server says it has.
func reflected(ctx context.Context, conn *grpc.ClientConn) (names []string, err error) {
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{ListServices: "*"}}
	if err := errors.Join(stream.Send(ask), stream.CloseSend()); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return names, fmt.Errorf("after the answer: %v, want the end", err)
	}
	return names, nil
}
