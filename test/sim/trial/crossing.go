package trial

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Invariant 7: who serves a lane tells all edges of the region when the use of a
// key passes 50, 80, 95 or 100 % of its limit. For buckets see level.go.

// thresholds are in percent; rearm is how far use falls before one counts again.
// From the second on all that changes is told.
var thresholds = []uint64{100, 95, 80, 50}

const (
	rearm     = 5
	contended = 80
)

// crossings is what each region was pushed, and what those who serve it knew when
// that was looked at last.
type crossings struct {
	told  map[place]*crdt.Vector
	most  map[place]uint64 // of a limit, that was told at once
	times map[place]int    // how often, between 50 and 80 %
	knew  map[place]knowledge

	poured map[place][]telling // likewise of buckets

	evicted map[string]uint64 // keys that an aggregator forgot, as last looked
}

// place is a region's, or an aggregator's, where a key is known.
type place struct {
	name string
	key  deltasync.Key
}

// knowledge is what an aggregator knew of a key.
type knowledge struct {
	life    int
	evicted uint64
	served  bool
	cells   []crdt.Cell

	at     time.Time  // when
	level  uint64     // of a bucket
	clock  time.Time  // its own
	set    uint64     // so often
	by     uint64     // as often when what it knows was counted
	before *knowledge // at the look before, of a bucket
}

// same says that whoever served the lane at one look did so at a later one, and has
// forgotten nothing in between.
func (k *knowledge) same(later *knowledge) bool {
	return k != nil && k.served && later.served && k.life == later.life && k.evicted == later.evicted
}

func newCrossings() crossings {
	return crossings{told: map[place]*crdt.Vector{}, most: map[place]uint64{}, times: map[place]int{}, knew: map[place]knowledge{}, poured: map[place][]telling{}, evicted: map[string]uint64{}}
}

// pushed notes what all edges of a region are told. In a quiet run each crossing
// is told twice at most.
//
// What is judged is what they have been told in all: a push has what changed since one
// told all, up to a second before, so that by itself it says less. What was told of a
// crossing is the larger of both: who pushes may lack refunds that others told of, as a
// store that was wiped does (seed 110), and edges, which have them, use less.
func (t *trial) pushed(region string, c *counter, cells []crdt.Cell) {
	at := place{region, c.key}
	told := of(t.crossings.told, at)
	for _, cell := range cells {
		told.Join(cell)
	}
	used := net(told.From(c.rate.Reach(t.w.Now().UnixNano()), nil))
	t.crossings.most[at] = max(t.crossings.most[at], used, net(cells))
	if passed(used, c.rate.Limit) == 50 && t.quiet() && !c.rate.Bucket() && !t.adaptive { // what shares follow from is pushed as it changes
		if t.crossings.times[at]++; t.crossings.times[at] > 2 {
			t.failf("7", "%s is told for the %d. time that %s has passed 50 %% of %s", region, t.crossings.times[at], c.user, c.rate.Policy)
		}
	}
}

// verifyCrossing demands that what an aggregator knew when it was last looked at
// has been pushed since, if it served the lane all the time, and forgot nothing.
func (t *trial) verifyCrossing(v *world.Server, c *counter, vectors []regional.Vector) {
	if c.claimed != nil {
		return
	}
	at := place{v.Name, c.key}
	was, now := t.crossings.knew[at], knowledge{
		life: v.Lives(), evicted: t.crossings.evicted[v.Name], served: v.Aggregator().Serves(c.key.Lane(t.lanes)),
		cells: totalOf(vectors, c.rate.Reach(t.w.Now().UnixNano())), at: t.w.Now(),
	}
	switch {
	case c.rate.Bucket():
		now.clock, now.set = t.clockOf(v), t.clockSets(v)
		now.level = v.Aggregator().Used(t.w.NowAtServer(v), c.key)
		if now.by = was.set; slices.Equal(was.cells, now.cells) {
			now.by = was.by
		}
		if was.same(&now) {
			t.verifyLevel(v, c, was.before, &was)
		}
		was.before, now.before = nil, &was
	case was.same(&now):
		t.verifyWindow(v, c, was.cells)
	}
	t.crossings.knew[at] = now
}

// verifyWindow is verifyCrossing of what was known of a window.
func (t *trial) verifyWindow(v *world.Server, c *counter, was []crdt.Cell) {
	in, used := place{v.Region, c.key}, net(was)
	p := passed(used, c.rate.Limit*t.mostFactor())
	if p == 0 {
		return
	}
	told, all := of(t.crossings.told, in), true
	for _, cell := range was {
		got := told.Get(cell.Slice)
		if got.Join(cell) == got {
			continue
		}
		if all = false; p >= contended {
			t.failf("7", "%s knows %+v of %s (%s), more than %d %% of the limit are used; the edges of %s were told %+v", v.Name, cell, c.user, c.rate.Policy, p, v.Region, got)
		}
	}
	// Who was told all may have been told of refunds besides, by which less is used.
	if !all && t.crossings.most[in] < t.leastTold(c, used) {
		t.failf("7", "%s knows that %d of %s are used (%s), the edges of %s were told of %d", v.Name, used, c.user, c.rate.Policy, v.Region, t.crossings.most[in])
	}
}

// leastTold is what edges were told of at least when so much is used, by whichever
// limit that some edge has loaded.
func (t *trial) leastTold(c *counter, used uint64) uint64 {
	least := used
	for factor := range t.mostFactor() {
		limit := c.rate.Limit * (factor + 1)
		if p := passed(used, limit); p > 0 {
			least = min(least, part(limit, p-rearm))
		}
	}
	return least
}

// passed is the highest threshold that use has reached, in percent; 0: none.
func passed(used, limit uint64) uint64 {
	for _, p := range thresholds {
		if used >= part(limit, p) {
			return p
		}
	}
	return 0
}

func part(limit, percent uint64) uint64 { return limit/100*percent + limit%100*percent/100 }

// totalOf is what an aggregator knows of everybody's counts, in slices from one on.
func totalOf(vectors []regional.Vector, reach crdt.Slice) []crdt.Cell {
	var edges, regions, taken, told crdt.Vector
	for _, v := range vectors {
		for _, cell := range v.Cells {
			switch {
			case cell.Slice < reach:
			case v.Source == regional.FromEdge:
				edges.Add(cell)
			case v.Source == regional.FromRegion:
				regions.Add(cell)
			case v.Source == regional.FromHomes:
				told.Join(cell)
			default:
				taken.Join(cell)
			}
		}
	}
	for i := range taken.Len() {
		edges.Join(taken.At(i))
	}
	regions.Merge(&told)
	return sum(edges.Cells(nil), regions.Cells(nil))
}

func net(cells []crdt.Cell) (sum uint64) {
	for _, c := range cells {
		sum = crdt.SatAdd(sum, c.Net())
	}
	return sum
}

// mostFactor is the largest by which rules with other limits have them larger.
func (p *plan) mostFactor() uint64 {
	if p.has[RuleChange] {
		return mostFactor
	}
	return 1
}

// wants is the limit of a rate that an edge has loaded.
func (t *trial) wants(edge string, rate *limit.Rate) uint64 {
	v := t.loaded[edge]
	for _, spec := range t.ratesOf(v) {
		if spec.Name == rate.Name {
			return max(spec.Limit*(1+v.more), spec.Capacity)
		}
	}
	return 0
}
