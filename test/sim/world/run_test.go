package world

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// cluster is two regions with two edges each whose Run loops run over membus,
// in a synctest bubble: virtual time, real goroutines.
type cluster struct {
	nodes []*edge.Node
	aggs  []*regional.Aggregator
	stop  []func() error // in the order of teardown: edges, then aggregators
}

func runCluster(t *testing.T, faults func(region string) membus.Faults) *cluster {
	t.Helper()
	hub := membus.New()
	c := &cluster{}
	var aggregators []func() error
	run := func(bus deltasync.Bus, loop func(context.Context, deltasync.Bus) error) func() error {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- loop(ctx, bus) }() // cancel ends it; the returned func waits
		return func() error {
			cancel()
			err := <-done
			if cerr := bus.Close(); err == nil {
				err = cerr
			}
			return err
		}
	}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		agg, err := regional.New(regional.Config{Region: region, Name: "a", Peers: []string{peer}, Lanes: 4}, memstore.New(memstore.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		c.aggs = append(c.aggs, agg)
		aggregators = append(aggregators, run(membus.Impair(hub.Connect(), faults(region)), agg.Run))
		for _, name := range []string{"e1", "e2"} {
			n, err := edge.New(edge.Config{Region: region, Pop: "p", Name: name, Secret: secret, Lanes: 4})
			if err != nil {
				t.Fatal(err)
			}
			set, problems := limit.Compile(rules(limit.RateSpec{Limit: 100, Per: time.Minute})...)
			if set == nil {
				t.Fatal(problems)
			}
			n.SetRules(set)
			c.nodes = append(c.nodes, n)
			c.stop = append(c.stop, run(membus.Impair(hub.Connect(), faults(region)), n.Run))
		}
	}
	c.stop = append(c.stop, aggregators...)
	return c
}

func (c *cluster) check(i int, user string) bool {
	n := c.nodes[i%len(c.nodes)]
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Check(time.Now(), req).Allowed
}

func (c *cluster) believed(i int, user string) uint64 {
	n := c.nodes[i]
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Inspect(time.Now(), req)[0].Total
}

func (c *cluster) teardown(t *testing.T) {
	t.Helper()
	for _, stop := range c.stop {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// TestRunUnderFaults drives the loops through a bad network, then lets the
// faults end: everybody must then agree on the truth.
func TestRunUnderFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Bool
		bad.Store(true)
		c := runCluster(t, func(region string) membus.Faults {
			return membus.Faults{Seed: 1, Link: func(subject string) membus.Link {
				l := membus.Link{Delay: 5 * time.Millisecond, Jitter: time.Millisecond}
				if strings.HasPrefix(subject, "sg.v1.up.") && strings.Contains(subject, ".r.") {
					l.Delay, l.Jitter = 80*time.Millisecond, 8*time.Millisecond
				}
				if bad.Load() {
					l.Loss, l.Duplicate, l.Reorder = 0.05, 0.05, 0.05
				}
				return l
			}}
		})
		allowed := uint64(0)
		for i := range 400 {
			if c.check(i, "u") {
				allowed++
			}
			time.Sleep(50 * time.Millisecond)
		}
		if allowed < 100 || allowed > 115 {
			t.Errorf("%d of 400 allowed under faults, want 100 to 115", allowed)
		}
		bad.Store(false)
		time.Sleep(11 * time.Second) // a refresh and two exports
		for i := range c.nodes {
			if got := c.believed(i, "u"); got != allowed {
				t.Errorf("edge %d believes %d after the faults, want %d", i, got, allowed)
			}
		}
		for _, agg := range c.aggs {
			for _, d := range agg.Drift(time.Now()) { // of the other region, and of its own store
				if d.Compared < 3 || d.Ahead != 0 || d.Behind != 0 {
					t.Errorf("audits after the faults: %+v, want some, and no drift", d)
				}
			}
		}
		c.teardown(t)
	})
}

// TestStoppedEdgeLosesNothing: what was charged just before the end reaches
// the others with the last flush.
func TestStoppedEdgeLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runCluster(t, func(string) membus.Faults { return membus.Faults{} })
		time.Sleep(time.Second)
		for range 30 {
			c.check(0, "u")
		}
		if err := c.stop[0](); err != nil {
			t.Errorf("stop: %v", err)
		}
		c.stop = c.stop[1:]
		c.check(1, "u") // the others ask
		c.check(3, "u")
		time.Sleep(time.Second)
		for _, i := range []int{1, 2, 3} {
			c.check(i, "u")
		}
		time.Sleep(3 * time.Second) // past the afterword
		for _, i := range []int{1, 3} {
			if got := c.believed(i, "u"); got != 35 {
				t.Errorf("edge %d believes %d, want the stopped edge's 30 and 5 more", i, got)
			}
		}
		c.teardown(t)
	})
}

// TestStopWithoutARegionIsPrompt: an edge whose region never answers stops
// within its deadline and says what was left.
func TestStopWithoutARegionIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := edge.New(edge.Config{Region: "eu", Pop: "p", Name: "e", Secret: secret, Lanes: 1})
		if err != nil {
			t.Fatal(err)
		}
		set, _ := limit.Compile(rules(limit.RateSpec{Limit: 100, Per: time.Minute})...)
		n.SetRules(set)
		c := &cluster{nodes: []*edge.Node{n}}
		bus := membus.New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx, bus) }() // cancel ends it; received below
		c.check(0, "u")
		time.Sleep(10 * time.Second)
		if n.Degraded(time.Now()) != "sync" {
			t.Error("an edge without a region does not say that it is degraded")
		}
		start := time.Now()
		cancel()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "unsent") {
			t.Errorf("Run = %v, want it to say what was left unsent", err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("stopping took %v, want at most about 2s", took)
		}
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}
