package integration

import (
	"fmt"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// TestFreshEdgeDeniesWhatIsUsedUp: an edge that has just started knows what others
// have used up, those of another region included, before anybody asks it.
func TestFreshEdgeDeniesWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, proc.FreeAddr(t))
	startAggregator(t, "eu", "us", nats.URL, startRedis(t).Addr)
	startAggregator(t, "us", "eu", nats.URL, startRedis(t).Addr)
	near := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml")
	far := startEdge(t, "us", "us-1", nats.URL, "testdata/rules.yaml")
	user := func(i int) string { return fmt.Sprint("spent", i) }
	const users, limit = 12, 100
	for i := range users {
		for _, e := range []*edge{near, far} {
			for range limit / 2 {
				if _, err := e.check(call{Attributes: map[string]string{"user": user(i)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// Each edge keeps to its share of an adaptive limit near its end, and may have
	// denied the last hits above for that: what is left is asked for again.
	proc.Until(t, heals, func() error {
		for i := range users {
			n, err := near.used("user", user(i))
			if err != nil {
				return err
			}
			if n < limit {
				for _, e := range []*edge{near, far} {
					if _, err := e.check(call{Attributes: map[string]string{"user": user(i)}}); err != nil {
						return err
					}
				}
				return fmt.Errorf("eu-1 knows of %d of %s", n, user(i))
			}
		}
		return nil
	})
	fresh := startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml")
	proc.Until(t, heals, func() error {
		took, err := metric(fresh.Admin, "spillgate_sync_snapshot_seconds")
		if err != nil {
			return err
		}
		t.Logf("the snapshot took %v s", took)
		return nil
	})
	for i := range users {
		got, err := fresh.check(call{Attributes: map[string]string{"user": user(i)}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Allowed {
			t.Errorf("the fresh edge lets %s in, whose limit is used up", user(i))
		}
	}
}
