package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/spillgate/spillgate/test/proc"
)

// TestEnvoy has a stand-in for Envoy, alone and as Istio's gateway, as no package that can be
// had has one: it does what Envoy's documentation says that its connection manager, rate limit
// filter and router do with the settings of the shipped files.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	for name, of := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := of(t)
			s := siteBehind(t, func(t *testing.T, edge *proc.EdgeServer, application string) string {
				return address(envoy(t, r, edge.GRPC, application).URL)
			})
			can := passes{body: true, allowed: true, failOpen: true, switches: true}
			for _, test := range []struct {
				name string
				run  func(*testing.T, *site, passes)
			}{
				{"what is allowed reaches the application, as it was sent", allowedIsServed},
				{"what is denied reaches the client, with its wait", deniedIsTold},
				{"a call of gRPC that is denied ends in Envoy's terms", callsEndByEnvoy},
				{"a client is its address", clientsAreAddresses},
				{"a client's words about itself do not help", forgedIsIgnored},
				{"a question that is too long is no dead edge", longIsRefused},
				{"no number of fields gets past", manyFieldsAreRefused},
				{"a client's headers are seen by rules", headersAreSeen},
				{"of a header that stands twice the first line is seen", firstLineIsSeen},
				{"an error of the application's is its own", errorsAreTheirOwn},
				{"every denial is a 429, whose body says which", denialsAre429},
				{"what has no limit has no fields", freeHasNoFields},
				{"a websocket opens, and nothing that holds more requests", socketsOpen},
				{"without an edge all passes, and with it limits hold again", envoyIsOpen},
			} {
				t.Run(test.name, func(t *testing.T) {
					s.t = t
					test.run(t, s, can)
				})
			}
			t.Run("what nobody decided is not told by the client, or the application", func(t *testing.T) {
				undecidedIsTold(t, func(t *testing.T, edge, application string) string {
					return address(envoy(t, r, edge, application).URL) // an edge that does not speak gRPC
				}, passes{})
			})
		})
	}
}

// callsEndByEnvoy: RESOURCE_EXHAUSTED, whatever denied it, with the edge's body as the message.
func callsEndByEnvoy(t *testing.T, s *site, _ passes) {
	call := ask{method: "POST", target: "/denied.Calls/Call", header: map[string]string{"Content-Type": "application/grpc+proto", "Te": "trailers"}}
	for range 2 {
		if got := s.get(call); got.status != http.StatusOK || !got.served {
			t.Fatalf("within the limit: %v, want the application's answer", got)
		}
	}
	got := s.get(call)
	if got.status != http.StatusOK || got.served || got.body != "" || !slices.Equal(got.header.Values("Grpc-Status"), []string{"8"}) || got.header.Get("Retry-After") == "" || !strings.Contains(got.header.Get("Grpc-Message"), "quota-exceeded") {
		t.Errorf("above the limit: %v, want status 8 of gRPC, the wait, and the application not asked", got)
	}
}

// firstLineIsSeen: u1 has used up its limit, and has none beside it by a line more.
func firstLineIsSeen(t *testing.T, s *site, _ passes) {
	for first, want := range map[string]string{"u1": "429", "u8": "200"} {
		if got := s.line("GET /users", "X-User-Id: "+first+"\r\nX-User-Id: u9\r\n"); !strings.Contains(got, " "+want+" ") {
			t.Errorf("%s, and u9 below: %q, want %s", first, got, want)
		}
	}
}

// denialsAre429: Envoy has one status for all; what is barred, and what the edge is cut off
// from, is told apart by the body, the wait and x-spillgate-cut-off.
func denialsAre429(t *testing.T, s *site, _ passes) {
	for target, want := range map[string]struct {
		status     int
		kind       string
		wait, away bool
	}{
		"/barred": {status: http.StatusForbidden, kind: "about:blank"},
		"/shared": {status: http.StatusServiceUnavailable, kind: "#temporary-reduced-capacity", wait: true, away: true},
	} {
		got := s.get(ask{target: target})
		var problem struct {
			Type   string
			Status int
		}
		if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
			t.Fatalf("%s: %v: %v", target, got, err)
		}
		if got.status != http.StatusTooManyRequests || got.served || problem.Status != want.status || !strings.HasSuffix(problem.Type, want.kind) || (got.header.Get("Retry-After") != "") != want.wait || (got.header.Get("X-Spillgate-Cut-Off") == "true") != want.away {
			t.Errorf("%s: %v, want a 429 with a problem of %+v, and the application not asked", target, got, want)
		}
	}
}

// envoyIsOpen is deadIsOpen; of what is barred Envoy says 429.
func envoyIsOpen(t *testing.T, s *site, can passes) {
	can.barred = http.StatusTooManyRequests
	deadIsOpen(t, s, can)
}

// envoy is a proxy with the settings of a recipe, but for its addresses and the domain.
func envoy(t *testing.T, r recipe, edge, application string) *httptest.Server {
	t.Helper()
	e := &envoyed{t: t, recipe: r, timeout: r.filter.Timeout.AsDuration(), to: &url.URL{Scheme: "http", Host: application}}
	// Envoy tries a host anew in less than a second; grpc-go, left alone, takes up to two minutes.
	e.client = rlsv3.NewRateLimitServiceClient(dialled(t, edge, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second,
	})))
	for _, u := range r.hcm.UpgradeConfigs {
		e.upgrades = append(e.upgrades, u.UpgradeType)
	}
	server := httptest.NewUnstartedServer(e)
	server.Config.MaxHeaderBytes = 60 << 10
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// envoyed is Envoy's connection manager, rate limit filter and router.
type envoyed struct {
	t        *testing.T
	recipe   recipe
	timeout  time.Duration
	to       *url.URL
	client   rlsv3.RateLimitServiceClient
	upgrades []string
}

// mostFields is how many a request may have (max_headers_count).
const mostFields = 100

func (e *envoyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fields := 1 // Host
	for _, values := range r.Header {
		fields += len(values)
	}
	upgrade := strings.Join(r.Header.Values("Upgrade"), ",")
	if strings.EqualFold(upgrade, "h2c") { // is not spoken, and goes on without
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			r.Header.Del(name)
		}
		upgrade = ""
	}
	switch {
	case !r.ProtoAtLeast(1, 1): // unless accept_http_10
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	case fields > mostFields:
		w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
		return
	case upgrade != "" && !slices.ContainsFunc(e.upgrades, func(u string) bool { return strings.EqualFold(u, upgrade) }):
		w.WriteHeader(http.StatusForbidden)
		return
	}
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	if host, _, err := net.SplitHostPort(r.Host); err == nil && e.recipe.hcm.StripPortMode != nil {
		r.Host = host
	}
	if wrote := r.Header.Values("X-Forwarded-For"); e.recipe.hcm.GetUseRemoteAddress().GetValue() || wrote == nil {
		r.Header.Set("X-Forwarded-For", strings.Join(append(wrote, from), ","))
	} else { // what stands there is believed
		all := strings.Split(strings.Join(wrote, ","), ",")
		from = strings.TrimSpace(all[len(all)-1])
	}
	about := map[string]string{":authority": r.Host, ":method": r.Method, ":path": r.RequestURI}
	for name, values := range r.Header {
		about[strings.ToLower(name)] = values[0] // request_headers takes no other line
	}
	said, err := e.ask(r.Context(), from, about)
	if err != nil && e.recipe.filter.FailureModeDeny {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if err == nil && said.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		e.deny(w, r, said)
		return
	}
	pass := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(e.to)
		p.Out.Host = r.Host
		p.Out.Header["X-Forwarded-For"] = r.Header["X-Forwarded-For"]
		add(p.Out.Header, said.GetRequestHeadersToAdd())
		for _, name := range e.recipe.host.RequestHeadersToRemove { // by the router, after the filter
			remove(p.Out.Header, name)
		}
	}, ModifyResponse: func(res *http.Response) error {
		for _, name := range e.recipe.host.ResponseHeadersToRemove { // by the router, before the filter
			remove(res.Header, name)
		}
		add(res.Header, said.GetResponseHeadersToAdd())
		return nil
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }}
	pass.ServeHTTP(w, r)
}

// ask is the filter's question; without a descriptor nobody is asked.
func (e *envoyed) ask(ctx context.Context, from string, about map[string]string) (*rlsv3.RateLimitResponse, error) {
	of := descriptors(e.t, e.recipe.host.RateLimits, from, about)
	if len(of) == 0 {
		return nil, nil
	}
	ctx, done := context.WithTimeout(ctx, cmp.Or(e.timeout, 20*time.Millisecond))
	defer done()
	return e.client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "site", Descriptors: of})
}

// deny is Envoy's local reply.
func (e *envoyed) deny(w http.ResponseWriter, r *http.Request, said *rlsv3.RateLimitResponse) {
	add(w.Header(), said.ResponseHeadersToAdd)
	w.Header().Set("X-Envoy-Ratelimited", "true")
	if kind := r.Header.Get("Content-Type"); kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") {
		status := "14"
		if e.recipe.filter.RateLimitedAsResourceExhausted {
			status = "8"
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", status)
		w.Header().Set("Grpc-Message", url.PathEscape(string(said.RawBody)))
		return
	}
	w.WriteHeader(cmp.Or(int(e.recipe.filter.GetRateLimitedStatus().GetCode()), http.StatusTooManyRequests))
	_, _ = w.Write(said.RawBody)
}

func add(to http.Header, fields []*corev3.HeaderValue) {
	for _, f := range fields {
		to.Add(f.Key, f.Value)
	}
}

// remove takes a field away by its name in any case; Del knows only the spelling of its own.
func remove(from http.Header, name string) {
	for is := range from {
		if strings.EqualFold(is, name) {
			delete(from, is)
		}
	}
}
