package limiterapi_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterapi"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// at is the clock of all tests: 15 s into a minute.
var at = time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)

// shop has a bit of all that replies tell.
var shop = limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{
	{Name: "api", Group: "api", Key: []string{"user"}, Match: limit.MatchSpec{Has: []string{"user"}}, NearLimitPercent: 50,
		Margin:  limit.MarginSpec{SoftPercent: 20},
		Rates:   []limit.RateSpec{{Name: "minute", Limit: 20, Per: time.Minute, Algorithm: "fixed_window"}},
		OnLimit: limit.OnLimitSpec{Headers: []string{"draft-11", "x-ratelimit"}}},
	{Name: "path", Group: "path", Key: []string{"client_ip", "path"}, Match: limit.MatchSpec{Path: []string{"/api/**"}},
		Rates: []limit.RateSpec{{Name: "hour", Limit: 9, Per: time.Hour, Algorithm: "fixed_window"}}},
	{Name: "trial", Group: "trial", Mode: "shadow", Key: []string{"header.X-Id"}, Match: limit.MatchSpec{Has: []string{"header.X-Id"}},
		Rates: []limit.RateSpec{{Name: "minute", Limit: 3, Per: time.Minute, Algorithm: "fixed_window"}}},
	{Name: "closed", Group: "closed", Deny: true, Match: limit.MatchSpec{Path: []string{"/closed"}}},
	{Name: "queue", Group: "queue", Key: []string{"job"}, Match: limit.MatchSpec{Has: []string{"job"}},
		Rates: []limit.RateSpec{{Name: "out", Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}}},
	{Name: "logins", Group: "logins", Key: []string{"login"}, Match: limit.MatchSpec{Has: []string{"login"}}, CountWhen: `attr("response.status") == "401"`,
		Rates: []limit.RateSpec{{Name: "hour", Limit: 2, Per: time.Hour, Algorithm: "fixed_window"}}},
}}

// newAPI is an API whose clock stands still.
func newAPI(tb testing.TB, limiter httpapi.Limiter) (*httpapi.API, *prometheus.Registry) {
	tb.Helper()
	registry := prometheus.NewRegistry()
	api, err := httpapi.New(limiter, httpapi.Config{RetryJitter: -1, Metrics: httpapi.NewMetrics(registry), Now: func() time.Time { return at }})
	if err != nil {
		tb.Fatal(err)
	}
	return api, registry
}

// serve serves an API's limiter over gRPC, for a real client.
func serve(tb testing.TB, api *httpapi.API) limiterpb.LimiterClient {
	tb.Helper()
	server := grpc.NewServer()
	limiterapi.New(api).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // the cleanup stops it and waits
	tb.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return limiterpb.NewLimiterClient(conn)
}

// panics is a limiter with a bug.
type panics struct{ *limitertest.Limiter }

func (panics) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

func (panics) Report(time.Time, *limit.Request) limit.Decision { panic("a bug") }

// awaits has some users wait for what they are decided.
type awaits struct {
	*limitertest.Limiter
	waited *[]string
}

func (a awaits) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	user := req.Get("user")
	if user == "" || user[0] != 'w' {
		*a.waited = append(*a.waited, user)
		return a.Check(now, req), nil
	}
	return limit.Decision{}, func(context.Context) limit.Decision {
		*a.waited = append(*a.waited, user)
		return a.Check(now, req)
	}
}
