package rlqs_test

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// patience is how long anything real may take on a busy machine.
const patience = 30 * time.Second

var user = map[string]string{"user": "u1"}

// place is an address at which a service is served, and may be cut off and come back.
type place struct {
	testing.TB
	service *rlqs.Service
	client  quotav3.RateLimitQuotaServiceClient
	conn    *grpc.ClientConn
	address string
	server  *grpc.Server
}

func newPlace(t *testing.T, cfg rlqs.Config, rules ...limit.RuleSpec) *place {
	t.Helper()
	node, err := edge.Local(rules...)
	if err != nil {
		t.Fatal(err)
	}
	service, err := rlqs.New(node, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{TB: t, service: service, address: "127.0.0.1:0"}
	p.serve()
	t.Cleanup(func() { p.server.Stop() })
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { service.Run(ctx) }) // stop ends it; it is waited for below
	t.Cleanup(func() { stop(); running.Wait() })
	conn, err := grpc.NewClient(p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.conn, p.client = conn, quotav3.NewRateLimitQuotaServiceClient(conn)
	return p
}

// serve serves at the place's address, from anew.
func (p *place) serve() {
	p.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.Fatal(err)
	}
	p.address, p.server = listener.Addr().String(), grpc.NewServer(envoytext.ServerOption())
	p.service.Register(p.server)
	server := p.server
	go func() { _ = server.Serve(listener) }() // Stop ends it
}

// run has a data plane keep a stream to the place until the test ends.
func (p *place) run(settings dataplane.Settings, broken func(error)) *dataplane.Plane {
	plane := dataplane.New(settings)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { plane.Run(ctx, p.client, broken) }) // stop ends it; it is waited for below
	p.Cleanup(func() { stop(); running.Wait() })
	return plane
}

// until waits until something holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v it is not so that %s", patience, what)
		}
	}
}

func hourly(most uint64) limit.RuleSpec {
	return limit.RuleSpec{Name: "per-user", Match: limit.MatchSpec{Has: []string{"user"}}, Key: []string{"user"},
		Rates: []limit.RateSpec{{Limit: most, Per: time.Hour}}}
}

func settings() dataplane.Settings {
	return dataplane.Settings{
		Domain: edge.LocalNamespace, Interval: 100 * time.Millisecond,
		NoAssignment: &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}},
	}
}

// TestOneLimitOverRealStreams: three data planes over gRPC, whose server dies and comes
// back midway, use up one limit, and no more.
func TestOneLimitOverRealStreams(t *testing.T) {
	const most = 400
	p := newPlace(t, rlqs.Config{}, hourly(most))
	var planes []*dataplane.Plane
	for range 3 {
		planes = append(planes, p.run(settings(), nil))
	}
	admitted := 0
	ask := func() {
		for _, plane := range planes {
			if plane.Allow(time.Now(), user) {
				admitted++
			}
		}
	}
	until(t, "some of the limit is used", func() bool { ask(); return admitted >= 50 })
	p.server.Stop()
	p.serve()
	// What was granted over the streams that broke, and expired unused, stays charged.
	until(t, "the limit is used up", func() bool { ask(); return admitted >= most/2 && exhausted(planes) })
	if admitted > most {
		t.Errorf("%d admitted of %d", admitted, most)
	}
}

// exhausted says that all are told to deny.
func exhausted(planes []*dataplane.Plane) bool {
	for _, plane := range planes {
		s := plane.Strategy(time.Now(), user)
		if _, blanket := s.GetStrategy().(*typev3.RateLimitStrategy_BlanketRule_); !blanket {
			return false
		}
	}
	return true
}

// TestStreamsThatAreRefused: a data plane is told why.
func TestStreamsThatAreRefused(t *testing.T) {
	p := newPlace(t, rlqs.Config{MaxStreamBuckets: 1}, hourly(10))
	other, wrong := settings(), settings()
	other.Domain, wrong.Domain = "elsewhere", ""
	for _, c := range []struct {
		name     string
		settings dataplane.Settings
		code     codes.Code
		says     string
	}{
		{"another domain", other, codes.NotFound, `no rules for "elsewhere"`},
		{"no domain", wrong, codes.InvalidArgument, "domain: is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := make(chan error, 100)
			plane := p.run(c.settings, func(err error) {
				select {
				case told <- err:
				default:
				}
			})
			plane.Allow(time.Now(), user)
			plane.Allow(time.Now(), map[string]string{"user": "u2"})
			select {
			case err := <-told:
				if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the stream ends with %v, want %v: %s", err, c.code, c.says)
				}
			case <-time.After(patience):
				t.Error("the stream goes on")
			}
		})
	}
}

// TestClientsEndNoStream: whatever a client has a data plane report, the buckets of others
// are assigned theirs, and his is charged and denied as far as it can be named.
func TestClientsEndNoStream(t *testing.T) {
	p := newPlace(t, rlqs.Config{MaxStreamBuckets: 1}, hourly(10))
	lets := settings()
	lets.NoAssignment = nil
	ended := make(chan error, 100)
	plane := p.run(lets, func(err error) { ended <- err })
	plane.Allow(time.Now(), user)
	until(t, "the first is assigned", func() bool { return plane.Strategy(time.Now(), user).GetTokenBucket() != nil })
	for _, other := range []string{"u2", strings.Repeat("x", 3000)} {
		until(t, "what is too much is denied", func() bool {
			id := map[string]string{"user": other}
			plane.Allow(time.Now(), id)
			plane.Allow(time.Now(), user)
			return plane.Strategy(time.Now(), id).GetBlanketRule() == typev3.RateLimitStrategy_DENY_ALL && plane.Strategy(time.Now(), id) != nil
		})
	}
	call, err := p.conn.NewStream(t.Context(), &quotav3.RateLimitQuotaService_ServiceDesc.Streams[0], quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(wire{}))
	if err != nil {
		t.Fatal(err)
	}
	// Two buckets, of which one is user=\xff, as Envoy writes it.
	if err := call.SendMsg("\x0a\x05local\x12\x0f\x0a\x0b\x0a\x09\x0a\x04user\x12\x01\xff\x18\x05\x12\x0f\x0a\x0b\x0a\x09\x0a\x04user\x12\x01v\x18\x05"); err != nil {
		t.Fatal(err)
	}
	var told string
	if err := call.RecvMsg(&told); err != nil || !strings.Contains(told, "\x12\x01v") || strings.Contains(told, "\x12\x01\xff") { // a time may have \xff in it
		t.Errorf("beside a bucket that cannot be named the other is told %q, %v", told, err)
	}
	select {
	case err := <-ended:
		t.Errorf("the stream ends with %v", err)
	default:
	}
}

// wire is a codec of messages as they are on the wire.
type wire struct{}

func (wire) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }
func (wire) Unmarshal(text []byte, v any) error {
	*(v.(*string)) = string(text)
	return nil
}
func (wire) Name() string { return "proto" }

var _ encoding.Codec = wire{}

// TestDrain: streams end, assignments hold on, and the server can stop.
func TestDrain(t *testing.T) {
	p := newPlace(t, rlqs.Config{TTL: time.Minute}, hourly(1000))
	told := make(chan error, 100)
	plane := p.run(settings(), func(err error) {
		select {
		case told <- err:
		default:
		}
	})
	until(t, "a request is admitted", func() bool { return plane.Allow(time.Now(), user) })
	p.service.Drain()
	p.service.Drain()
	select {
	case err := <-told:
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "drains") {
			t.Errorf("the stream ends with %v", err)
		}
	case <-time.After(patience):
		t.Error("the stream goes on")
	}
	p.server.GracefulStop()
	if !plane.Allow(time.Now(), user) {
		t.Error("the assignment ended with the stream")
	}
}

// Streams that gRPC ends, as it does not take in a message, are counted, and told in the log.
func TestMessagesThatAreNotTakenIn(t *testing.T) {
	for _, c := range []struct {
		name, message, reason string
		code                  codes.Code
	}{
		{"too large", strings.Repeat("x", 5<<20), "too_large", codes.ResourceExhausted}, // gRPC's own bound is 4 MiB, too
		{"no message", "\x0a\xff", "unreadable", codes.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log strings.Builder
			reg := prometheus.NewRegistry()
			p := newPlace(t, rlqs.Config{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, hourly(10))
			call, err := p.conn.NewStream(t.Context(), &quotav3.RateLimitQuotaService_ServiceDesc.Streams[0], quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(wire{}))
			if err != nil {
				t.Fatal(err)
			}
			_ = call.SendMsg(c.message) // what became of it, RecvMsg says
			if err := call.RecvMsg(new(string)); status.Code(err) != c.code {
				t.Errorf("the stream ends with %v, want %v", err, c.code)
			}
			p.server.GracefulStop()
			if want := "reason=" + c.reason; counted(t, reg, "spillgate_rlqs_refused_total", c.reason) != 1 || !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "host=127.0.0.1") {
				t.Errorf("%v are counted, and the log is %q; want 1 and %s", counted(t, reg, "spillgate_rlqs_refused_total", c.reason), log.String(), want)
			}
		})
	}
}

// A message of more buckets than one may report is refused before it is read, which would take
// sixty times its bytes.
func TestTooManyReportsAreNotRead(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := newPlace(t, rlqs.Config{Registerer: reg}, hourly(10))
	call, err := p.conn.NewStream(t.Context(), &quotav3.RateLimitQuotaService_ServiceDesc.Streams[0], quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(wire{}))
	if err != nil {
		t.Fatal(err)
	}
	message := "\x0a\x05local" + strings.Repeat("\x12\x07\x0a\x05\x0a\x03\x0a\x01a", (4<<20-64)/9)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = call.SendMsg(message) // what became of it, RecvMsg says
	if err := call.RecvMsg(new(string)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "are too many (65536") {
		t.Errorf("the stream ends with %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 60 { // both sides of the connection
		t.Errorf("%d MiB were allocated for a message of 4", took)
	}
	if got := counted(t, reg, "spillgate_rlqs_refused_total", "invalid"); got != 1 {
		t.Errorf("%v are counted", got)
	}
}

// panics is a limiter with a bug.
type panics struct{ *edge.Node }

func (panics) Check(time.Time, *limit.Request) limit.Decision { panic("a bug") }

// A panic ends its stream, and is counted.
func TestPanicsAreCounted(t *testing.T) {
	node, err := edge.Local(hourly(10))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	service, err := rlqs.New(panics{node}, rlqs.Config{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{TB: t, service: service, address: "127.0.0.1:0"}
	p.serve()
	defer p.server.Stop()
	conn, err := grpc.NewClient(p.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := opened(t, conn)
	if err := call.Send(&quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace, BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: &quotav3.BucketId{Bucket: user}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("the stream ends with %v", err)
	}
	if refused, all := counted(t, reg, "spillgate_rlqs_refused_total", "panic"), counted(t, reg, "spillgate_rlqs_panics_total", ""); refused != 1 || all != 1 {
		t.Errorf("%v streams that ended and %v panics are counted, want 1 and 1", refused, all)
	}
}

// counted is a metric's value; of those with a label, that of one.
func counted(t *testing.T, reg *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestConfigMistakes(t *testing.T) {
	_, err := rlqs.New(nil, rlqs.Config{TTL: time.Millisecond, MaxStreams: -1, MaxStreamBuckets: -1, MaxBuckets: -1})
	for _, field := range []string{"TTL: 1ms", "MaxStreams: -1", "MaxStreamBuckets: -1", "MaxBuckets: -1"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New: %v, want %s", err, field)
		}
	}
}

// opened is a stream of quotas over a connection.
func opened(t *testing.T, conn *grpc.ClientConn) quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient {
	t.Helper()
	call, err := quotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return call
}
