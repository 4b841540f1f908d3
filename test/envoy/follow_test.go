package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/test/proc"
)

// TestFilesAreFollowed: an edge takes a changed file as it takes rules of our own: what
// was counted stays counted, and a bad file changes nothing. An aggregator knows the same
// limits.
func TestFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	write := func(requests string) {
		t.Helper()
		text := fmt.Sprintf("domain: shop\ndescriptors:\n- key: user\n  rate_limit: {unit: year, requests_per_unit: %s}\n", requests)
		if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("5")
	nobody := "nats://" + proc.FreeAddr(t)
	e := daemons.Edge(t, []string{"SPILLGATE_SECRET=a secret of the test's own", "SHADOW_MODE=true"}, "--region", "eu", "--name", "e1", "--nats-urls", nobody, "--rules-path", dir, "--rules-format", "envoy")
	a := daemons.Aggregator(t, nil, "--region", "eu", "--name", "a1", "--nats-urls", nobody, "--rules-path", dir, "--rules-format", "envoy")
	user := func(hits uint64) *rlsv3.RateLimitResponse_DescriptorStatus {
		t.Helper()
		return ask(t, e.URL, &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*rlv3.RateLimitDescriptor{
			{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}}, HitsAddend: wrapperspb.UInt64(hits)},
		}}).Statuses[0]
	}
	if log := e.Log(); !strings.Contains(log, "environment SHADOW_MODE") {
		t.Errorf("the log says nothing of SHADOW_MODE, by which the reference would deny nothing:\n%s", log)
	}
	if s := user(2); s.LimitRemaining != 3 {
		t.Fatalf("%v, want 3 left", s)
	}
	proc.Until(t, 10*time.Second, func() error { return proc.Answers(a.Admin + "/admin/v1/rules/user/truth")(t.Context()) })

	write("many")
	failed := func() error {
		got, err := proc.Metric(e.Admin, `spillgate_config_reloads_total{result="error"}`)
		if err == nil && got != 1 {
			err = fmt.Errorf("%v bad files told, want 1", got)
		}
		return err
	}
	proc.Until(t, 10*time.Second, failed)
	if s := user(1); s.LimitRemaining != 2 || s.CurrentLimit.RequestsPerUnit != 5 {
		t.Errorf("after a bad file %v, want 2 left of 5", s)
	}
	write("50")
	proc.Until(t, 10*time.Second, func() error {
		if s := user(0); s.CurrentLimit.RequestsPerUnit != 50 {
			return fmt.Errorf("%v, want a limit of 50", s)
		}
		return nil
	})
	if left := user(1).LimitRemaining; left != 46 {
		t.Errorf("%d left of 50, want 46: 4 were counted", left)
	}
}
