package rls_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rls"
)

// FuzzShouldRateLimit: whatever a caller sends is answered, or refused as his mistake with
// nothing charged, and what Envoy gets has a status for each descriptor.
func FuzzShouldRateLimit(f *testing.F) {
	brings := of("user=u", "remote_address=192.0.2.1")
	brings.Limit = &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_MINUTE}
	for _, in := range []*rlsv3.RateLimitRequest{
		{}, {Domain: "acme"}, {Domain: "other", Descriptors: []*rlv3.RateLimitDescriptor{of("user=u")}},
		{Domain: "acme", Descriptors: []*rlv3.RateLimitDescriptor{of("user=u", "user=v"), costing(0, "user=u"), refunding(1<<63, "user=u"), {}}},
		{Domain: "acme", Descriptors: []*rlv3.RateLimitDescriptor{spending(1<<64-1, "user=u"), spending(0, "user=u"), refunding(1, "user=u", "spillgate.report=true"), of("user=u", "spillgate.report=true")}},
		{Domain: "acme", Descriptors: []*rlv3.RateLimitDescriptor{brings, costing(1<<64-1, "user=u")}, HitsAddend: 1<<32 - 1},
		{Domain: "tree", Descriptors: []*rlv3.RateLimitDescriptor{brings, costing(1<<64-1, "user=u"), of("user=u", "path=/a"), refunding(2, "user=v"), of("free=f"), {}}},
	} {
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	limiter := limitertest.New(f, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{minutely("user", 1<<52, "user"), minutely("client", 1<<52, "client_ip")}},
		limit.Document{Namespace: "tree", Descriptors: &limit.DescriptorSpec{Below: []limit.DescriptorSpec{
			{Key: "user", Limit: with(most(5), func(l *limit.DescriptorLimit) { l.Name, l.Metadata = "user", map[string]any{"a": "b"} }),
				Below: []limit.DescriptorSpec{{Key: "path", Value: "/*", Share: true, Limit: with(most(2), func(l *limit.DescriptorLimit) { l.Shadow = true })}}},
			{Key: "free", Limit: &limit.DescriptorLimit{Unlimited: true, Replaces: []string{"user"}}},
		}}})
	api, err := httpapi.New(limiter, httpapi.Config{Now: func() time.Time { return at }})
	if err != nil {
		f.Fatal(err)
	}
	service := rls.New(api)
	f.Fuzz(func(t *testing.T, text []byte) {
		in := &rlsv3.RateLimitRequest{}
		if proto.Unmarshal(text, in) != nil {
			return // gRPC refuses it before it is ours to answer
		}
		before := limiter.Checks()
		out, err := service.ShouldRateLimit(t.Context(), in)
		switch {
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Fatalf("%v: %v, want an answer or invalid argument", in, err)
		case err != nil && limiter.Checks() != before:
			t.Fatalf("%v is refused, and asked the limiter", in)
		case err != nil:
			return
		case len(out.Statuses) != len(in.Descriptors):
			t.Fatalf("%d statuses for %d descriptors", len(out.Statuses), len(in.Descriptors))
		}
		over := rlsv3.RateLimitResponse_OK
		for _, s := range out.Statuses {
			if s.Code == rlsv3.RateLimitResponse_UNKNOWN {
				t.Fatalf("no code: %v", out)
			}
			over = max(over, s.Code)
		}
		if out.OverallCode != over {
			t.Fatalf("%v in all, of %v", out.OverallCode, out.Statuses)
		}
		if _, err := proto.Marshal(out); err != nil {
			t.Fatalf("%v cannot be sent: %v", out, err)
		}
	})
}

// FuzzJSON: whatever is posted is answered in JSON, or refused as a mistake with nothing
// charged.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		"", "{", `{"domain":"acme"}`, `{"domain":"acme","descriptors":[{"entries":[{"key":"user","value":"\u0000"}],"hitsAddend":"18446744073709551615","isNegativeHits":true}]}`,
		`{"domain":"tree","hits_addend":4294967295,"descriptors":[{"entries":[{"key":"user","value":"u"}],"limit":{"requestsPerUnit":1,"unit":"MINUTE"}},{}]}`,
	} {
		f.Add(text)
	}
	limiter := limitertest.New(f, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{minutely("user", 1<<52, "user")}},
		limit.Document{Namespace: "tree", Descriptors: &limit.DescriptorSpec{Below: []limit.DescriptorSpec{{Key: "user", Limit: with(most(5), func(*limit.DescriptorLimit) {})}}}})
	api, err := httpapi.New(limiter, httpapi.Config{Now: func() time.Time { return at }})
	if err != nil {
		f.Fatal(err)
	}
	handler := rls.New(api).HTTP(api.Ready, api)
	f.Fuzz(func(t *testing.T, text string) {
		before := limiter.Checks()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/json", strings.NewReader(text)))
		if !json.Valid(w.Body.Bytes()) || w.Code != 200 && w.Code != 429 && w.Code != 400 {
			t.Fatalf("%q: %d %s", text, w.Code, w.Body)
		}
		if w.Code == 400 && limiter.Checks() != before {
			t.Fatalf("%q is refused, and asked the limiter", text)
		}
	})
}
