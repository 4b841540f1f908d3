package trial

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Fault is a kind of fault, by the name that it goes by on the command line.
type Fault string

// The faults of packets are those of a spec sheet, the others what happens to
// machines.
const (
	Loss         Fault = "loss"          // frames are lost
	Duplication  Fault = "duplication"   // frames arrive twice
	Jitter       Fault = "jitter"        // frames are late, and overtake each other
	Clog         Fault = "clog"          // frames queue up before a narrow link
	Partition    Fault = "partition"     // a region is cut off from the others
	Uplink       Fault = "uplink"        // an edge is cut off from its region
	OneWay       Fault = "one-way"       // frames get through in one direction only
	Freeze       Fault = "freeze"        // frames wait, and arrive all at once
	CrashEdge    Fault = "crash-edge"    // an edge dies and starts with nothing
	CrashServer  Fault = "crash-server"  // an aggregator dies, and starts with nothing after a while
	StoreDown    Fault = "store-down"    // a store refuses
	StoreDeaf    Fault = "store-deaf"    // a store writes, and its answers are lost
	StoreWipe    Fault = "store-wipe"    // a store forgets everything
	StoreFailTo  Fault = "store-fail"    // a replica takes a store's place, and lacks the last writes
	Skew         Fault = "skew"          // clocks are off
	Drift        Fault = "drift"         // clocks run off
	ClockStep    Fault = "clock-step"    // a clock is set
	Evict        Fault = "evict"         // keys compete for places
	EvictServer  Fault = "evict-server"  // keys compete for places in aggregators
	Forget       Fault = "forget"        // the view of what was evicted loses half of it
	RuleChange   Fault = "rules"         // edges load rules with other limits
	Flap         Fault = "flap"          // an aggregator comes and goes
	KnowsNothing Fault = "knows-nothing" // a whole region starts anew: aggregators and store
	Leave        Fault = "leave"         // an aggregator is stopped in good order, and comes back after a while
	Flood        Fault = "flood"         // many keys come once
	Hostile      Fault = "hostile"       // a PoP sends frames that are inflated, of the future, foreign, cut short
	OldPeers     Fault = "old-peers"     // some edges speak as the first build of the version did
	Split        Fault = "split"         // aggregators of a region do not hear each other, or one only: both own a lane
	Depart       Fault = "depart"        // edges leave for good, and others join later
	NewRegion    Fault = "new-region"    // a region joins later: its aggregators and edges
	Slow         Fault = "slow"          // frames of one direction, or both, take longer than those of other links
	GiveBack     Fault = "give-back"     // callers give back at other edges than those that charged
	ServerClock  Fault = "server-clock"  // clocks of aggregators are off, run off, and are set
	Generation   Fault = "generation"    // edges load rules by which counts mean something else, and go back
)

// Faults are all kinds.
var Faults = []Fault{
	Loss, Duplication, Jitter, Clog, Partition, Uplink, OneWay, Freeze, CrashEdge, CrashServer, StoreDown, StoreDeaf,
	StoreWipe, StoreFailTo, Skew, Drift, ClockStep, Evict, RuleChange, Flap, KnowsNothing, Forget, Leave, Split, EvictServer,
	Flood, Hostile, OldPeers, Generation, Depart, NewRegion, Slow, GiveBack, ServerClock,
}

// Options say which trial is run.
type Options struct {
	Seed    uint64
	Without []Fault // kinds that are left out: all else stays as it was
	Only    []Fault // if any: all others are left out
	Tale    *Tale   // nil: none is told
}

// String is the options as the command takes them.
func (o Options) String() string {
	list := func(flag string, faults []Fault) string {
		if len(faults) == 0 {
			return ""
		}
		names := make([]string, len(faults))
		for i, f := range faults {
			names[i] = string(f)
		}
		return " -" + flag + " " + strings.Join(names, ",")
	}
	return fmt.Sprintf("-seed %d%s%s", o.Seed, list("without", o.Without), list("only", o.Only))
}

// plan is what a seed stands for.
type plan struct {
	Options
	regions, edges, servers, lanes int
	targets                        regional.Targets
	audit                          bool // regions compare what they believe
	rates                          []limit.RateSpec
	anew                           []limit.RateSpec // of the other generation
	number                         uint32           // that its rule gives it; 0: none
	users                          int
	soft                           bool
	adaptive                       bool            // edges decide by shares of what is left
	strict                         bool            // they decide by rights
	partition                      limit.Partition // what limits do at an edge that is cut off; 0: what is usual
	expects                        bool            // edges are told beforehand how many there are
	surge                          float64         // so much of which is expected that shares decide always; 0: the default
	faulty                         time.Duration   // how long faults go on
	has                            map[Fault]bool
	penalty                        time.Duration // of who was denied; 0: none
	old                            []string      // edges that speak as the first build did
}

// quiet says that nothing ails the trial.
func (p *plan) quiet() bool {
	for _, f := range Faults {
		if p.has[f] {
			return false
		}
	}
	return p.penalty == 0
}

// crowds says that keys compete for places in aggregators.
func (p *plan) crowds() bool { return p.has[EvictServer] || p.has[Flood] }

// isOld says that an edge speaks as the first build did.
func (p *plan) isOld(edge string) bool { return slices.Contains(p.old, edge) }

// stream is a source of chance for one purpose.
func (p *plan) stream(purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()))
}

// windows are long enough that nothing which counts has left them when all have
// to agree.
const window = time.Minute

func newPlan(o Options) *plan {
	p := &plan{Options: o, has: map[Fault]bool{}}
	rnd := p.stream("topology")
	p.regions, p.edges, p.servers, p.lanes = 1+rnd.IntN(3), 1+rnd.IntN(3), 1+rnd.IntN(3), 1+rnd.IntN(4)
	p.users, p.soft, p.faulty = 3+rnd.IntN(4), rnd.IntN(3) == 0, time.Duration(5+rnd.IntN(8))*time.Second
	p.targets = []regional.Targets{regional.TargetsMesh, regional.TargetsHomes}[p.stream("targets").IntN(2)]
	if rnd := p.stream("far"); rnd.IntN(8) == 0 { // a key has regions that are no homes of it
		p.regions, p.edges, p.servers, p.targets = 4+rnd.IntN(3), min(p.edges, 2), min(p.servers, 2), regional.TargetsHomes
	}
	p.audit = p.stream("audit").IntN(3) == 0
	p.adaptive = p.stream("consistency").IntN(3) == 0
	if p.adaptive && p.stream("surge").IntN(2) == 0 {
		p.surge = 1000
	}
	algorithms := slices.Clone(algorithms)
	rnd.Shuffle(len(algorithms), func(i, j int) { algorithms[i], algorithms[j] = algorithms[j], algorithms[i] })
	for i := range 1 + rnd.IntN(2) {
		p.rates = append(p.rates, rateOf(fmt.Sprint("r", i), algorithms[i], []uint64{20, 200, 100_000}[rnd.IntN(3)]))
	}
	faults := p.stream("faults")
	for _, f := range Faults {
		has := faults.IntN(4) == 0 // drawn whether it is left out or not
		if len(o.Only) > 0 {
			has = has && slices.Contains(o.Only, f)
		}
		p.has[f] = has && !slices.Contains(o.Without, f)
	}
	if rnd := p.stream("penalty"); rnd.IntN(5) == 0 {
		p.penalty = []time.Duration{2 * time.Second, lasting}[rnd.IntN(2)]
	}
	p.drawStrict()
	p.drawPartition()
	p.generation(p.stream("generation"))
	if p.has[EvictServer] {
		p.users += 2 * serverKeys
	}
	if p.has[Evict] {
		p.users = places + 8 // of one shard
	}
	return p
}

// rules are the plan's, of a version.
func (p *plan) rules(v version) []limit.Document {
	rates := slices.Clone(p.ratesOf(v))
	for i := range rates {
		rates[i].Limit *= 1 + v.more
		rates[i].Surge = p.surge
	}
	rule := limit.RuleSpec{Name: "api", Key: []string{"user"}, Rates: rates, Penalty: limit.Penalty{For: p.penalty}}
	if p.soft {
		rule.Margin.SoftPercent = 10
	}
	switch rule.Consistency = limit.Loose.String(); {
	case p.adaptive:
		rule.Consistency = limit.Adaptive.String()
	case p.strict:
		rule.Consistency = limit.Strict.String()
	}
	if p.partition != 0 {
		rule.OnPartition = p.partition.String()
	}
	if v.anew {
		rule.Generation = p.number
	}
	return []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{rule}}}
}

// String says what the trial is made of, in words.
func (p *plan) String() string {
	var faults []string
	rates := ratesInWords(p.rates)
	for _, f := range Faults {
		if p.has[f] {
			faults = append(faults, string(f))
		}
	}
	if p.has[Generation] {
		rates += fmt.Sprintf(", or anew %s", ratesInWords(p.anew))
	}
	if p.adaptive {
		rates += ", adaptive"
	}
	if p.strict {
		rates += ", strict"
	}
	if p.surge > 0 {
		rates += " always"
	}
	if p.partition != 0 {
		rates += fmt.Sprintf(", %s while cut off", p.partition)
	}
	if p.expects {
		rates += ", told how many there are"
	}
	if p.penalty > 0 {
		rates += fmt.Sprintf(", a penalty of %v", p.penalty)
	}
	return fmt.Sprintf("%d regions (%s) of %d edges and %d aggregators, %d lanes, %d keys; %s; %v of %s",
		p.regions, p.targets, p.edges, p.servers, p.lanes, p.users, rates, p.faulty, strings.Join(faults, ", "))
}

// leastKeys is the smallest ledger: so many places in each of its 256 shards.
const (
	leastKeys = 8192
	places    = leastKeys / 256
)

// serverKeys are an aggregator's places in a lane, where keys compete for them.
const serverKeys = 4

// mostFactor is by how much rules that are loaded later may have limits larger.
const mostFactor = 3

// serverBytes is what an aggregator's keys may take where many come: those of the
// users find room.
func (p *plan) serverBytes() int64 { return int64(p.lanes) * 400 << 10 }

// config is the world of the plan.
func (p *plan) config(start time.Time) world.Config {
	c := world.Config{Start: start, Seed: p.Seed*2 + 1, Lanes: p.lanes, Aggregators: p.servers, Targets: p.targets, Rules: p.rules(version{}), Audit: p.audit, Expects: p.expects, Lease: strictLease}
	for r := range p.regions {
		region := world.Region{Name: []string{"eu", "us", "ap", "sa", "af", "me"}[r]}
		for e := range p.edges {
			region.Edges = append(region.Edges, fmt.Sprintf("%s-%d", region.Name, e+1))
		}
		c.Regions = append(c.Regions, region)
	}
	if p.has[Evict] {
		c.MaxKeys = leastKeys
	}
	if p.has[Forget] {
		c.Forgets = 0.5
	}
	if p.has[EvictServer] {
		c.ServerKeys = serverKeys * p.lanes
	}
	if p.has[Flood] {
		c.ServerBytes = p.serverBytes()
	}
	if p.has[OldPeers] {
		rnd := p.stream("old")
		for _, r := range c.Regions {
			for _, edge := range r.Edges {
				if rnd.IntN(3) == 0 {
					p.old = append(p.old, edge)
				}
			}
		}
		c.Old = p.old
	}
	return c
}
