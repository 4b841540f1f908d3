package world

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
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
	// Lanes is how many there are (1), Aggregators how many serve a region (1).
	// Several share the lanes; a single one does not wait for others.
	Lanes, Aggregators int
	// Targets says whom regions tell what they count, as regional.Config.
	Targets regional.Targets
	// Budget is how many bytes a second an edge may send and be told; 0: any number.
	Budget int64
	// MaxKeys bounds each edge's live keys; 0: its own default.
	MaxKeys int
	// ServerKeys and ServerBytes bound each aggregator's; 0: its own default.
	ServerKeys  int
	ServerBytes int64
	// Forgets is the share of what an edge's view is given that it does not keep.
	Forgets float64
	// Seed decides what is left to chance: who of several aggregators answers,
	// what happens to frames on their way. Without one nothing is, and no part
	// ever fails: then long silences are passed over.
	Seed uint64
	// Processing is how long a region's aggregators take for a frame, one after the
	// other (0).
	Processing time.Duration
	// Uncorrected keeps all clocks as they are: nobody learns from the stamps of
	// frames how far another is off.
	Uncorrected bool
	// Unreplicated stores cannot fail over: none remembers what was written last.
	Unreplicated bool
	// Old are edges that speak as the first build of their version did.
	Old []string
	// Audit has aggregators compare what they believe with other regions and their
	// store.
	Audit bool
	// Expects is whether edges are told beforehand how many regions there are, and edges
	// of each: as many as of the first.
	Expects bool
	// Lease is that of rights in strict limits; 0: the default.
	Lease time.Duration
	// Watch sees what the parts tell each other.
	Watch
}

// Watch is called with what the parts tell each other, as it happens. What is nil
// is not called.
type Watch struct {
	// OnUp sees each frame that an edge sends, OnExport each of a region, OnDown
	// each answer, with the frame, and OnPush each push.
	OnUp     func(sender *Site, subject string, payload []byte)
	OnExport func(sender *Server, frame regional.Outgoing)
	OnDown   func(server *Server, up, down []byte)
	OnPush   func(sender *Server, push regional.Push)
	// OnHeard sees what an edge has taken in: the answer to a frame, or, without
	// one, a push or a part of a snapshot.
	OnHeard func(site *Site, up, heard []byte)
	// OnGrants sees rights that an edge has taken in.
	OnGrants func(site *Site, payload []byte)
}

// World is a cluster on virtual time. It serves one goroutine.
type World struct {
	cfg      Config
	now      time.Time
	tick     time.Time // when all parts look next whether something is to be done
	busy     time.Time // until when something may be under way
	events   events    // frames under way
	serial   uint64
	edges    map[string]*Site
	regions  map[string]*hub
	order    []*hub   // the regions, in order of the configuration
	names    []string // of edges, in order
	leaving  []departure
	untold   time.Time // see Untold
	cuts     int       // regions cut off
	paths    map[ends]*path
	toRegion Link // between an edge and its region
	between  Link // between two regions
	within   Link // between the aggregators of a region
	trace    trace
	messages uint64 // frames, answers and pushes sent, lost ones too
	bytes    uint64 // of them
	atEdges  uint64 // of these, between edges and their regions
	asked    uint64 // calls of stores
	fates    Fates
	calm     bool // see Calm
}

// Site is an edge and where it runs.
type Site struct {
	Name, Region string
	node         *edge.Node // nil while it has departed
	view         *view      // of its latest life
	clock        clock
	old          bool
	place        uint64 // among all edges
	lives        int    // how often it was started
	flushed      time.Time
	ticked       time.Time
}

// hub is a region: its aggregators over one store.
type hub struct {
	name    string
	servers []*Server
	store   *Store
	rights  *RightsLog
	sites   []*Site
	cut     bool
	free    time.Time  // when it is through with the frames that came so far
	rnd     *rand.Rand // whom a frame goes to
}

// Server is an aggregator and where it runs.
type Server struct {
	Name, Region string
	aggregator   *regional.Aggregator // nil while it is down
	clock        clock
	lives        int
	sent, ticked time.Time
	audited      time.Time
	membership
}

// secret is the cluster secret of every World: its counts never leave it.
var secret = []byte("a secret of the simulated cluster")

// How long a frame to the region, and one between regions, waits for its
// answer: the daemons' defaults. Longer delays are refused, for nothing would
// ever arrive in time.
const (
	edgeTimeout   = deltasync.EdgeTimeout
	regionTimeout = deltasync.RegionTimeout
)

// New builds a World with all its parts idle at Start.
func New(cfg Config) (*World, error) {
	cfg.EdgeDelay = cmp.Or(cfg.EdgeDelay, 5*time.Millisecond)
	cfg.RegionDelay = cmp.Or(cfg.RegionDelay, 80*time.Millisecond)
	cfg.Interval = cmp.Or(cfg.Interval, 100*time.Millisecond)
	cfg.Urgent = cmp.Or(cfg.Urgent, 20*time.Millisecond)
	cfg.Lanes, cfg.Aggregators = cmp.Or(cfg.Lanes, 1), cmp.Or(cfg.Aggregators, 1)
	if 2*cfg.EdgeDelay >= edgeTimeout || 2*cfg.RegionDelay >= regionTimeout {
		return nil, fmt.Errorf("delays of %v to the region and %v between regions: there and back they must stay under %v and %v",
			cfg.EdgeDelay, cfg.RegionDelay, edgeTimeout, regionTimeout)
	}
	w := &World{
		cfg: cfg, now: cfg.Start, tick: cfg.Start, busy: cfg.Start, edges: map[string]*Site{}, regions: map[string]*hub{}, paths: map[ends]*path{},
		toRegion: Link{Delay: cfg.EdgeDelay}, between: Link{Delay: cfg.RegionDelay}, within: Link{Delay: time.Millisecond},
	}
	for _, r := range cfg.Regions {
		if err := w.found(r); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// found adds a region with its edges.
func (w *World) found(r Region) error {
	if w.regions[r.Name] != nil {
		return fmt.Errorf("region %q stands there twice", r.Name)
	}
	h := &hub{name: r.Name, store: newStore(w, uint64(len(w.regions))+1+w.cfg.Seed), rnd: w.stream("queue", r.Name), rights: newRightsLog(w)}
	w.regions[r.Name] = h
	w.order = append(w.order, h)
	for i := range w.cfg.Aggregators {
		v := &Server{Name: fmt.Sprintf("%s-aggregator-%d", r.Name, i+1), Region: r.Name}
		h.servers = append(h.servers, v)
		if err := w.startServer(h, v); err != nil {
			return err
		}
	}
	for _, name := range r.Edges {
		if w.edges[name] != nil {
			return fmt.Errorf("edge %q stands there twice", name)
		}
		s := &Site{Name: name, Region: r.Name, place: uint64(len(w.edges)), old: slices.Contains(w.cfg.Old, name)}
		if err := w.startSite(s); err != nil {
			return fmt.Errorf("edge %q: %w", name, err)
		}
		h.sites = append(h.sites, s)
		w.edges[name] = s
		w.names = append(w.names, name)
	}
	return nil
}

// startServer starts an aggregator, again if it ran before: it knows nothing.
func (w *World) startServer(h *hub, v *Server) (err error) {
	var peers []string
	for _, p := range w.cfg.Regions {
		if p.Name != h.name {
			peers = append(peers, p.Name)
		}
	}
	v.lives++
	set, err := compile(w.cfg.Rules)
	if err != nil {
		return err
	}
	v.aggregator, err = regional.New(regional.Config{
		Region: h.name, Name: v.Name, Peers: peers, Lanes: w.cfg.Lanes, MaxKeys: w.cfg.ServerKeys, MaxBytes: w.cfg.ServerBytes, Targets: w.cfg.Targets, Rules: set,
		Incarnation: uint64(w.cfg.Start.UnixMilli()) + uint64(v.lives), Interval: w.cfg.Interval, Urgent: w.cfg.Urgent, Timeout: regionTimeout,
		Now: w.Now, StoreTimeout: time.Minute, // of the machine's time: a busy one must not change what happens
		Rights: h.rights, RightsLease: w.cfg.Lease, Boot: w.boot, Token: w.stream("token", v.Name, fmt.Sprint(v.lives)).Uint64,
	}, h.store)
	if err == nil {
		w.joinServer(h, v)
	}
	return err
}

// startSite starts an edge, again if it ran before: it knows nothing.
func (w *World) startSite(s *Site) error {
	s.lives++
	s.view = newView(w.Now, w.stream("view", s.Name, fmt.Sprint(s.lives)), w.cfg.Forgets)
	cfg := edge.Config{
		Region: s.Region, Pop: "pop", Name: s.Name, Secret: secret, Lanes: w.cfg.Lanes, MaxKeys: w.cfg.MaxKeys,
		Incarnation: uint64(w.cfg.Start.UnixMilli()) + uint64(s.lives), Interval: w.cfg.Interval, Urgent: w.cfg.Urgent, Timeout: edgeTimeout, Budget: w.cfg.Budget,
		View: s.view, Rand: rand.New(rand.NewPCG(1+w.cfg.Seed, s.place+uint64(s.lives-1)<<32)).Float64, // a World serves one goroutine, and replays
		Boot: w.boot,
	}
	if w.cfg.Expects {
		cfg.Regions, cfg.Edges = len(w.cfg.Regions), len(w.cfg.Regions[0].Edges)
	}
	node, err := edge.New(cfg)
	if err != nil {
		return err
	}
	s.node = node
	return w.load(s, w.cfg.Rules)
}

// boot is a clock that nobody sets: the same for all machines, as only differences
// count.
func (w *World) boot() time.Duration { return w.now.Sub(w.cfg.Start) + time.Hour }

func (w *World) load(s *Site, rules []limit.Document) error {
	set, err := compile(rules)
	if err == nil {
		err = s.node.SetRules(set)
	}
	return err
}

func compile(rules []limit.Document) (*limit.Set, error) {
	set, problems := limit.Options{Conditions: when.Compile}.Compile(rules...)
	if set == nil {
		return nil, fmt.Errorf("rules: %v", problems)
	}
	return set, nil
}

// stream is a source of chance for one purpose: what another purpose draws
// changes nothing for it, so that a fault can be taken out of a run and the
// rest stays.
func (w *World) stream(purpose ...string) *rand.Rand {
	h := fnv.New64a()
	for _, p := range purpose {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(w.cfg.Seed, h.Sum64()))
}

// Now is the virtual time.
func (w *World) Now() time.Time { return w.now }

// Edges are the names of all edges that are there, in order of the configuration.
func (w *World) Edges() []string { return w.names }

// Node is the edge of the given name, nil where there is none.
func (w *World) Node(name string) *edge.Node {
	if s := w.edges[name]; s != nil {
		return s.node
	}
	return nil
}

// Sent is how many frames, answers and pushes were sent, and their bytes, NATS'
// own not counted.
func (w *World) Sent() (messages, bytes uint64) { return w.messages, w.bytes }

// SentAtEdges is how many bytes of them went between edges and their regions.
func (w *World) SentAtEdges() uint64 { return w.atEdges }

// Asked is how many calls of stores there were.
func (w *World) Asked() uint64 { return w.asked }

// Touch says that something was done at an edge: until things have settled
// again, time moves in small steps.
func (w *World) Touch() {
	w.busy = w.now.Add(settle)
	if next := w.grid(w.now); next.Before(w.tick) {
		w.tick = next
	}
}

// Calm says that nothing ails any part any more, and that it does not matter how
// soon each hears of the others: from now on they look as seldom as they may and
// still find each other alive.
func (w *World) Calm() { w.calm = true }

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
	for _, other := range w.order {
		if other != h {
			apart := h.cut || other.cut
			w.path(h.name, other.name, &w.between).cut = apart
			w.path(other.name, h.name, &w.between).cut = apart
		}
	}
	w.Touch()
}
