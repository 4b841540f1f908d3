package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/test/proc"
)

// TestTruthOfABurst: 400 calls at once overshoot a limit of 50. A few seconds later
// the aggregators say by how much, to the hit, one region of each key, and who it was.
func TestTruthOfABurst(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := "schema: spillgate/v1\nnamespace: test\nrules:\n  - name: per-user\n    key: user\n    rates: [{limit: 50, per: 1m}]\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nats := startNATS(t, proc.FreeAddr(t))
	admins, edges := map[string]string{}, []*edge{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		admins[region] = startAggregator(t, region, peer, nats.URL, startRedis(t).Addr, "--rules-path", rules).Admin
		edges = append(edges, startEdge(t, region, region+"-1", nats.URL, rules))
	}
	for region, admin := range admins {
		awaitMetric(t, settles, admin, "spillgate_live_edges", 1)
		proc.Until(t, settles, func() error {
			var got struct{ Regions []regional.RegionState }
			if err := getJSON(admin+"/admin/v1/regions", &got); err != nil {
				return err
			}
			if len(got.Regions) != 2 || got.Regions[0].State != "ok" || got.Regions[1].Region != region {
				return fmt.Errorf("%s: regions %+v, want the other one heard", region, got.Regions)
			}
			return nil
		})
	}
	var admitted atomic.Uint64
	var calls sync.WaitGroup
	for i := range 400 {
		calls.Go(func() {
			r, err := edges[i%2].check(call{Attributes: map[string]string{"user": "burst"}})
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			if r.Allowed {
				admitted.Add(1)
			}
		})
	}
	calls.Wait()
	over := admitted.Load() - 50
	if over == 0 {
		t.Fatal("the burst was held: there is nothing to tell of")
	}
	proc.Until(t, settles, func() error {
		reported, caused := uint64(0), 0.0
		for region, admin := range admins {
			var got struct{ Rates []regional.RateTruth }
			if err := getJSON(admin+"/admin/v1/rules/per-user/truth", &got); err != nil {
				return err
			}
			if len(got.Rates) != 1 || got.Rates[0].Seen.Hits != over || got.Rates[0].Worst.Over != over {
				return fmt.Errorf("%s: %+v, want %d of %d too many", region, got.Rates, over, admitted.Load())
			}
			reported += got.Rates[0].Reported.Hits
			for _, c := range got.Rates[0].PoPs {
				if c.Name != "pop-"+region {
					return fmt.Errorf("%s says that %+v did it", region, c)
				}
				caused += c.Hits
			}
		}
		if reported != over || math.Abs(caused-float64(over)) > 1e-6*float64(over) {
			return fmt.Errorf("both report %d hits, of which PoPs caused %v, want %d", reported, caused, over)
		}
		return nil
	})
	t.Logf("%d of 50 admitted", admitted.Load())
}

func getJSON(url string, v any) error {
	text, err := get(url)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), v)
}
