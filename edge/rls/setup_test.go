package rls_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// at is the clock of all tests: 15 s into a minute.
var at = time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)

// bench is the service over a limiter, asked by a real client over loopback.
type bench struct {
	testing.TB
	rlsv3.RateLimitServiceClient
	conn     *grpc.ClientConn
	registry *prometheus.Registry
	now      time.Time
}

// domain is the namespace of an embedded node.
const domain = edge.LocalNamespace

func newBench(tb testing.TB, rules ...limit.RuleSpec) *bench {
	tb.Helper()
	node, err := edge.Local(rules...)
	if err != nil {
		tb.Fatal(err)
	}
	return benchOver(tb, node)
}

func benchOver(tb testing.TB, limiter httpapi.Limiter) *bench {
	tb.Helper()
	b := &bench{TB: tb, registry: prometheus.NewRegistry(), now: at}
	api, err := httpapi.New(limiter, httpapi.Config{
		RetryJitter: -1, Metrics: httpapi.NewMetrics(b.registry), Now: func() time.Time { return b.now },
	})
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer(envoytext.ServerOption())
	rls.New(api).Register(server)
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
	b.conn = conn
	b.RateLimitServiceClient = rlsv3.NewRateLimitServiceClient(conn)
	return b
}

// compiled is a node with rules of documents.
func compiled(tb testing.TB, by limit.Options, documents ...limit.Document) *edge.Node {
	tb.Helper()
	set, problems := by.Compile(documents...)
	if set == nil {
		tb.Fatal(problems)
	}
	node, err := edge.New(edge.Config{Region: "r", Pop: "p", Name: "n", Secret: make([]byte, 32)})
	if err != nil {
		tb.Fatal(err)
	}
	node.SetRules(set)
	return node
}

// of is a descriptor of "key=value" entries.
func of(entries ...string) *rlv3.RateLimitDescriptor {
	d := &rlv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &rlv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// costing is a descriptor with a hits_addend of its own.
func costing(hits uint64, entries ...string) *rlv3.RateLimitDescriptor {
	d := of(entries...)
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// refunding is one that gives hits back.
func refunding(hits uint64, entries ...string) *rlv3.RateLimitDescriptor {
	d := costing(hits, entries...)
	d.IsNegativeHits = true
	return d
}

// ask asks about descriptors, of the node's namespace.
func (b *bench) ask(descriptors ...*rlv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	b.Helper()
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	out, err := b.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: descriptors})
	if err != nil {
		b.Fatal(err)
	}
	if len(out.Statuses) != len(descriptors) {
		b.Fatalf("%d statuses for %d descriptors", len(out.Statuses), len(descriptors))
	}
	return out
}

// code says which of the descriptors are over their limit, after the whole: "1 01".
func code(out *rlsv3.RateLimitResponse) string {
	digit := map[rlsv3.RateLimitResponse_Code]string{rlsv3.RateLimitResponse_OK: "0", rlsv3.RateLimitResponse_OVER_LIMIT: "1"}
	text := digit[out.OverallCode] + " "
	for _, s := range out.Statuses {
		text += digit[s.Code]
	}
	return text
}

// minutely is a rule of so many a minute, in fixed windows.
func minutely(name string, most uint64, key ...string) limit.RuleSpec {
	return limit.RuleSpec{
		Name: name, Match: limit.MatchSpec{Has: key}, Key: key, Group: name,
		Rates: []limit.RateSpec{{Name: "minute", Limit: most, Per: time.Minute, Algorithm: "fixed_window"}},
	}
}
