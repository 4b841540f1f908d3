package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// startEdge stands for an edge somewhere near: here two requests a minute for each user.
func startEdge() *httptest.Server {
	node, err := edge.Local(limit.RuleSpec{Name: "per-user", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "minute", Limit: 2, Per: time.Minute}}})
	if err != nil {
		panic(err)
	}
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		panic(err)
	}
	return httptest.NewServer(api)
}

func ExampleHTTP() {
	server := startEdge()
	defer server.Close()

	limiter, err := client.NewHTTP(server.URL, client.Config{Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	for range 3 {
		reply, err := limiter.Check(context.Background(), client.Check{Attributes: map[string]string{"user": "u1"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(reply.Allowed, reply.Rule, reply.Remaining, reply.Headers["RateLimit-Policy"])
	}
	// Output:
	// true per-user 1 "per-user.minute";q=2;w=60
	// true per-user 0 "per-user.minute";q=2;w=60
	// false per-user 0 "per-user.minute";q=2;w=60
}

// What a request turns out to cost is known when it is done.
func ExampleHTTP_Report() {
	server := startEdge()
	defer server.Close()

	limiter, err := client.NewHTTP(server.URL, client.Config{Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	user := map[string]string{"user": "u1"}
	recorded, err := limiter.Report(context.Background(), client.Report{Attributes: user, Cost: 2})
	fmt.Println(recorded.Remaining, err)
	recorded, err = limiter.Report(context.Background(), client.Report{Attributes: user, Cost: -1})
	fmt.Println(recorded.Remaining, err)
	// Output:
	// 0 <nil>
	// 1 <nil>
}

// An edge that is away denies nobody, unless the caller wants it to.
func ExampleConfig_failClosed() {
	server := startEdge()
	server.Close()

	for _, closed := range []bool{false, true} {
		limiter, err := client.NewHTTP(server.URL, client.Config{FailClosed: closed})
		if err != nil {
			panic(err)
		}
		reply, err := limiter.Check(context.Background(), client.Check{Attributes: map[string]string{"user": "u1"}})
		var mistake *client.Mistake
		fmt.Println("passes:", reply.Allowed, "fault:", client.IsFault(err), "mistake:", errors.As(err, &mistake))
	}
	// Output:
	// passes: true fault: true mistake: false
	// passes: false fault: true mistake: false
}

// The same over gRPC.
func Example_grpc() {
	conn, err := grpc.NewClient("127.0.0.1:8081", append(grpcclient.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	var limiter client.Limiter = grpcclient.New(conn, client.Config{})
	if reply, err := limiter.Check(context.Background(), client.Check{Attributes: map[string]string{"user": "u1"}}); err == nil && !reply.Allowed {
		fmt.Println("come again in", reply.RetryAfter)
	}
}
