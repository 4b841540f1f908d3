package sim

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
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
	busy    time.Time // until when something may be under way
	events  events
	serial  uint64
	edges   map[string]*site
	regions map[string]*hub
	names   []string // of edges, in order
}

// site is an edge, hub a region's aggregator.
type site struct {
	node    *edge.Node
	region  string
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

// timeout is how long a frame waits for its answer.
const timeout = 250 * time.Millisecond

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
	w := &World{cfg: cfg, now: cfg.Start, busy: cfg.Start, edges: map[string]*site{}, regions: map[string]*hub{}}
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
			Incarnation: uint64(cfg.Start.UnixMilli()), Interval: cfg.Interval, Urgent: cfg.Urgent,
		}, memstore.New(memstore.Config{Now: w.Now, Seed: uint64(len(w.regions)) + 1}))
		if err != nil {
			return nil, err
		}
		h := &hub{aggregator: agg}
		w.regions[r.Name] = h
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
			w.at(cfg.Start, func() { w.runEdge(s) })
		}
		w.at(cfg.Start, func() { w.runHub(h) })
	}
	return w, nil
}

func (w *World) newSite(region, name string) (*site, error) {
	node, err := edge.New(edge.Config{
		Region: region, Pop: "pop", Name: name, Secret: secret, Lanes: 1,
		Incarnation: uint64(w.cfg.Start.UnixMilli()), Interval: w.cfg.Interval, Urgent: w.cfg.Urgent, Timeout: timeout,
	})
	if err != nil {
		return nil, err
	}
	set, problems := limit.Compile(w.cfg.Rules...)
	if set == nil {
		return nil, fmt.Errorf("rules: %v", problems)
	}
	node.SetRules(set)
	return &site{node: node, region: region}, nil
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
	const settle = 15 * time.Second // past a refresh and its echoes
	w.busy = w.now.Add(settle)
}

// Cut takes a region off the others, or joins it to them again. Frames under
// way when the cut falls are lost.
func (w *World) Cut(region string, cut bool) { w.regions[region].cut = cut }

// Advance moves virtual time forward to t and does all that falls due.
func (w *World) Advance(t time.Time) {
	for len(w.events) > 0 && !w.events[0].at.After(t) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	if t.After(w.now) {
		w.now = t
	}
}

// step is when an idle part looks again.
func (w *World) step() time.Time {
	if w.now.Before(w.busy) {
		return w.now.Add(w.cfg.Urgent)
	}
	return w.now.Add(w.cfg.Interval * 5)
}

func (w *World) runEdge(s *site) {
	if w.now.Sub(s.flushed) >= w.cfg.Interval || s.node.Urgent() {
		s.flushed = w.now
		h := w.regions[s.region]
		for _, f := range s.node.Flush(w.now) {
			w.after(w.cfg.EdgeDelay, func() {
				reply := h.aggregator.Handle(context.Background(), w.now, f.Subject, f.Payload)
				w.after(w.cfg.EdgeDelay, func() {
					if err := s.node.Receive(w.now, f.Lane, reply); err != nil {
						s.node.Lost(w.now, f.Lane, f.Seq)
					}
				})
			})
		}
	}
	if w.now.Sub(s.ticked) >= 100*time.Millisecond {
		s.ticked = w.now
		s.node.Tick(w.now)
	}
	w.at(w.step(), func() { w.runEdge(s) })
}

func (w *World) runHub(h *hub) {
	if w.now.Sub(h.sent) >= w.cfg.Interval || h.aggregator.Urgent() {
		h.sent = w.now
		for _, o := range h.aggregator.Exports(w.now) {
			w.export(h, o)
		}
		for _, p := range h.aggregator.Pushes(w.now) {
			for _, s := range h.edges {
				w.after(w.cfg.EdgeDelay, func() { _ = s.node.ReceiveHot(w.now, p.Payload) }) // a refused push is counted by the node
			}
		}
		_ = h.aggregator.Sync(context.Background(), w.now) // the store in memory does not fail
	}
	if w.now.Sub(h.ticked) >= time.Second {
		h.ticked = w.now
		h.aggregator.Tick(w.now)
	}
	w.at(w.step(), func() { w.runHub(h) })
}

// export carries one frame between regions, or loses it in a cut.
func (w *World) export(from *hub, o regional.Outgoing) {
	to := w.regions[o.Peer]
	lost := func() { from.aggregator.Lost(w.now, o) }
	if from.cut || to.cut {
		w.after(timeout, lost)
		return
	}
	w.after(w.cfg.RegionDelay, func() {
		if from.cut || to.cut {
			w.after(timeout-w.cfg.RegionDelay, lost)
			return
		}
		reply := to.aggregator.Handle(context.Background(), w.now, o.Subject, o.Payload)
		w.after(w.cfg.RegionDelay, func() {
			if from.cut || to.cut || from.aggregator.Receive(w.now, o, reply) != nil {
				lost()
			}
		})
	})
}

func (w *World) after(d time.Duration, do func()) { w.at(w.now.Add(max(d, 0)), do) }

func (w *World) at(t time.Time, do func()) {
	w.serial++
	heap.Push(&w.events, event{at: t, serial: w.serial, do: do})
}

// event is something that falls due; of two at one instant the one planned
// first comes first.
type event struct {
	at     time.Time
	serial uint64
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
