package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

func TestDeniedCallIsTold(t *testing.T) {
	conn := serve(t, node(t, rule("orders", "/shop.Orders/Get", 1)), "", grpclimit.Config{})
	header, err := get(t, conn, "a")
	if err != nil {
		t.Fatalf("first call: %v", err)
	}
	if got := header.Get("ratelimit"); len(got) != 1 || got[0] != `"orders.minute";r=0;t=45` {
		t.Errorf("ratelimit = %q", got)
	}
	if got := header.Get("retry-after"); len(got) != 0 {
		t.Errorf("retry-after of an admitted call = %q", got)
	}
	header, err = get(t, conn, "b")
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || st.Message() != "1 per 1m are used up" {
		t.Fatalf("second call: %v", err)
	}
	if got := header.Get("retry-after"); len(got) != 1 || got[0] != "45" {
		t.Errorf("retry-after = %q, want 45: header is %v", got, header)
	}
	if got := header.Get("ratelimit-policy"); len(got) != 1 || got[0] != `"orders.minute";q=1;w=60` {
		t.Errorf("ratelimit-policy = %q", got)
	}
	var retry *errdetails.RetryInfo
	var quota *errdetails.QuotaFailure
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		}
	}
	if retry == nil || retry.RetryDelay.AsDuration() != 45*time.Second {
		t.Errorf("RetryInfo = %v, want 45 s", retry)
	}
	if quota == nil || len(quota.Violations) != 1 || quota.Violations[0].Subject != "orders.minute" {
		t.Errorf("QuotaFailure = %v, want orders.minute", quota)
	}
}

func TestRuleThatHidesItselfIsNotTold(t *testing.T) {
	hidden := rule("orders", "/**", 1)
	hidden.OnLimit = limit.OnLimitSpec{ShowHeaders: "none"}
	conn := serve(t, node(t, hidden), "", grpclimit.Config{})
	if header, err := get(t, conn, "a"); err != nil || len(header.Get("ratelimit")) != 0 {
		t.Fatalf("first call: %v, %v", header, err)
	}
	header, err := get(t, conn, "b")
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || strings.Contains(st.Message(), "1 per") || len(st.Details()) != 1 {
		t.Errorf("second call: %v with %v, want no word of the rule", err, st.Details())
	}
	if header.Get("retry-after") == nil || header.Get("ratelimit") != nil {
		t.Errorf("header = %v, want retry-after alone", header)
	}
}

func TestCallsOfADenyRuleHaveNothingToWaitFor(t *testing.T) {
	conn := serve(t, node(t, limit.RuleSpec{Name: "closed", Deny: true, Match: limit.MatchSpec{Path: []string{"/shop.Orders/**"}}}), "", grpclimit.Config{})
	header, err := get(t, conn, "a")
	if st := status.Convert(err); st.Code() != codes.PermissionDenied || len(st.Details()) != 0 || header.Get("retry-after") != nil {
		t.Errorf("call: %v, %v", err, header)
	}
}

func TestMetadataAndPeerAreAttributes(t *testing.T) {
	byUser := limit.RuleSpec{Name: "user", Key: []string{"header.X-User-Id"}, Match: limit.MatchSpec{Methods: []string{"POST"}, Has: []string{"header.X-User-Id"}},
		Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}
	conn := serve(t, node(t, byUser), "", grpclimit.Config{})
	for i, c := range []struct {
		pairs []string
		code  codes.Code
	}{
		{[]string{"x-user-id", "u1"}, codes.OK},
		{[]string{"X-User-Id", "u1"}, codes.ResourceExhausted},
		{[]string{"x-user-id", "u2"}, codes.OK},
		{[]string{"x-user-id", "u1", "x-user-id", "u3"}, codes.ResourceExhausted}, // the first counts
		{nil, codes.OK},
		{nil, codes.OK},
	} {
		if _, err := get(t, conn, "a", c.pairs...); status.Code(err) != c.code {
			t.Errorf("call %d with %v: %v, want %v", i, c.pairs, err, c.code)
		}
	}
}

func TestAuthorityIsTheHost(t *testing.T) {
	byHost := limit.RuleSpec{Name: "host", Match: limit.MatchSpec{Host: []string{"api.example"}}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}
	limiter := node(t, byHost)
	for host, want := range map[string]codes.Code{"api.example:443": codes.ResourceExhausted, "other.example": codes.OK} {
		listener := onLoopback(t)
		conn := serveOn(t, listener, listener.Addr().String(), limiter, "", grpclimit.Config{}, grpc.WithAuthority(host))
		if _, err := get(t, conn, "a"); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if _, err := get(t, conn, "a"); status.Code(err) != want {
			t.Errorf("%s once more: %v, want %v", host, err, want)
		}
	}
}

func TestOnlyTrustedProxiesNameTheirClients(t *testing.T) {
	for name, c := range map[string]struct {
		trusted httpapi.Proxies
		second  codes.Code // of another client behind the same peer
	}{
		"trusted":     {httpapi.Loopback, codes.OK},
		"not trusted": {httpapi.Proxies{netip.MustParsePrefix("10.0.0.0/8")}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, node(t, rule("all", "/**", 1)), edge.LocalNamespace, grpclimit.Config{Config: httpapi.Config{TrustedProxies: c.trusted}})
			if _, err := get(t, conn, "a", "x-forwarded-for", "203.0.113.9, 192.0.2.1"); err != nil {
				t.Fatalf("first client: %v", err)
			}
			if _, err := get(t, conn, "a", "x-forwarded-for", "203.0.113.9, 192.0.2.2"); status.Code(err) != c.second {
				t.Errorf("second client: %v, want %v", err, c.second)
			}
			if _, err := get(t, conn, "a", "x-forwarded-for", "192.0.2.7, 192.0.2.1"); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("first client, who wrote an address before its own: %v, want a denial", err)
			}
		})
	}
}

// Where peers have no address all are one client, and nobody is without a limit.
func TestPeersWithoutAddressAreLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.sock")
	onUnix, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	inMemory := bufconn.Listen(1 << 16)
	dialMemory := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inMemory.DialContext(ctx) })
	for name, c := range map[string]struct {
		conn  *grpc.ClientConn
		named codes.Code // the first call that x-forwarded-for names a client of
	}{
		"a unix socket":          {serveOn(t, onUnix, "unix:"+path, node(t, rule("all", "/**", 1)), "", grpclimit.Config{}), codes.OK},
		"a connection in memory": {serveOn(t, inMemory, "passthrough:memory", node(t, rule("all", "/**", 1)), "", grpclimit.Config{}, dialMemory), codes.ResourceExhausted},
	} {
		for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
			if _, err := get(t, c.conn, "a"); status.Code(err) != want {
				t.Errorf("%s, call %d: %v, want %v", name, i, err, want)
			}
		}
		if _, err := get(t, c.conn, "a", "x-forwarded-for", "192.0.2.1"); status.Code(err) != c.named {
			t.Errorf("%s, a client that is named: %v, want %v", name, err, c.named)
		}
	}
}

func TestExemptMethodsPassUncounted(t *testing.T) {
	for name, exempt := range map[string][]string{"method": {"/shop.Orders/Get"}, "service": {grpclimit.Health, "/shop.Orders/"}} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, node(t, rule("all", "/**", 1)), "", grpclimit.Config{Exempt: exempt})
			for range 3 {
				if header, err := get(t, conn, "a"); err != nil || header.Get("ratelimit") != nil {
					t.Fatalf("exempt call: %v, %v", header, err)
				}
			}
			stream := list(t, conn)
			if err := send(stream, "a"); err != nil {
				t.Fatal(err)
			}
			wantFields := name == "method" // the stream's method is not exempt then
			if header, err := stream.Header(); err != nil || header.Get("ratelimit") != nil != wantFields {
				t.Errorf("stream's header: %v, %v; want fields: %v", header, err, wantFields)
			}
		})
	}
}

func TestCostIsAskedByCall(t *testing.T) {
	cost := func(_ context.Context, method string, message any) uint64 {
		if method != "/shop.Orders/Get" {
			t.Errorf("asked for the cost of %s", method)
		}
		return uint64(len(message.(*wrapperspb.StringValue).Value))
	}
	conn := serve(t, node(t, rule("all", "/**", 5)), "", grpclimit.Config{Cost: cost})
	for i, c := range []struct {
		value string
		code  codes.Code
	}{{"four", codes.OK}, {"xx", codes.ResourceExhausted}, {"", codes.OK}, {"", codes.OK}, {"x", codes.OK}, {"x", codes.ResourceExhausted}, {"", codes.ResourceExhausted}} {
		if _, err := get(t, conn, c.value); status.Code(err) != c.code {
			t.Errorf("call %d, %q: %v, want %v", i, c.value, err, c.code)
		}
	}
}

func TestStreams(t *testing.T) {
	t.Run("opening", func(t *testing.T) {
		conn := serve(t, node(t, rule("all", "/**", 1)), "", grpclimit.Config{})
		stream := list(t, conn)
		for range 3 {
			if err := send(stream, "a"); err != nil {
				t.Fatalf("message of an open stream: %v", err)
			}
		}
		denied := list(t, conn)
		if err := send(denied, "a"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("second stream: %v, want a denial", err)
		}
		if header, err := denied.Header(); err != nil || len(header.Get("retry-after")) != 1 {
			t.Errorf("second stream's header: %v, %v; want retry-after", header, err)
		}
	})
	t.Run("messages", func(t *testing.T) {
		n := node(t, rule("all", "/**", 3))
		conn := serve(t, n, "", grpclimit.Config{Messages: true})
		stream := list(t, conn)
		for range 2 {
			if err := send(stream, "go on"); err != nil {
				t.Fatalf("message under the limit: %v", err)
			}
		}
		err := send(stream, "go on")
		if st := status.Convert(err); st.Code() != codes.ResourceExhausted || len(st.Details()) != 2 {
			t.Fatalf("message over the limit: %v", err)
		}
		if got := stream.Trailer().Get("retry-after"); len(got) != 1 || got[0] != "45" {
			t.Errorf("retry-after in the trailer = %q", got)
		}
	})
}

// broken is a limiter that panics.
type broken struct{ httpapi.Limiter }

func (broken) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

// unready is a limiter without rules.
type unready struct{ httpapi.Limiter }

func (unready) Rules() *limit.Set { return nil }

// gone is a limiter whose rules are loaded after New has asked for them, and lack a
// namespace then.
type gone struct {
	httpapi.Limiter
	asked *atomic.Bool
}

func (g gone) Rules() *limit.Set {
	if !g.asked.Swap(true) {
		return nil
	}
	return g.Limiter.Rules()
}

func TestFailureOfTheLimiterLetsCallsPass(t *testing.T) {
	n := node(t, rule("all", "/**", 1))
	for name, c := range map[string]struct {
		limiter   httpapi.Limiter
		namespace string
		why       string
	}{"panic": {broken{n}, "", "fault"}, "no rules": {unready{n}, "", "no-rules"}, "a namespace that is gone": {gone{n, new(atomic.Bool)}, "elsewhere", "setup"}} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			conn := serve(t, c.limiter, c.namespace, grpclimit.Config{Config: httpapi.Config{Metrics: httpapi.NewMetrics(reg)}})
			for range 2 {
				header, err := get(t, conn, "a")
				if err != nil {
					t.Fatal(err)
				}
				if why := header.Get(httpapi.UndecidedField); len(why) != 1 || why[0] != c.why {
					t.Errorf("told as undecided: %q, want %s", why, c.why)
				}
			}
			const want = "# HELP spillgate_decisions_total Decisions by the rule that decided and by result: allow, soft (over the limit, inside its soft margin), elastic (inside an elastic margin that was open), deny, cut_off (denied as the edge hears of nobody else, by a rule with on_partition: closed), shadow_deny (a shadow rule would have denied), replay_deny (a request that was denied, and waits, found no room yet: no client's denial), none (no rule applies), error (the call could not be decided). Peeks are included.\n# TYPE spillgate_decisions_total counter\nspillgate_decisions_total{namespace=\"\",result=\"error\",rule=\"\"} 2\n"
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillgate_decisions_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMistakesAreTold(t *testing.T) {
	if _, err := grpclimit.Local(1, time.Nanosecond); err == nil || !strings.Contains(err.Error(), "per") {
		t.Errorf("Local(1, 1ns) = %v, want it to name per", err)
	}
	if limited, err := grpclimit.Local(0, time.Minute); limited != nil || err == nil || !strings.Contains(err.Error(), "calls") {
		t.Errorf("Local(0, 1m) = %v, want it to name calls", err)
	}
	n := node(t, rule("all", "/**", 1))
	for _, name := range []string{"", "pkg.Svc/M", "/", "//", "/M", "//M"} {
		_, err := grpclimit.New(n, "", grpclimit.Config{Config: httpapi.Config{RetryJitter: 2}, Exempt: []string{"/a.B/", "/a.B/C", name}})
		if err == nil || !strings.Contains(err.Error(), "Exempt[2]") || !strings.Contains(err.Error(), "RetryJitter") {
			t.Errorf("Exempt %q: %v, want both mistakes named", name, err)
		}
	}
}

// A call that is denied as the edge cannot hear of others is told that it is no limit
// which its caller used up.
func TestCutOffCallIsUnavailable(t *testing.T) {
	r := rule("orders", "/**", 5)
	r.OnPartition = "closed"
	n := limitertest.Node(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{r}})
	n.Flush(at.Add(-2 * time.Second)) // it asks its region, and is never answered
	header, err := get(t, serve(t, n, "", grpclimit.Config{}), "a")
	if st := status.Convert(err); st.Code() != codes.Unavailable || len(st.Details()) != 1 || header.Get("retry-after") == nil || header.Get("ratelimit") != nil {
		t.Errorf("%v with %v and header %v", err, st.Details(), header)
	}
}

// A namespace that the rules do not have is an error at once: all calls would pass.
func TestNewRefusesUnknownNamespaces(t *testing.T) {
	n := node(t, rule("all", "/**", 1))
	if _, err := grpclimit.New(n, "", grpclimit.Config{}); err != nil {
		t.Errorf("New of the only namespace = %v", err)
	}
	if _, err := grpclimit.New(n, "nope", grpclimit.Config{}); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("New(nope) = %v, want an error that names it", err)
	}
}
