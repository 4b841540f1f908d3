package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/test/proc"
)

// TestSpentByEnvoy: what the README of deploy/envoy has of costs that are known after the answer
// is what Envoy's own types take, and by its rule a user has 1000 and no more.
func TestSpentByEnvoy(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(shippedText(t, "envoy/README.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks, want the filter's and the rules", len(blocks))
	}
	var filters map[string]any
	if err := yaml.Unmarshal([]byte(blocks[0][1]), &filters); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.MarshalWithOptions(filters["envoy.filters.http.ratelimit"], yaml.JSON())
	if err != nil {
		t.Fatal(err)
	}
	of, filter := &anypb.Any{}, &filterv3.RateLimitPerRoute{}
	read(t, text, of)
	unpacked(t, of, filter)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(blocks[1][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	server := daemons.Edge(t, []string{"SPILLGATE_SECRET=0123456789abcdef0123456789abcdef"},
		"--region", "eu", "--name", "eu-1", "--nats-urls", "nats://"+proc.FreeAddr(t), "--rules-path", rules)
	client := rlsv3.NewRateLimitServiceClient(dialled(t, server.GRPC))
	// ask is a call of before the answer, or of the stream's end, where hits are what the metadata has.
	ask := func(done bool, hits uint64) *rlsv3.RateLimitResponse {
		t.Helper()
		var asked []*rlv3.RateLimitDescriptor
		for _, l := range filter.RateLimits {
			if l.ApplyOnStreamDone != done {
				continue
			}
			d := descriptors(t, []*routev3.RateLimit{l}, "192.0.2.1", map[string]string{"x-user-id": "u1"})[0]
			d.HitsAddend = l.HitsAddend.GetNumber()
			if l.HitsAddend.GetFormat() != "" {
				d.HitsAddend = wrapperspb.UInt64(hits)
			}
			asked = append(asked, d)
		}
		out, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: asked})
		if err != nil || len(out.Statuses) != len(asked) {
			t.Fatalf("%v, %v", out, err)
		}
		return out
	}
	for n, left := range []uint32{1000, 700, 400, 100} {
		if out := ask(false, 0); out.OverallCode != rlsv3.RateLimitResponse_OK || out.Statuses[0].LimitRemaining != left || out.Statuses[1].LimitRemaining != uint32(99-n) {
			t.Fatalf("request %d: %v, want that it passes, with %d tokens and %d requests left", n+1, out, left, 99-n)
		}
		if out := ask(true, 300); out.OverallCode != rlsv3.RateLimitResponse_OK {
			t.Fatalf("what request %d has cost: %v, want OK", n+1, out)
		}
	}
	if out := ask(false, 0); out.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("once 1200 of 1000 are spent: %v", out)
	}
}
