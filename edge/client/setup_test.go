package client_test

import (
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterapi"
)

// at is the clock of all edges: 15 s into a minute.
var at = time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)

// shop has a bit of all that replies tell.
var shop = limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{
	{Name: "api", Group: "api", Key: []string{"user"}, Match: limit.MatchSpec{Has: []string{"user"}}, NearLimitPercent: 50,
		Margin: limit.MarginSpec{SoftPercent: 20},
		Rates:  []limit.RateSpec{{Name: "minute", Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}}},
	{Name: "trial", Group: "trial", Mode: "shadow", Key: []string{"trial"}, Match: limit.MatchSpec{Has: []string{"trial"}},
		Rates: []limit.RateSpec{{Name: "minute", Limit: 1, Per: time.Minute, Algorithm: "fixed_window"}}},
	{Name: "closed", Group: "closed", Deny: true, Match: limit.MatchSpec{Path: []string{"/closed"}}},
	{Name: "queue", Group: "queue", Key: []string{"job"}, Match: limit.MatchSpec{Has: []string{"job"}},
		Rates: []limit.RateSpec{{Name: "out", Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}}},
	{Name: "logins", Group: "logins", Key: []string{"login"}, Match: limit.MatchSpec{Has: []string{"login"}}, CountWhen: `attr("response.status") == "401"`,
		Rates: []limit.RateSpec{{Name: "hour", Limit: 2, Per: time.Hour, Algorithm: "fixed_window"}}},
}}

// transports are the ways to ask a limiter: each starts an edge over it.
var transports = map[string]func(testing.TB, httpapi.Limiter, client.Config) client.Limiter{
	"http": func(tb testing.TB, limiter httpapi.Limiter, cfg client.Config) client.Limiter {
		server := httptest.NewServer(apiOver(tb, limiter))
		tb.Cleanup(server.Close)
		return overHTTP(tb, server.URL, cfg)
	},
	"grpc": func(tb testing.TB, limiter httpapi.Limiter, cfg client.Config) client.Limiter {
		server := grpc.NewServer()
		limiterapi.New(apiOver(tb, limiter)).Register(server)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(listener) }() // the cleanup stops it and waits
		tb.Cleanup(func() { server.Stop(); <-done })
		return overGRPC(tb, listener.Addr().String(), cfg)
	},
}

// dialled are the ways to ask whoever is at an address.
var dialled = map[string]func(testing.TB, string, client.Config) client.Limiter{
	"http": func(tb testing.TB, addr string, cfg client.Config) client.Limiter {
		return overHTTP(tb, "http://"+addr, cfg)
	},
	"grpc": overGRPC,
}

func overHTTP(tb testing.TB, url string, cfg client.Config) client.Limiter {
	tb.Helper()
	c, err := client.NewHTTP(url, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

func overGRPC(tb testing.TB, addr string, cfg client.Config) client.Limiter {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return grpcclient.New(conn, cfg)
}

func apiOver(tb testing.TB, limiter httpapi.Limiter) *httpapi.API {
	tb.Helper()
	api, err := httpapi.New(limiter, httpapi.Config{RetryJitter: -1, Now: func() time.Time { return at }})
	if err != nil {
		tb.Fatal(err)
	}
	return api
}
