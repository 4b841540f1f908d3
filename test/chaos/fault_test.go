package chaos

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

var (
	acts  = []string{"kill", "stop", "cut", "slow"}
	kinds = []string{"edge", "aggregator", "nats", "redis"}
)

// fault is something that is done to a part of the cluster, and its end.
type fault struct {
	says       string   // what happens to whom
	hits       []string // processes and wires; two faults that share one are no pair
	kills      *edge    // the edge that dies of it
	told       bool     // it dies when its region has all that it admitted until then, not until the first fault
	begin, end func()
}

// timed is a fault in its place: so long after the first, and for so long.
type timed struct {
	fault
	after, lasts time.Duration
}

func (t timed) String() string {
	if t.after == 0 {
		return fmt.Sprintf("%s for %v", t.says, t.lasts)
	}
	return fmt.Sprintf("%v later %s for %v", t.after, t.says, t.lasts)
}

// scenario names one or two faults. What is left to draw depends on the seed
// and the name alone.
type scenario struct {
	name   string
	faults [][2]string                                                    // act and kind
	script func(c *cluster, r *rand.Rand, shortest time.Duration) []timed // instead of faults
}

// scenarios are all that there are.
func scenarios() (all []scenario) {
	var single [][2]string
	for _, act := range acts {
		for _, kind := range kinds {
			single = append(single, [2]string{act, kind})
			all = append(all, scenario{name: act + "-" + kind, faults: single[len(single)-1:]})
		}
	}
	all = append(all, scenario{name: "told-and-gone", script: toldAndGone}, scenario{name: promoted, script: promoteReplica})
	for i, one := range single {
		for _, other := range single[i:] {
			all = append(all, pairOf(one, other))
		}
	}
	return all
}

func pairOf(one, other [2]string) scenario {
	return scenario{name: one[0] + "-" + one[1] + "_and_" + other[0] + "-" + other[1], faults: [][2]string{one, other}}
}

// dice are a scenario's own.
func dice(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// plan draws what happens in a scenario; a fault lasts from shortest to twice
// that. Either of a pair may be first. The second mostly hits the region of the first: there one part
// stands in for another.
func (s scenario) plan(c *cluster, r *rand.Rand, shortest time.Duration) (plan []timed) {
	if s.script != nil {
		return s.script(c, r, shortest)
	}
	faults := slices.Clone(s.faults)
	r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	near := pick(r, c.regions)
	for _, f := range faults {
		if len(plan) > 0 && r.IntN(3) == 0 {
			near = pick(r, c.regions)
		}
		next := timed{lasts: shortest + upTo(r, shortest)}
		for next.begin == nil || len(plan) > 0 && overlap(plan[0].hits, next.hits) {
			if next.begin != nil { // such as a region's Redis twice
				near = pick(r, c.regions)
			}
			next.fault = c.draw(r, near, f[0], f[1])
		}
		if len(plan) > 0 { // while the first lasts, and long enough for others to have noticed that
			next.after = upTo(r, min(plan[0].lasts, 2*time.Second))
		}
		plan = append(plan, next)
	}
	return plan
}

// toldAndGone leaves counts in a region's Redis alone: the regions are apart, an
// edge dies when its region has taken all, and so do both aggregators before
// they could tell the others.
func toldAndGone(c *cluster, r *rand.Rand, shortest time.Duration) []timed {
	region := pick(r, c.regions)
	apart := fault{says: "cut all regions from each other"}
	for _, one := range c.regions {
		apart.hits = append(apart.hits, fmt.Sprintf("wire %p", one.hub.Gateway))
	}
	every := func(do func(*proc.Proxy)) func() {
		return func() {
			for _, one := range c.regions {
				do(one.hub.Gateway)
			}
		}
	}
	apart.begin, apart.end = every((*proc.Proxy).Cut), every((*proc.Proxy).Mend)
	dies := victimEdge(pick(r, region.edges)).kill()
	dies.told = true
	plan := []timed{{apart, 0, 3 * shortest}, {dies, shortest, shortest}}
	for _, a := range region.aggregators {
		plan = append(plan, timed{victimAggregator(a).kill(), 2 * shortest, shortest / 2})
	}
	return plan
}

// promoted is the scenario that needs replicas.
const promoted = "promote-redis"

// promoteReplica puts a replica in the place of a region's Redis, with a lost tail:
// it is cut off, an edge dies when its region has taken all, with counts that the
// master alone was told, and so does the master.
func promoteReplica(c *cluster, r *rand.Rand, shortest time.Duration) []timed {
	region := pick(r, c.regions)
	apart := fault{
		says: "cut " + region.name + "/redis from its replica", hits: []string{fmt.Sprintf("wire %p", region.copies)},
		begin: func() { region.copies.Cut() }, end: func() { region.copies.Mend() },
	}
	dies := victimEdge(pick(r, region.edges)).kill()
	dies.told = true
	master := fault{
		says: "kill " + region.name + "/redis until the replica is promoted", hits: []string{region.name + "/redis"},
		begin: func() { region.redis.Kill() },
		end:   region.promote,
	}
	return []timed{{apart, 0, 3 * shortest}, {dies, shortest, shortest}, {master, shortest + shortest/4, shortest / 2}}
}

// promote puts the replica in the place of its master, which comes back empty and
// follows it.
func (r *region) promote() {
	r.redis, r.replica = r.replica, r.redis
	r.redis.Lead()
	for _, a := range r.aggregators {
		a.redis.Lead(r.redis.Addr)
	}
	r.replica.Restart()
	r.copies.Lead(r.redis.Addr)
	r.replica.Follow(r.copies.Addr)
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}

// upTo is a tenth of a second at least less than d.
func upTo(r *rand.Rand, d time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return step * time.Duration(r.Int64N(int64(d/step)))
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// victim is what a fault may hit.
type victim struct {
	name    string
	process *proc.Process
	edge    *edge
	wires   []wire // to cut or slow: one of them, or all
}

type wire struct {
	name string
	*proc.Proxy
}

func victimEdge(e *edge) victim {
	v := victim{name: e.name, edge: e, wires: []wire{{"its server", e.nats}}}
	if e.EdgeServer != nil { // a plan alone needs no processes
		v.process = e.Process
	}
	return v
}

func victimAggregator(a *aggregator) victim {
	v := victim{name: a.name, wires: []wire{{"its server", a.nats}, {"its Redis", a.redis}}}
	if a.AggregatorServer != nil {
		v.process = a.Process
	}
	return v
}

// draw draws a victim in a region, and how it is hit.
func (c *cluster) draw(r *rand.Rand, region *region, act, kind string) fault {
	var v victim
	switch kind {
	case "edge":
		v = victimEdge(pick(r, region.edges))
	case "aggregator":
		v = victimAggregator(pick(r, region.aggregators))
	case "redis":
		v = victim{name: region.name + "/redis"}
		if region.redis != nil {
			v.process = region.redis.Process
		}
		for _, a := range region.aggregators {
			v.wires = append(v.wires, wire{a.name, a.redis})
		}
	case "nats":
		if r.IntN(2) == 0 {
			v = victim{name: region.name + "/leaf", wires: []wire{{"its region", region.hub.Leafs[0]}}}
			if region.leaf != nil {
				v.process = region.leaf.Process
			}
			break
		}
		v = victim{name: region.name + "/hub"}
		if len(region.hub.Servers) > 0 {
			v.process = region.hub.Servers[0].Process
		}
		// A region's own gateway is how others reach it; all of them together
		// leave each region alone.
		for _, other := range c.regions {
			if other == region {
				v.wires = append([]wire{{"those who ask it", other.hub.Gateway}}, v.wires...)
			} else {
				v.wires = append(v.wires, wire{"those who ask " + other.name, other.hub.Gateway})
			}
		}
	}
	switch act {
	case "kill":
		return v.kill()
	case "stop":
		return v.stop()
	}
	wires := v.wires
	switch n := r.IntN(len(wires) + 1); { // one, or all; of gateways the first, or all
	case n == len(wires):
	case kind == "nats":
		wires = wires[:1]
	default:
		wires = wires[n : n+1]
	}
	var hits, ends []string
	for _, w := range wires {
		hits = append(hits, fmt.Sprintf("wire %p", w.Proxy))
		ends = append(ends, w.name)
	}
	f := fault{hits: append(hits, v.name)}
	far := strings.Join(ends, " and ")
	every := func(do func(*proc.Proxy)) func() {
		return func() {
			for _, w := range wires {
				do(w.Proxy)
			}
		}
	}
	switch {
	case act == "cut" && r.IntN(2) == 0:
		f.says, f.begin, f.end = "cut "+v.name+" from "+far, every((*proc.Proxy).Cut), every((*proc.Proxy).Mend)
	case act == "cut":
		f.says, f.begin, f.end = "cut without a word "+v.name+" from "+far, every((*proc.Proxy).Freeze), every((*proc.Proxy).Mend)
	case r.IntN(3) == 0:
		rate := pick(r, []int{2, 8, 32})
		f.says = fmt.Sprintf("let %d kB/s pass between %s and %s", rate, v.name, far)
		f.begin, f.end = every(func(p *proc.Proxy) { p.Rate(rate << 10) }), every(func(p *proc.Proxy) { p.Rate(0) })
	default:
		delay := pick(r, []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond})
		f.says = fmt.Sprintf("delay by %v all between %s and %s", delay, v.name, far)
		f.begin, f.end = every(func(p *proc.Proxy) { p.Delay(delay) }), every(func(p *proc.Proxy) { p.Delay(0) })
	}
	return f
}

// kill is SIGKILL, and a new process in the same place at the end.
func (v victim) kill() fault {
	return fault{
		says: "kill " + v.name, hits: []string{v.name}, kills: v.edge,
		begin: func() {
			v.doom()
			v.process.Kill()
			if v.edge != nil {
				v.edge.quiet(func() { v.edge.away.Store(true); v.edge.died() })
				v.edge.http.CloseIdleConnections()
			}
		},
		end: func() {
			v.process.Restart()
			v.spare()
		},
	}
}

// stop is SIGSTOP, and SIGCONT at the end.
func (v victim) stop() fault {
	return fault{
		says: "stop " + v.name, hits: []string{v.name},
		begin: func() {
			v.doom()
			v.process.Pause()
			if v.edge != nil {
				v.edge.away.Store(true)
			}
		},
		end: func() {
			v.process.Continue()
			v.spare()
		},
	}
}

// doom expects no answers any more: calls go on until the edge is gone.
func (v victim) doom() {
	if v.edge != nil {
		v.edge.doomed.Store(true)
	}
}

// spare expects them again, when those that are under way have ended.
func (v victim) spare() {
	if v.edge != nil {
		v.edge.quiet(func() { v.edge.away.Store(false); v.edge.doomed.Store(false) })
	}
}

// paper is a cluster without processes, to draw plans from.
func paper() *cluster {
	c := &cluster{}
	for _, name := range []string{"eu", "us", "ap"} {
		r := &region{name: name, hub: &proc.NATSSite{Gateway: &proc.Proxy{}, Leafs: []*proc.Proxy{{}}}}
		for i := range 2 {
			r.aggregators = append(r.aggregators, &aggregator{name: fmt.Sprintf("%s/agg-%d", name, i+1), nats: &proc.Proxy{}, redis: &proc.Proxy{}})
			r.edges = append(r.edges, &edge{name: fmt.Sprintf("%s/pop-%d", name, i+1), nats: &proc.Proxy{}})
		}
		c.regions = append(c.regions, r)
	}
	return c
}

// TestPlans: one seed gives one plan, whatever else is drawn; each single does
// what its name says; pairs begin while the first lasts and share no victim;
// and all that there is to hit is hit some time.
func TestPlans(t *testing.T) {
	c, seen, all := paper(), map[string]bool{}, map[string]bool{}
	for i := range 3 * len(scenarios()) {
		s, seed := scenarios()[i/3], uint64(i%3)
		plan := s.plan(c, dice(seed, s.name), 2*time.Second)
		again := s.plan(c, dice(seed, s.name), 2*time.Second)
		if a, b := fmt.Sprint(plan), fmt.Sprint(again); a != b {
			t.Errorf("%s: %s, and drawn again %s", s.name, a, b)
		}
		if s.script != nil {
			continue
		}
		all[s.name] = true
		if len(plan) != len(s.faults) {
			t.Fatalf("%s has %d faults: %v", s.name, len(plan), plan)
		}
		for i, f := range plan {
			if f.lasts < 2*time.Second || f.lasts > 4*time.Second || f.begin == nil || f.end == nil {
				t.Errorf("%s: %v", s.name, f)
			}
			if i > 0 && (f.after >= plan[0].lasts || overlap(f.hits, plan[0].hits)) {
				t.Errorf("%s is no pair: %v", s.name, plan)
			}
			if f.kills != nil != (strings.HasPrefix(f.says, "kill ") && strings.Contains(f.says, "/pop-")) {
				t.Errorf("%s: does an edge die? %v", s.name, f)
			}
			for _, hit := range f.hits {
				seen[hit] = true
			}
		}
	}
	if n := len(acts) * len(kinds); len(all) != n+n*(n+1)/2 {
		t.Errorf("%d scenarios, want each of %d faults alone and with each", len(all), n)
	}
	if want := 3*(2+2+2+1) + 3*(2*2+2+1+1); len(seen) != want {
		t.Errorf("%d processes and wires were hit, want all %d", len(seen), want)
	}
}
