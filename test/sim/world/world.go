package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
)

// Region is a region of a World with its edges.
type Region struct {
	Name  string
	Edges []string
}

// Config describes a World.
type Config struct {
	Regions []Region
	// Rules are what every edge loads.
	Rules []limit.Document
	// Start is the first instant of virtual time.
	Start time.Time
	// EdgeDelay is the way between an edge and its region (5 ms), RegionDelay
	// that between two regions (80 ms); each one way.
	EdgeDelay, RegionDelay time.Duration
	// Interval and Urgent are those of edges and aggregators (100 ms, 20 ms).
	Interval, Urgent time.Duration
}

// World is a cluster on virtual time. It serves one goroutine.
type World struct {
	cfg     Config
	now     time.Time
	tick    time.Time // when all parts look next whether something is to be done
	busy    time.Time // until when something may be under way
	events  events    // frames under way
	serial  uint64
	edges   map[string]*site
	regions map[string]*hub
	order   []*hub   // the regions, in order of the configuration
	names   []string // of edges, in order
	cuts    int      // regions cut off
}

// site is an edge, hub a region's aggregator.
type site struct {
	node    *edge.Node
	flushed time.Time
	ticked  time.Time
}

type hub struct {
	aggregator *regional.Aggregator
	edges      []*site
	sent       time.Time
	ticked     time.Time
	cut        bool
}

// secret is the cluster secret of every World: its counts never leave it.
var secret = []byte("a secret of the simulated cluster")

// How long a frame to the region, and one between regions, waits for its
// answer: the daemons' defaults. Longer delays are refused, for nothing would
// ever arrive in time.
const (
	edgeTimeout   = 250 * time.Millisecond
	regionTimeout = time.Second
)

// New builds a World with all its parts idle at Start.
func New(cfg Config) (*World, error) {
	defaults := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	defaults(&cfg.EdgeDelay, 5*time.Millisecond)
	defaults(&cfg.RegionDelay, 80*time.Millisecond)
	defaults(&cfg.Interval, 100*time.Millisecond)
	defaults(&cfg.Urgent, 20*time.Millisecond)
	if 2*cfg.EdgeDelay >= edgeTimeout || 2*cfg.RegionDelay >= regionTimeout {
		return nil, fmt.Errorf("delays of %v to the region and %v between regions: there and back they must stay under %v and %v",
			cfg.EdgeDelay, cfg.RegionDelay, edgeTimeout, regionTimeout)
	}
	w := &World{cfg: cfg, now: cfg.Start, tick: cfg.Start, busy: cfg.Start, edges: map[string]*site{}, regions: map[string]*hub{}}
	for _, r := range cfg.Regions {
		if w.regions[r.Name] != nil {
			return nil, fmt.Errorf("region %q stands there twice", r.Name)
		}
		var peers []string
		for _, p := range cfg.Regions {
			if p.Name != r.Name {
				peers = append(peers, p.Name)
			}
		}
		agg, err := regional.New(regional.Config{
			Region: r.Name, Name: "aggregator", Peers: peers, Lanes: 1,
			Incarnation: uint64(cfg.Start.UnixMilli()), Interval: cfg.Interval, Urgent: cfg.Urgent, Timeout: regionTimeout,
		}, memstore.New(memstore.Config{Now: w.Now, Seed: uint64(len(w.regions)) + 1}))
		if err != nil {
			return nil, err
		}
		h := &hub{aggregator: agg}
		w.regions[r.Name] = h
		w.order = append(w.order, h)
		for _, name := range r.Edges {
			if w.edges[name] != nil {
				return nil, fmt.Errorf("edge %q stands there twice", name)
			}
			s, err := w.newSite(r.Name, name)
			if err != nil {
				return nil, fmt.Errorf("edge %q: %w", name, err)
			}
			h.edges = append(h.edges, s)
			w.edges[name] = s
			w.names = append(w.names, name)
		}
	}
	return w, nil
}

func (w *World) newSite(region, name string) (*site, error) {
	node, err := edge.New(edge.Config{
		Region: region, Pop: "pop", Name: name, Secret: secret, Lanes: 1,
		Incarnation: uint64(w.cfg.Start.UnixMilli()), Interval: w.cfg.Interval, Urgent: w.cfg.Urgent, Timeout: edgeTimeout, View: newView(w.Now),
		Rand: rand.New(rand.NewPCG(1, uint64(len(w.edges)))).Float64, // a World serves one goroutine, and replays
	})
	if err != nil {
		return nil, err
	}
	set, problems := limit.Options{Conditions: when.Compile}.Compile(w.cfg.Rules...)
	if set == nil {
		return nil, fmt.Errorf("rules: %v", problems)
	}
	node.SetRules(set)
	return &site{node: node}, nil
}

// Now is the virtual time.
func (w *World) Now() time.Time { return w.now }

// Edges are the names of all edges, in order of the configuration.
func (w *World) Edges() []string { return w.names }

// Node is the edge of the given name, nil where there is none.
func (w *World) Node(name string) *edge.Node {
	if s := w.edges[name]; s != nil {
		return s.node
	}
	return nil
}

// Touch says that something was done at an edge: until things have settled
// again, time moves in small steps.
func (w *World) Touch() {
	w.busy = w.now.Add(settle)
	if next := w.grid(w.now); next.Before(w.tick) {
		w.tick = next
	}
}

// Cut takes a region off the others, or joins it to them again. Frames under
// way when the cut falls are lost. A region that is not there stays so.
func (w *World) Cut(region string, cut bool) {
	h := w.regions[region]
	if h == nil || h.cut == cut {
		return
	}
	if h.cut = cut; cut {
		w.cuts++
	} else {
		w.cuts--
	}
	w.Touch()
}
