package integration

import (
	"fmt"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// heals is how long a cluster may take, after the fault is over, until every
// edge knows again all that living edges hold.
const heals = 15 * time.Second

// fault is something that happens to a process, and its end.
type fault struct {
	name   string
	begin  func(*proc.Process)
	finish func(*proc.Process)
}

var faults = []fault{
	{"SIGTERM and restart", (*proc.Process).Terminate, (*proc.Process).Restart},
	{"SIGKILL and restart", (*proc.Process).Kill, (*proc.Process).Restart},
	{"frozen and thawed", (*proc.Process).Pause, (*proc.Process).Continue},
}

// survive charges before and during each fault, and demands afterwards that
// every edge knows every count, those of the faults before included. during
// looks at the cluster while the fault lasts.
func (c *cluster) survive(t *testing.T, victim *proc.Process, faults []fault, during func(t *testing.T, f fault, held counts)) {
	held := counts{}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			stop := watch(t, c.edges()...)
			defer stop()
			// At once, before anybody can have heard of the counts.
			before, meanwhile := f.name+", before", f.name+", meanwhile"
			c.eu.edges[0].charge(t, before, 7)
			c.us.edges[0].charge(t, before, 11)
			held[before] = 18
			f.begin(victim)
			c.eu.edges[0].charge(t, meanwhile, 3)
			c.us.edges[1].charge(t, meanwhile, 5)
			held[meanwhile] = 8
			during(t, f, maps.Clone(held))
			f.finish(victim)
			took := agree(t, heals, held, c.edges()...)
			t.Logf("all counts everywhere %v after the end of the fault", took)
		})
	}
	// Those edges may remember what their regions have forgotten; edges that
	// were not there know only what they are told.
	for _, r := range []*region{c.eu, c.us} {
		newcomer := startEdge(t, r.name, r.name+"-3", c.nats.URL, "testdata/rules.yaml")
		t.Logf("all counts known to a new edge of %s after %v", r.name, agree(t, heals, held, newcomer))
		newcomer.Terminate()
	}
}

// TestAggregatorFaults: its region's edges go on deciding; what it had not
// passed on, it learns again from them or from Redis.
func TestAggregatorFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.survive(t, c.eu.aggregator.Process, faults, func(t *testing.T, _ fault, _ counts) {
		for _, e := range c.eu.edges {
			awaitMetric(t, heals, e.Admin, `spillgate_degraded{reason="sync"}`, 1)
		}
		if got, err := metric(c.us.edges[0].Admin, `spillgate_degraded{reason="sync"}`); err != nil || got != 0 {
			t.Errorf("in the other region, degraded by sync = %v, %v, want 0", got, err)
		}
	})
}

// TestNATSFaults: every edge is on its own, says so, and decides.
func TestNATSFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.survive(t, c.nats.Process, faults, func(t *testing.T, _ fault, _ counts) {
		for _, e := range c.edges() {
			awaitMetric(t, heals, e.Admin, `spillgate_degraded{reason="sync"}`, 1)
		}
	})
}

// TestRedisFaults: aggregators serve from memory, so the edges stay in step
// while Redis is away. After its restart, or FLUSHALL, it is empty.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	store := redisClient(t, c.eu.redis.Addr)
	wiped := fault{"FLUSHALL", func(*proc.Process) {
		if err := store.FlushAll(t.Context()).Err(); err != nil {
			t.Fatalf("FLUSHALL: %v", err)
		}
	}, func(*proc.Process) {}}
	c.survive(t, c.eu.redis.Process, append([]fault{wiped}, faults...), func(t *testing.T, f fault, held counts) {
		if f.name != wiped.name {
			awaitMetric(t, heals, c.eu.aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 1)
		}
		took := agree(t, heals, held, c.edges()...)
		t.Logf("all counts everywhere %v after the fault began, Redis being away or empty", took)
	})
	// Redis has them again: an aggregator that remembers nothing finds them
	// there, although the edges that counted them are gone.
	held := counts{}
	for _, f := range append([]fault{wiped}, faults...) {
		held[f.name+", before"], held[f.name+", meanwhile"] = 18, 8
	}
	awaitMetric(t, heals, c.eu.aggregator.Admin, "spillgate_aggregator_unstored_keys", 0)
	awaitMetric(t, heals, c.eu.aggregator.Admin, `spillgate_degraded{reason="store_down"}`, 0)
	for _, r := range []*region{c.eu, c.us} {
		for _, e := range r.edges {
			e.Kill()
		}
	}
	c.us.aggregator.Kill()
	c.eu.aggregator.Kill()
	c.eu.aggregator.Restart()
	survivor := c.eu.edges[1]
	survivor.restart()
	took := agree(t, heals, held, survivor)
	t.Logf("all counts found in Redis %v after every edge and aggregator had died", took)
}

// TestEdgeFaults: what an edge has told its region outlives it, and an edge
// that is asked to stop tells all it has.
func TestEdgeFaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	victim, living := c.eu.edges[0], c.edges()[1:]
	held := counts{}

	t.Run("SIGTERM", func(t *testing.T) {
		stop := watch(t, living...)
		defer stop()
		victim.charge(t, "terminated", 9)
		victim.Signal(syscall.SIGTERM)
		if code := victim.ExitCode(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		held["terminated"] = 9
		t.Logf("all counts elsewhere %v after the edge had gone", agree(t, heals, held, living...))
		victim.restart()
		t.Logf("all counts known to the edge %v after it was back", agree(t, heals, held, victim))
	})

	t.Run("SIGKILL", func(t *testing.T) {
		stop := watch(t, living...)
		defer stop()
		victim.charge(t, "killed", 13)
		held["killed"] = 13
		agree(t, heals, held, living...) // so it was acknowledged
		c.us.edges[0].charge(t, "killed", 4)
		held["killed"] = 17
		victim.Kill()
		t.Logf("all counts elsewhere %v after the edge was killed", agree(t, heals, held, living...))
		victim.restart()
		t.Logf("all counts known to the edge %v after it was back", agree(t, heals, held, c.edges()...))
	})

	// The tail that nobody had heard of may be gone, but not for some only, and
	// nothing is invented.
	t.Run("SIGKILL at once", func(t *testing.T) {
		stop := watch(t, living...)
		defer stop()
		victim.charge(t, "tail", 6)
		victim.Kill()
		victim.restart()
		victim.charge(t, "tail", 2)
		var got reply
		proc.Until(t, heals, func() (err error) {
			got, err = victim.check(call{Attributes: map[string]string{"account": "tail"}, Peek: true})
			if err == nil && got.Basis.AgeMS < 0 {
				err = fmt.Errorf("%s has not heard of the key since it is back: %+v", victim.name, got)
			}
			return err
		})
		tail := got.Basis.Merged // what the region had heard of it before
		t.Logf("%d of 6 counts outlived the edge that was killed in the middle", tail)
		if got.Basis.Local != 2 || tail > 6 {
			t.Errorf("after the restart: %+v, want 2 of its own and at most 6 from before", got)
		}
		held["tail"] = 2 + tail
		agree(t, heals, held, c.edges()...)
	})

	t.Run("frozen and thawed", func(t *testing.T) {
		stop := watch(t, living...)
		defer stop()
		victim.charge(t, "frozen", 5)
		victim.Pause()
		living[0].charge(t, "frozen", 2)
		living[2].charge(t, "frozen", 3)
		awaitMetric(t, heals, c.eu.aggregator.Admin, "spillgate_live_edges", 1)
		victim.Continue()
		held["frozen"] = 10
		t.Logf("all counts everywhere %v after the edge was thawed", agree(t, heals, held, c.edges()...))
	})
}
