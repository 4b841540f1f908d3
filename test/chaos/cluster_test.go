package chaos

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

const secret = "a secret that only this test knows"

// settles is how long a cluster may take to be whole, on a loaded machine.
const settles = 30 * time.Second

// cluster is three regions.
type cluster struct {
	regions []*region
	edges   []*edge // all, region by region
}

// region is a site of its own.
type region struct {
	name        string
	hub         *proc.NATSSite    // what other regions reach
	leaf        *proc.NATSServer  // of its PoP
	redis       *proc.RedisServer // of both aggregators
	replica     *proc.RedisServer // of that, over a wire; nil: there is none
	copies      *proc.Proxy
	aggregators []*aggregator
	edges       []*edge
}

// aggregator has a wire of its own to each of those that it needs.
type aggregator struct {
	*proc.AggregatorServer
	name        string
	nats, redis *proc.Proxy
}

// edge has a wire of its own to the server of its PoP.
type edge struct {
	*proc.EdgeServer
	name string
	nats *proc.Proxy
	*driver
}

// newCluster starts all processes, replicas of each Redis if they are asked for.
func newCluster(t *testing.T, truth *truth, replicas bool) *cluster {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join("testdata", "rules.yaml"))
	if err != nil {
		t.Fatalf("path of the rules: %v", err)
	}
	redis, err := filepath.Abs(filepath.Join("..", "..", "deploy", "redis", "redis.conf"))
	if err != nil {
		t.Fatalf("path of Redis' settings: %v", err)
	}
	users := proc.NewNATSUsers(t)
	pops := map[string]string{"eu": "ams", "us": "iad", "ap": "sin"}
	regions := []string{"eu", "us", "ap"}
	sites := proc.NATSGateways(t, users, regions...)
	c := &cluster{}
	for _, name := range regions {
		pop := pops[name]
		r := &region{name: name, hub: sites[name], redis: proc.RedisFrom(t, redis)}
		c.regions = append(c.regions, r)
		if replicas {
			r.replica, r.copies = proc.RedisFrom(t, redis), proc.NewProxy(t, r.redis.Addr)
			r.replica.Follow(r.copies.Addr)
		}
		r.leaf = proc.NATSLeaf(t, users, "POP_"+strings.ToUpper(pop), r.hub.Leafs[0])
		for i := range 2 {
			a := &aggregator{
				name:  fmt.Sprintf("%s/agg-%d", name, i+1),
				nats:  proc.NewProxy(t, strings.TrimPrefix(r.hub.Servers[0].URL, "nats://")),
				redis: proc.NewProxy(t, r.redis.Addr),
			}
			a.AggregatorServer = daemons.Aggregator(t, []string{
				"SPILLGATE_REGION=" + name, fmt.Sprintf("SPILLGATE_NAME=agg-%d", i+1),
				"SPILLGATE_PEERS=" + strings.Join(others(regions, name), ","),
				"SPILLGATE_NATS_URLS=nats://" + a.nats.Addr,
				"SPILLGATE_NATS_NKEY=" + users.SeedFile(t, "AGG_"+strings.ToUpper(name)),
				"SPILLGATE_REDIS_URL=redis://" + a.redis.Addr + "/0",
			})
			r.aggregators = append(r.aggregators, a)
		}
		for i := range 2 {
			e := &edge{
				name: fmt.Sprintf("%s/%s-%d", name, pop, i+1),
				nats: proc.NewProxy(t, strings.TrimPrefix(r.leaf.URL, "nats://")),
			}
			e.EdgeServer = daemons.Edge(t, []string{
				"SPILLGATE_SECRET=" + secret, "SPILLGATE_RULES_PATH=" + rules,
				"SPILLGATE_REGION=" + name, "SPILLGATE_POP=" + pop, fmt.Sprintf("SPILLGATE_NAME=%s-%d", pop, i+1),
				"SPILLGATE_NATS_URLS=nats://" + e.nats.Addr,
				"SPILLGATE_NATS_NKEY=" + users.SeedFile(t, "POP_"+strings.ToUpper(pop)),
			})
			e.driver = newDriver(t, e.URL, truth)
			r.edges = append(r.edges, e)
			c.edges = append(c.edges, e)
		}
	}
	return c
}

func others(names []string, but string) (rest []string) {
	for _, n := range names {
		if n != but {
			rest = append(rest, n)
		}
	}
	return rest
}

// whole waits until every part says that it lacks nothing.
func (c *cluster) whole(t *testing.T) {
	t.Helper()
	proc.Until(t, settles, func() error {
		for _, e := range c.edges {
			for _, reason := range []string{"sync", "store_down"} {
				if err := want(e.Admin, fmt.Sprintf("spillgate_degraded{reason=%q}", reason), 0); err != nil {
					return fmt.Errorf("%s: %w", e.name, err)
				}
			}
		}
		for _, r := range c.regions {
			if r.replica != nil {
				if err := r.replica.Follows(); err != nil {
					return fmt.Errorf("%s's replica: %w", r.name, err)
				}
			}
			for _, a := range r.aggregators {
				for _, series := range []string{`spillgate_degraded{reason="store_down"}`, "spillgate_aggregator_unstored_keys"} {
					if err := want(a.Admin, series, 0); err != nil {
						return fmt.Errorf("%s: %w", a.name, err)
					}
				}
			}
		}
		return nil
	})
}

// want returns nil if a series has a value.
func want(admin, series string, value float64) error {
	got, err := proc.Metric(admin, series)
	if err == nil && got != value {
		err = fmt.Errorf("%s = %v, want %v", series, got, value)
	}
	return err
}

// believed is what each edge believes is used of each key, by edge.
func (c *cluster) believed(keys []key) ([]map[key]uint64, error) {
	all, errs := make([]map[key]uint64, len(c.edges)), make([]error, len(c.edges))
	var asking sync.WaitGroup
	for i, e := range c.edges {
		asking.Go(func() { all[i], errs[i] = e.peek(keys) })
	}
	asking.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.edges[i].name, err)
		}
	}
	return all, nil
}

// peaks is the most memory that any process of each kind had, in bytes.
func (c *cluster) peaks(t *testing.T) map[string]int64 {
	t.Helper()
	most := map[string]int64{}
	see := func(kind string, p *proc.Process) {
		bytes, err := p.Peak()
		if err != nil {
			t.Fatal(err)
		}
		most[kind] = max(most[kind], bytes)
	}
	for _, r := range c.regions {
		see("nats", r.hub.Servers[0].Process)
		see("nats", r.leaf.Process)
		see("redis", r.redis.Process)
		if r.replica != nil {
			see("redis", r.replica.Process)
		}
		for _, a := range r.aggregators {
			see("aggregator", a.Process)
		}
		for _, e := range r.edges {
			see("edge", e.Process)
		}
	}
	return most
}
