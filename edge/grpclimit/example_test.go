package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// Two calls a minute for each client, counted in this process.
func ExampleLocal() {
	limited, err := grpclimit.Local(2, time.Minute)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
	defer server.Stop()

	client := serveHealth(server)
	for range 3 {
		_, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// An edge elsewhere, asked over gRPC, limits each user; an edge that is away denies nobody.
func ExampleRemote() {
	conn, err := grpc.NewClient("127.0.0.1:8081", append(grpcclient.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	limited, err := grpclimit.Remote(grpcclient.New(conn, client.Config{}), grpclimit.RemoteConfig{
		RemoteConfig: httpapi.RemoteConfig{Namespace: "shop", Headers: []string{"x-user-id"}}, Exempt: []string{grpclimit.Health},
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
	defer server.Stop()

	_, err = serveHealth(server).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(status.Code(err))
	// Output:
	// OK
}

// Rules by method and by metadata, behind a proxy of this machine, with health
// checks left alone.
func ExampleNew() {
	node, err := edge.Local(limit.RuleSpec{
		Name: "orders", Match: limit.MatchSpec{Path: []string{"/shop.Orders/**"}},
		Key: []string{"header.X-User-Id"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}},
	})
	if err != nil {
		panic(err)
	}
	limited, err := grpclimit.New(node, edge.LocalNamespace, grpclimit.Config{
		Config: httpapi.Config{TrustedProxies: httpapi.Loopback},
		Exempt: []string{grpclimit.Health},
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limited.Unary), grpc.ChainStreamInterceptor(limited.Stream))
	defer server.Stop()

	_, err = serveHealth(server).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(status.Code(err))
	// Output: OK
}

// serveHealth serves the health service on loopback and connects to it.
func serveHealth(server *grpc.Server) grpc_health_v1.HealthClient {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener) // ends with the server's Stop
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return grpc_health_v1.NewHealthClient(conn)
}
