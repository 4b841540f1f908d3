package e2e

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotafilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/test/proc"
)

// documents are those of a file of deploy/, as JSON.
func documents(t *testing.T, file string) (docs [][]byte) {
	t.Helper()
	for _, doc := range strings.Split(shippedText(t, file), "\n---\n") {
		b, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		docs = append(docs, b)
	}
	return docs
}

// read is strict: a field that Envoy does not know is an error, as it is there, and so is what
// the constraints of its types refuse.
func read(t *testing.T, text []byte, into proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
	if v, ok := into.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Fatal(err)
		}
	}
}

// dialled is a connection to an edge.
func dialled(t *testing.T, addr string, with ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(with, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// recipe is what of a recipe decides what an edge is asked, and what becomes of its answers.
type recipe struct {
	hcm     *hcmv3.HttpConnectionManager
	filter  *filterv3.RateLimit
	host    *routev3.VirtualHost
	cluster string // "": the mesh makes it
	service string // whose health the cluster looks at; "" where the mesh says
	logs    string // what the access log has
}

// recipes are those for Envoy.
var recipes = map[string]func(*testing.T) recipe{"envoy": ofEnvoy, "istio": ofIstio}

// unpacked is what any has, as Envoy takes it.
func unpacked(t *testing.T, any interface{ UnmarshalTo(proto.Message) error }, into interface {
	proto.Message
	ValidateAll() error
}) {
	t.Helper()
	if err := any.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
	if err := into.ValidateAll(); err != nil {
		t.Fatal(err)
	}
}

// mostUnderway is how many calls an edge has under way (cmd/edge).
const mostUnderway = 8192

// edgePort is where an edge listens for gRPC, unless its settings say else (configs/edge.yaml).
const edgePort = 8081

// asks says that a cluster's calls come to an edge as gRPC, from when it is ready until it is not: with
// failure_mode_deny: false all requests pass otherwise, and nothing else shows it.
func asks(t *testing.T, c *clusterv3.Cluster) {
	t.Helper()
	options := &httpv3.HttpProtocolOptions{}
	unpacked(t, c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"], options)
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil {
		t.Errorf("the cluster speaks %v, want HTTP/2, as gRPC does", options)
	}
	if to := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress(); to.GetPortValue() != edgePort {
		t.Errorf("the cluster's edge is %v, want port %d, of its grpc.listen", to, edgePort)
	}
	most := c.GetCircuitBreakers().GetThresholds()
	if len(most) != 1 || min(most[0].GetMaxRequests().GetValue(), most[0].GetMaxPendingRequests().GetValue()) < mostUnderway {
		t.Errorf("calls of the cluster are bounded by %v, want the edge to be what bounds them (Envoy's own is 1024)", most)
	}
	if panics := c.GetCommonLbConfig().GetHealthyPanicThreshold(); panics == nil || panics.Value != 0 {
		t.Errorf("healthy_panic_threshold: %v, want 0: a frozen edge would be asked on (Envoy's own is 50)", panics)
	}
	check := c.HealthChecks[0]
	if often := check.Interval.AsDuration(); often <= 0 || often > time.Second || check.NoTrafficInterval.AsDuration() != often {
		t.Errorf("its health is looked at each %v, and before the first call each %v, want a second (Envoy's own is 60 s)", often, check.NoTrafficInterval.AsDuration())
	}
}

// ofEnvoy reads the bootstrap.
func ofEnvoy(t *testing.T) (r recipe) {
	bootstrap := &bootstrapv3.Bootstrap{}
	read(t, documents(t, "envoy/envoy.yaml")[0], bootstrap)
	for _, c := range bootstrap.StaticResources.Clusters {
		if c.Name == "spillgate" {
			r.cluster, r.service = c.Name, c.HealthChecks[0].GetGrpcHealthCheck().GetServiceName()
			asks(t, c)
		}
	}
	r.hcm, r.filter = &hcmv3.HttpConnectionManager{}, &filterv3.RateLimit{}
	unpacked(t, bootstrap.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig(), r.hcm)
	unpacked(t, r.hcm.HttpFilters[0].GetTypedConfig(), r.filter)
	r.host = r.hcm.GetRouteConfig().VirtualHosts[0]
	if !r.hcm.GetStripAnyHostPort() {
		t.Error("hosts keep their ports: rules with host in their key count each that a client writes apart")
	}
	log := &streamv3.StdoutAccessLog{}
	unpacked(t, r.hcm.AccessLog[0].GetTypedConfig(), log)
	r.logs = log.GetLogFormat().GetTextFormatSource().GetInlineString()
	return r
}

// ofIstio reads what the EnvoyFilters put in.
func ofIstio(t *testing.T) (r recipe) {
	// A gateway's own.
	r.hcm = &hcmv3.HttpConnectionManager{UseRemoteAddress: wrapperspb.Bool(true), UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}}
	var ports string
	for _, doc := range documents(t, "istio/spillgate.yaml") {
		var m struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				Ports []struct {
					Name string
					Port int
				}
				ConfigPatches []struct {
					ApplyTo string
					Match   struct{ Context string }
					Patch   struct {
						Operation string
						Value     json.RawMessage
					}
				}
			}
		}
		if err := json.Unmarshal(doc, &m); err != nil {
			t.Fatal(err)
		}
		if m.Kind == "Service" {
			ports = m.Spec.Ports[0].Name
			r.cluster = "outbound|8081||" + m.Metadata.Name + "." + m.Metadata.Namespace + ".svc.cluster.local"
		}
		for _, p := range m.Spec.ConfigPatches {
			if p.Match.Context != "GATEWAY" {
				t.Errorf("the patch of %s is for %q, want GATEWAY: no gateway would ask", p.ApplyTo, p.Match.Context)
			}
			switch p.ApplyTo + " " + p.Patch.Operation {
			case "HTTP_FILTER INSERT_BEFORE":
				of := &hcmv3.HttpFilter{}
				read(t, p.Patch.Value, of)
				r.filter = &filterv3.RateLimit{}
				unpacked(t, of.GetTypedConfig(), r.filter)
			case "VIRTUAL_HOST MERGE":
				r.host = &routev3.VirtualHost{}
				if err := protojson.Unmarshal(p.Patch.Value, r.host); err != nil { // a part of one, which alone is none
					t.Fatal(err)
				}
			}
		}
	}
	if ports != "grpc" {
		t.Errorf("the port is called %q: Istio would speak HTTP/1 to it", ports)
	}
	return r
}

// descriptors are those that Envoy makes of a request by its actions; an action that finds
// nothing has the whole descriptor left out, unless it is to be skipped.
func descriptors(t testing.TB, limits []*routev3.RateLimit, from string, header map[string]string) (out []*rlv3.RateLimitDescriptor) {
	t.Helper()
next:
	for _, l := range limits {
		d := &rlv3.RateLimitDescriptor{}
		for _, a := range l.Actions {
			e := &rlv3.RateLimitDescriptor_Entry{}
			switch of := a.ActionSpecifier.(type) {
			case *routev3.RateLimit_Action_RemoteAddress_:
				e.Key, e.Value = "remote_address", from
			case *routev3.RateLimit_Action_GenericKey_:
				e.Key, e.Value = of.GenericKey.DescriptorKey, of.GenericKey.DescriptorValue
			case *routev3.RateLimit_Action_RequestHeaders_:
				value, ok := header[of.RequestHeaders.HeaderName]
				if !ok && of.RequestHeaders.SkipIfAbsent {
					continue
				} else if !ok {
					continue next
				}
				e.Key, e.Value = of.RequestHeaders.DescriptorKey, value
			default:
				t.Errorf("an action that this test does not know: %v", a)
			}
			d.Entries = append(d.Entries, e)
		}
		out = append(out, d)
	}
	return out
}

// namespaceOfExample is that of configs/rules.yaml.
const namespaceOfExample = "shop"

// The recipes are what Envoy's own types take, and what their actions ask is decided by the
// example rules as these say.
func TestRecipesForEnvoy(t *testing.T) {
	t.Parallel()
	read(t, documents(t, "envoy/quota.yaml")[0], &hcmv3.HttpFilter{})
	quota := &hcmv3.HttpFilter{}
	read(t, documents(t, "envoy/quota.yaml")[0], quota)
	filter := &quotafilterv3.RateLimitQuotaFilterConfig{}
	if err := quota.GetTypedConfig().UnmarshalTo(filter); err != nil {
		t.Fatal(err)
	}
	if filter.Domain != namespaceOfExample {
		t.Errorf("domain %q, want %q, of the example rules: an edge has none for another", filter.Domain, namespaceOfExample)
	}
	matchers := filter.GetBucketMatchers()
	named := matchers.GetMatcherList().GetMatchers()[0].GetOnMatch()
	for _, action := range []*anypb.Any{named.GetAction().GetTypedConfig(), matchers.GetOnNoMatch().GetAction().GetTypedConfig()} {
		bucket := &quotafilterv3.RateLimitQuotaBucketSettings{}
		unpacked(t, action, bucket)
		if code := bucket.GetDenyResponseSettings().GetGrpcStatus().GetCode(); code != int32(codes.ResourceExhausted) {
			t.Errorf("calls that a bucket denies end with %v, want RESOURCE_EXHAUSTED: another is a fault to their clients, who try again at once", codes.Code(code))
		}
		if often := bucket.GetReportingInterval().AsDuration(); often <= 0 || often > time.Second {
			t.Errorf("a bucket is reported each %v, want a second at the most: what an edge assigns goes by it", often)
		}
	}
	users := filter.GetBucketMatchers().GetMatcherList().GetMatchers()[0].GetPredicate().GetSinglePredicate().GetValueMatch().GetSafeRegex().GetRegex()
	for user, is := range map[string]bool{"u1": true, "a@b.example": true, "": false, "\xff": false, "no name": false, "caf\u00e9": false, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false} {
		if got := regexp.MustCompile("^(?:" + users + ")$").MatchString(user); got != is {
			t.Errorf("%.9q has a bucket of its own: %v, want %v", user, got, is)
		}
	}
	server := daemons.Edge(t, []string{"SPILLGATE_SECRET=0123456789abcdef0123456789abcdef"},
		"--region", "eu", "--name", "eu-1", "--nats-urls", "nats://"+proc.FreeAddr(t), "--rules-path", filepath.Join("..", "..", "configs", "rules.yaml"))
	conn := dialled(t, server.GRPC)
	client := rlsv3.NewRateLimitServiceClient(conn)
	for name, of := range recipes {
		t.Run(name, func(t *testing.T) {
			r := of(t)
			if to := r.filter.RateLimitService.GrpcService.GetEnvoyGrpc().GetClusterName(); to != r.cluster || r.filter.FailureModeDeny || r.filter.Timeout.AsDuration() < 250*time.Millisecond {
				t.Errorf("the filter asks %q, want %q, and for 250ms at the least, which strict_wait and queues take; %v", to, r.cluster, r.filter)
			}
			if fields := r.filter.EnableXRatelimitHeaders; fields != filterv3.RateLimit_OFF {
				t.Errorf("enable_x_ratelimit_headers: %v, want OFF: the fields are the rule's own", fields)
			}
			if health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: r.service}); err != nil || health.Status != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%q, whose health the cluster looks at: %v, %v", r.service, health, err)
			}
			ask := func(from string, header ...string) *rlsv3.RateLimitResponse {
				t.Helper()
				about := map[string]string{":authority": "shop.example", ":method": "GET"}
				for i := 0; i < len(header); i += 2 {
					about[header[i]] = header[i+1]
				}
				out, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: r.filter.Domain, Descriptors: descriptors(t, r.host.RateLimits, from, about)})
				if err != nil || len(out.Statuses) != 1 {
					t.Fatalf("%v, %v", out, err)
				}
				return out
			}
			const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
			if out := ask("192.0.2.1", ":path", "/healthz?x=1"); out.OverallCode != ok || out.Statuses[0].CurrentLimit != nil {
				t.Errorf("a health check: %v", out)
			}
			if out := ask("198.51.100.7", ":path", "/healthz"); out.OverallCode != over {
				t.Errorf("from a network on the list: %v", out)
			}
			from := "192.0.2." + strconv.Itoa(len(name)+int(name[0])) // of its own
			var denied *structpb.Struct
			for n := range 6 { // five logins a minute
				want := ok
				if n == 5 {
					want = over
				}
				out := ask(from, ":path", "/x/../login?a=b", ":method", "POST", "x-user-id", "u1")
				if out.OverallCode != want {
					t.Errorf("login %d: %v", n+1, out)
				}
				denied = out.DynamicMetadata
			}
			for _, m := range regexp.MustCompile(`%DYNAMIC_METADATA\(envoy\.filters\.http\.ratelimit:(\w+)\)%`).FindAllStringSubmatch(r.logs, -1) {
				if denied.GetFields()[m[1]] == nil {
					t.Errorf("the access log has %s of a denial, and its answer has %v", m[1], denied)
				}
			}
			if out := ask(from, ":path", "/login", ":method", "POST", "x-user-id", "u2"); out.OverallCode != ok || out.Statuses[0].CurrentLimit.GetName() != "login-user-and-ip.minute" {
				t.Errorf("another user's login: %v", out)
			}
			if out := ask(from, ":path", "/api/x", "x-user-id", "u3", "x-plan", "gold"); !strings.HasPrefix(out.Statuses[0].CurrentLimit.GetName(), "partners") {
				t.Errorf("who pays: %v", out)
			}
		})
	}
}
