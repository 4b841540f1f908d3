// Package trial runs whole clusters through a random life, one for each seed,
// and holds them to the invariants of design.md §5: what no part may ever
// believe, and what all must agree on once the faults have stopped.
package trial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

var start = time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC) // in the middle of a fixed window

// settling is how long after the start all aggregators know each other.
const settling = 2 * time.Second

// Result is what became of a trial.
type Result struct {
	Options  Options
	Plan     string
	Trace    uint64 // hash over all frames, answers and decisions
	Events   uint64 // in the trace
	Requests int
	Denied   int
	Faults   int // that befell the world, links and clocks not counted
	Err      error
}

// trial is one life of a cluster, and the truth about it.
type trial struct {
	*plan
	w           *world.World
	regionNames []string
	edgesOf     map[string][]string // by regions, those that are not there too
	actions     []action
	counters    []*counter
	keys        map[deltasync.Key]*counter
	nodes       map[uint64]string // names of edges and regions, by their ids
	sent        map[sentBy]*crdt.Vector
	exported    map[exportedTo]*crdt.Vector
	owned       map[place][]stored // of regions
	receipts    []receipt
	belated     []*belated
	foreign     map[place]uint64 // what edges of a region gave back that each had not charged
	departed    map[string]bool  // edges, for good
	late        bool             // what was heard while faults went on may be forgotten
	died        bool             // an edge crashed: what it alone knew is gone
	stepped     time.Duration    // by how far an edge's clock was set, once more than half a second
	floods      int
	strangers   map[deltasync.Key]*crdt.Vector // what was counted of keys that came once; see Flood
	crossings   crossings
	lanesServed lanesServed
	heard       map[heardBy]*heard
	contacts    map[life]*contact
	people      []person
	places      int                      // in ledgers, where keys compete: of so many counters as there is room for in each shard
	loaded      map[string]version       // rules, by edges
	largest     uint64                   // version.more of any
	bans        map[string]map[life]bool // culprits, and who denied them
	woken       [][2]string              // edges, and users whose counters agree had them ask for
	sentences   sentences
	sets        map[string]uint64    // how often an aggregator's clock was set, at the least
	replaced    map[string]time.Time // when a region's store last lost what it had
	hostile     *hostile             // nil: there is none
	result      Result
	err         error // the first violation
}

// sentBy names what one life of a ledger's record told of one key.
type sentBy struct {
	key     deltasync.Key
	replica crdt.Replica
}

// counter is one rate of one user, and the truth about it.
type counter struct {
	user     string
	now      bool // the rules that edges start with have it
	anew     bool // those of the other generation
	rate     *limit.Rate
	key      deltasync.Key
	charged  uint64       // in all
	claimed  *crdt.Vector // what a hostile edge claims besides; nil: it does not name the key
	all      crdt.Vector
	byRegion map[string]*crdt.Vector
	byLife   map[life]*crdt.Vector
	stored   map[life]map[crdt.Replica]*crdt.Vector // acknowledged
	admitted []admitted                             // of a strict one
}

// life is one of an edge's.
type life struct {
	edge string
	nth  int
}

// receipt is what was charged and may be given back.
type receipt struct {
	edge    string
	lives   int
	user    int
	cost    uint64
	charges []limit.Charge
}

// Run runs the trial of a seed.
func Run(o Options) Result {
	t := &trial{
		plan: newPlan(o), sent: map[sentBy]*crdt.Vector{}, exported: map[exportedTo]*crdt.Vector{},
		owned: map[place][]stored{}, keys: map[deltasync.Key]*counter{}, nodes: map[uint64]string{},
		strangers: map[deltasync.Key]*crdt.Vector{}, heard: map[heardBy]*heard{}, contacts: map[life]*contact{}, loaded: map[string]version{}, departed: map[string]bool{}, foreign: map[place]uint64{}, sets: map[string]uint64{}, edgesOf: map[string][]string{}, bans: map[string]map[life]bool{},
		sentences: newSentences(), replaced: map[string]time.Time{},
		crossings: newCrossings(), lanesServed: newLanesServed(),
	}
	t.result.Options, t.result.Plan = o, t.String()
	if err := t.run(); t.err == nil {
		t.err = err
	}
	if t.w != nil {
		t.result.Trace, t.result.Events = t.w.Trace()
	}
	t.result.Err = t.err
	return t.result
}

// failf notes a violation, of an invariant of design.md §5 by its number or of
// another promise by its name; the first one counts.
func (t *trial) failf(invariant, format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("invariant %s, %v after the start: %s", invariant, t.w.Now().Sub(start), fmt.Sprintf(format, args...))
	}
}

func (t *trial) run() (err error) {
	cfg := t.config(start)
	for _, r := range cfg.Regions {
		t.regionNames = append(t.regionNames, r.Name)
		t.edgesOf[r.Name] = r.Edges
		t.nodes[deltasync.NodeID(r.Name, "", "")] = r.Name
		for _, edge := range r.Edges {
			t.nodes[deltasync.NodeID(r.Name, "pop", edge)] = edge
		}
	}
	cfg.Watch = world.Watch{OnUp: t.onUp, OnExport: t.onExport, OnDown: t.onDown, OnPush: t.onPush, OnHeard: t.onHeard}
	if t.w, err = world.New(cfg); err != nil {
		return err
	}
	if err := t.meet(); err != nil {
		return err
	}
	t.places = t.seats()
	if err := t.known(); err != nil {
		return err
	}
	t.befall()
	rnd := t.stream("workload")
	end, verified := start.Add(t.faulty), start
	if t.quiet() { // not before aggregators that started have found each other
		if err := t.advance(start.Add(settling)); err != nil {
			return err
		}
	}
	for t.err == nil && t.w.Now().Before(end) {
		next := t.w.Now().Add(time.Duration(rnd.ExpFloat64() * float64(12*time.Millisecond)))
		if err := t.advance(next); err != nil {
			return err
		}
		t.ask(rnd)
		if t.w.Now().Sub(verified) >= 300*time.Millisecond {
			verified = t.w.Now()
			t.verify()
		}
	}
	if err := t.advance(end); err != nil {
		return err
	}
	if err := t.recover(); err != nil {
		return err
	}
	return t.settle()
}

// advance lets time pass, and happen what is planned.
func (t *trial) advance(to time.Time) error {
	for len(t.actions) > 0 && !t.actions[0].at.After(to) {
		a := t.actions[0]
		t.actions = t.actions[1:]
		t.w.Advance(a.at)
		t.watchLanes()
		t.w.Note("fault", string(a.what))
		t.result.Faults++
		if err := a.do(); err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	t.w.Advance(to)
	t.watchLanes()
	return nil
}

// ask makes one request, or gives one back, and books what the edge did.
func (t *trial) ask(rnd *rand.Rand) {
	edges := t.w.Edges()
	edge, user := edges[rnd.IntN(len(edges))], rnd.IntN(t.users)
	cost, kind, pick := uint64(1+rnd.IntN(3)), rnd.IntN(20), rnd.IntN(1<<30)
	if kind == 0 && len(t.receipts) > 0 {
		i := pick % len(t.receipts)
		r := t.receipts[i]
		t.receipts = slices.Delete(t.receipts, i, i+1)
		switch {
		case t.has[GiveBack] && pick%3 > 0:
			t.giveBack(edge, r.user, r.cost)
		case t.w.Site(r.edge).Lives() == r.lives && !t.quiet(): // there each crossing is one
			t.refund(r)
		}
		return
	}
	t.request(edge, user, func(req *limit.Request) { req.Cost, req.Peek, req.Receipt = cost, kind == 1, kind < 6 })
}

// request makes a request, which set makes what it is, and books what the edge did.
func (t *trial) request(edge string, user int, set func(*limit.Request)) (allowed bool) {
	n, counters := t.w.Node(edge), t.at(edge, user)
	before := t.own(edge, counters)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", counters[0].user)
	set(req)
	cost := req.Cost
	d := t.check(edge, req)
	t.result.Requests++
	t.w.Note(fmt.Sprint(d.Allowed, d.Remaining), edge)
	want := uint64(0)
	switch {
	case !d.Allowed:
		t.result.Denied++
		if !d.Basis.CutOff && (!t.adaptive && !t.strict || !d.Basis.Short) {
			t.verifyDenial(edge, user, req)
		}
	case !req.Peek:
		want = cost
	}
	t.verifyBasis(edge, user, &d)
	for i, c := range counters {
		charges, _ := t.book(edge, c, before[i])
		want := want
		if c.rate.CountsRequests() {
			want = min(want, 1)
		}
		if want > 0 {
			t.admit(edge, c, want)
		}
		if charges != want { // invariant 16
			t.failf("16", "%s charged %d of %s to %s, the decision was %v at cost %d", edge, charges, c.user, c.rate.Policy, d.Allowed, cost)
		}
		t.verifyAt(edge, c)
	}
	if req.Receipt && len(req.Charges) > 0 {
		t.receipts = append(t.receipts, receipt{edge, t.w.Site(edge).Lives(), user, cost, slices.Clone(req.Charges)})
	}
	return d.Allowed
}

// refund gives charges back, one after the other: where keys compete, each may
// cost another its place.
func (t *trial) refund(r receipt) {
	for i := range r.charges {
		c := t.keys[deltasync.Key(r.charges[i].Counter)]
		before := t.own(r.edge, []*counter{c})
		t.alone(r.edge, func() { t.w.Node(r.edge).Refund(t.w.NowAt(r.edge), r.charges[i:i+1], 0) })
		charges, refunds := t.book(r.edge, c, before[0])
		if charges != 0 {
			t.failf("16", "%s charged %d of %s with a refund", r.edge, charges, c.user)
		}
		c.readmit(r.edge, refunds)
		t.lends(t.w.Site(r.edge), c, before[0])
		t.verifyAt(r.edge, c)
	}
}

// own are the counts of an edge itself.
func (t *trial) own(edge string, counters []*counter) [][]crdt.Cell {
	t.bookLate(t.w.Site(edge))
	out := make([][]crdt.Cell, len(counters))
	for i, c := range counters {
		out[i], _, _ = t.w.Node(edge).Cells(c.key)
	}
	return out
}

// book adds to the truth what an edge has counted since before.
func (t *trial) book(edge string, c *counter, before []crdt.Cell) (charges, refunds uint64) {
	return t.bookOf(t.w.Site(edge), c, before)
}

// bookOf is book of an edge that may be about to leave.
func (t *trial) bookOf(s *world.Site, c *counter, before []crdt.Cell) (charges, refunds uint64) {
	after, _, _ := s.Node().Cells(c.key)
	for _, cell := range after {
		for _, b := range before {
			if b.Slice == cell.Slice {
				cell = cell.Less(b)
			}
		}
		if cell.Zero() {
			continue
		}
		charges, refunds = charges+cell.Charges, refunds+cell.Refunds
		c.charged += cell.Charges
		c.all.Add(cell)
		of(c.byRegion, s.Region).Add(cell)
		of(c.byLife, life{s.Name, s.Lives()}).Add(cell)
	}
	for _, l := range t.belated {
		if l.edge == s.Name && l.lives == s.Lives() && l.c == c {
			l.seen = after
		}
	}
	return charges, refunds
}

// of is the vector of a key, made when it is first used.
func of[K comparable](m map[K]*crdt.Vector, key K) *crdt.Vector {
	v := m[key]
	if v == nil {
		v = &crdt.Vector{}
		m[key] = v
	}
	return v
}
