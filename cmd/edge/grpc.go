package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"

	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limiterapi"
	"github.com/spillgate/spillgate/edge/limiterpb"
	"github.com/spillgate/spillgate/edge/rlqs"
	"github.com/spillgate/spillgate/edge/rls"
)

const (
	// grpcMaxBytes is the largest call: a descriptor is some hundred bytes. Reports of quotas are
	// larger, rlqs.MaxMessage, as Envoy has all its buckets in one.
	grpcMaxBytes = 1 << 20
	// grpcConnectionAge is how long a connection lasts, more or less (gRPC spreads it by a
	// tenth): proxies find edges that were added since.
	grpcConnectionAge = 30 * time.Minute
	// grpcDrain is how long calls under way may take when the edge stops.
	grpcDrain = 7 * time.Second
	// grpcWorkers is how many calls may be under way before one needs a goroutine of its own,
	// whose stack grows anew with each: workers keep theirs. An eighth to a sixth of a call's
	// processor time (test/bench/wire); of more there is less use, and streams hold one each.
	grpcWorkers = 64
	// grpcPing and grpcPingWait are how soon a connection that is silent is asked whether it
	// lives, and how long it may take to say so: a data plane that cannot be heard of holds
	// what it was assigned.
	grpcPing     = 10 * time.Second
	grpcPingWait = 5 * time.Second
)

// referenceHealth is what envoyproxy/ratelimit calls itself to whom asks for its health: the
// probes of who comes from there ask for it.
const referenceHealth = "ratelimit"

// sized refuses messages that are larger than those of their kind may be, unread, as gRPC has
// one bound for all; and counts what is refused before any service sees it.
type sized struct {
	encoding.CodecV2
	refusals *httpapi.Refusals
}

// Unmarshal implements encoding.CodecV2.
func (s sized) Unmarshal(data mem.BufferSlice, v any) (err error) {
	if _, quotas := v.(*envoytext.Unread); !quotas && data.Len() > grpcMaxBytes {
		err = fmt.Errorf("%d bytes are too many (%d at the most)", data.Len(), grpcMaxBytes)
	} else {
		err = s.CodecV2.Unmarshal(data, v)
	}
	if err != nil {
		s.refusals.Tell(listenerGRPC, httpapi.RefusedMessage)
	}
	return err
}

// serveGRPC serves Envoy's rate limit services, that of calls and that of quotas, our own
// limiter, health and reflection on a listener until ctx ends: then streams of quotas end, calls
// under way finish, and what takes longer is cut off. Without private it speaks in clear. Health says that it will from when draining ends.
func serveGRPC(ctx, draining context.Context, listener net.Listener, service *rls.Service, quotas *rlqs.Service, limiter *limiterapi.Service, calls *calls, private *tls.Config) error {
	options := calls.options()
	if private != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(private)))
	}
	server := grpc.NewServer(append(options,
		grpc.ForceServerCodecV2(sized{envoytext.Codec(), calls.refusals}), // what Envoy's clients write is limited, UTF-8 or not
		grpc.MaxRecvMsgSize(rlqs.MaxMessage),
		grpc.NumStreamWorkers(grpcWorkers),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: grpcConnectionAge, MaxConnectionAgeGrace: grpcDrain, Time: grpcPing, Timeout: grpcPingWait,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)...)
	service.Register(server)
	quotas.Register(server)
	limiter.Register(server)
	states := health.NewServer()
	for _, service := range []grpc.ServiceDesc{rlsv3.RateLimitService_ServiceDesc, quotav3.RateLimitQuotaService_ServiceDesc, limiterpb.Limiter_ServiceDesc} {
		states.SetServingStatus(service.ServiceName, healthpb.HealthCheckResponse_SERVING)
	}
	states.SetServingStatus(referenceHealth, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, states)
	defer context.AfterFunc(draining, states.Shutdown)()
	reflection.Register(server)

	watching, unwatch := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); calls.run(watching) }() // it is stopped and waited for as this returns
	defer func() { unwatch(); <-watched }()
	served := make(chan error, 1)
	go func() { served <- server.Serve(calls.bound(listener)) }() // Stop or a broken listener ends it; it is waited for below
	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC at %v: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	states.Shutdown()
	quotas.Drain()
	// Who watches health is told so, and may watch on: it is no call to finish.
	late := time.AfterFunc(grpcDrain, server.Stop)
	defer late.Stop()
	server.GracefulStop()
	if err := <-served; err != nil {
		return fmt.Errorf("serve gRPC at %v: %w", listener.Addr(), err)
	}
	return nil
}
