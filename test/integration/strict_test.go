package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestStrictLimit: two regions are hammered at once for some windows, and no window has
// more than the limit. Whoever comes first waits for the edge's first rights, and passes.
func TestStrictLimit(t *testing.T) {
	t.Parallel()
	const limit, window = 20, 3 * time.Second
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := "schema: spillgate/v1\nnamespace: test\nrules:\n  - name: per-user\n    key: user\n    consistency: strict\n    rates: [{limit: 20, per: 3s, strict_wait: 5s}]\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nats := startNATS(t, proc.FreeAddr(t))
	var edges []*edge
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		startAggregator(t, region, peer, nats.URL, startRedis(t).Addr)
		edges = append(edges, startEdge(t, region, region+"-1", nats.URL, rules))
	}
	// The log is new: nothing is granted for a lease and a window, which each lane counts
	// for itself.
	for i := range 32 {
		proc.Until(t, 2*time.Minute, func() error {
			for _, e := range edges {
				if r, err := e.check(call{Attributes: map[string]string{"user": fmt.Sprint("early-", i)}}); err != nil || !r.Allowed {
					return errors.Join(err, errors.New("not allowed yet"))
				}
			}
			return nil
		})
	}
	for _, user := range []string{"a", "b", "c", "d"} {
		for _, e := range edges {
			if r, err := e.check(call{Attributes: map[string]string{"user": user}}); err != nil || !r.Allowed {
				t.Errorf("the first request of %s at %s: %+v, %v, want it to pass", user, e.name, r, err)
			}
		}
	}
	type span struct{ from, to time.Duration }
	var mu sync.Mutex // guards admitted
	var admitted []span
	begun := time.Now()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for time.Since(begun) < 4*window {
				from := time.Since(begun)
				r, err := edges[i%2].check(call{Attributes: map[string]string{"user": "burst"}})
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				if r.Allowed {
					mu.Lock()
					admitted = append(admitted, span{from, time.Since(begun)})
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	for _, first := range admitted {
		n := 0
		for _, a := range admitted {
			if a.from >= first.from && a.to <= first.from+window {
				n++
			}
		}
		if n > limit {
			t.Fatalf("%d were admitted within %v from %v on, want at most %d", n, window, first.from, limit)
		}
	}
	if len(admitted) < limit {
		t.Errorf("%d were admitted in four windows, want at least %d", len(admitted), limit)
	}
	t.Logf("%d of %d were admitted", len(admitted), 4*limit)
}
