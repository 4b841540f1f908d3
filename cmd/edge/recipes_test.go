package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotafilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
)

// documents are those of a file of deploy/, as JSON.
func documents(t *testing.T, file string) (docs [][]byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
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

// recipe is what of a recipe decides what an edge is asked.
type recipe struct {
	filter  *filterv3.RateLimit
	actions []*routev3.RateLimit
	cluster string // "": the mesh makes it
}

// ofEnvoy reads the bootstrap.
func ofEnvoy(t *testing.T) (r recipe) {
	bootstrap := &bootstrapv3.Bootstrap{}
	read(t, documents(t, "envoy/envoy.yaml")[0], bootstrap)
	for _, c := range bootstrap.StaticResources.Clusters {
		if c.Name == "spillgate" {
			r.cluster = c.Name
			most := c.GetCircuitBreakers().GetThresholds()
			if len(most) != 1 || min(most[0].GetMaxRequests().GetValue(), most[0].GetMaxPendingRequests().GetValue()) < grpcMostUnderway {
				t.Errorf("calls of the cluster are bounded by %v, want the edge to be what bounds them (Envoy's own is 1024)", most)
			}
		}
	}
	hcm := &hcmv3.HttpConnectionManager{}
	if err := bootstrap.StaticResources.Listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(hcm); err != nil {
		t.Fatal(err)
	}
	r.filter = &filterv3.RateLimit{}
	if err := hcm.HttpFilters[0].GetTypedConfig().UnmarshalTo(r.filter); err != nil {
		t.Fatal(err)
	}
	if err := r.filter.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	r.actions = hcm.GetRouteConfig().VirtualHosts[0].RateLimits
	return r
}

// ofIstio reads what the EnvoyFilters put in.
func ofIstio(t *testing.T) (r recipe) {
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
			switch p.ApplyTo + " " + p.Patch.Operation {
			case "HTTP_FILTER INSERT_BEFORE":
				of := &hcmv3.HttpFilter{}
				read(t, p.Patch.Value, of)
				r.filter = &filterv3.RateLimit{}
				if err := of.GetTypedConfig().UnmarshalTo(r.filter); err != nil {
					t.Fatal(err)
				}
			case "VIRTUAL_HOST MERGE":
				of := &routev3.VirtualHost{}
				if err := protojson.Unmarshal(p.Patch.Value, of); err != nil { // a part of one, which alone is none
					t.Fatal(err)
				}
				r.actions = of.RateLimits
			}
		}
	}
	if ports != "grpc" {
		t.Errorf("the port is called %q: Istio would speak HTTP/1 to it", ports)
	}
	return r
}

// arrival is a request as Envoy has it.
type arrival struct {
	from   string
	header map[string]string
}

// descriptors are those that Envoy makes of a request by its actions; an action that finds
// nothing has the whole descriptor left out, unless it is to be skipped.
func descriptors(t *testing.T, limits []*routev3.RateLimit, r arrival) (out []*rlv3.RateLimitDescriptor) {
	t.Helper()
next:
	for _, l := range limits {
		d := &rlv3.RateLimitDescriptor{}
		for _, a := range l.Actions {
			e := &rlv3.RateLimitDescriptor_Entry{}
			switch of := a.ActionSpecifier.(type) {
			case *routev3.RateLimit_Action_RemoteAddress_:
				e.Key, e.Value = "remote_address", r.from
			case *routev3.RateLimit_Action_RequestHeaders_:
				e.Key, e.Value = of.RequestHeaders.DescriptorKey, r.header[of.RequestHeaders.HeaderName]
				if e.Value == "" && of.RequestHeaders.SkipIfAbsent {
					continue
				} else if e.Value == "" {
					continue next
				}
			default:
				t.Fatalf("an action that this test does not know: %v", a)
			}
			d.Entries = append(d.Entries, e)
		}
		out = append(out, d)
	}
	return out
}

// The recipes are what Envoy's own types take, and what their actions ask is decided by the
// example rules as these say.
func TestRecipesForEnvoy(t *testing.T) {
	read(t, documents(t, "envoy/quota.yaml")[0], &hcmv3.HttpFilter{})
	quota := &hcmv3.HttpFilter{}
	read(t, documents(t, "envoy/quota.yaml")[0], quota)
	filter := &quotafilterv3.RateLimitQuotaFilterConfig{}
	if err := quota.GetTypedConfig().UnmarshalTo(filter); err != nil {
		t.Fatal(err)
	}
	users := filter.GetBucketMatchers().GetMatcherList().GetMatchers()[0].GetPredicate().GetSinglePredicate().GetValueMatch().GetSafeRegex().GetRegex()
	for user, is := range map[string]bool{"u1": true, "a@b.example": true, "": false, "\xff": false, "no name": false, "caf\u00e9": false, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false} {
		if got := regexp.MustCompile("^(?:" + users + ")$").MatchString(user); got != is {
			t.Errorf("%.9q has a bucket of its own: %v, want %v", user, got, is)
		}
	}
	for name, of := range map[string]func(*testing.T) recipe{"envoy": ofEnvoy, "istio": ofIstio} {
		t.Run(name, func(t *testing.T) {
			r := of(t)
			if to := r.filter.RateLimitService.GrpcService.GetEnvoyGrpc().GetClusterName(); to != r.cluster || r.filter.FailureModeDeny || r.filter.Timeout.AsDuration() == 0 {
				t.Errorf("the filter asks %q, want %q; %v", to, r.cluster, r.filter)
			}
			set, err := configs.LoadRules("../../configs/rules.yaml")
			if err != nil {
				t.Fatal(err)
			}
			node := limitertest.Node(t)
			node.SetRules(set)
			client := rlsv3.NewRateLimitServiceClient(dialled(t, servingOver(t, node)))
			ask := func(from string, header ...string) *rlsv3.RateLimitResponse {
				t.Helper()
				about := arrival{from, map[string]string{":authority": "shop.example", ":method": "GET"}}
				for i := 0; i < len(header); i += 2 {
					about.header[header[i]] = header[i+1]
				}
				out, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: r.filter.Domain, Descriptors: descriptors(t, r.actions, about)})
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
			for n := range 6 { // five logins a minute
				want := ok
				if n == 5 {
					want = over
				}
				if out := ask("192.0.2.1", ":path", "/x/../login?a=b", ":method", "POST", "x-user-id", "u1"); out.OverallCode != want {
					t.Errorf("login %d: %v", n+1, out)
				}
			}
			if out := ask("192.0.2.1", ":path", "/login", ":method", "POST", "x-user-id", "u2"); out.OverallCode != ok || out.Statuses[0].CurrentLimit.GetName() != "login-user-and-ip.minute" {
				t.Errorf("another user's login: %v", out)
			}
			if out := ask("192.0.2.1", ":path", "/api/x", "x-user-id", "u3", "x-plan", "gold"); !strings.HasPrefix(out.Statuses[0].CurrentLimit.GetName(), "partners") {
				t.Errorf("who pays: %v", out)
			}
		})
	}
}
