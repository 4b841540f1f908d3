package measure

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/world"
)

// run is a cluster under the conditions, and what is asked of it.
type run struct {
	o       Options
	since   time.Time
	w       *world.World
	edges   []string // all there ever are
	befall  []fault  // that are still to come
	planned []arrival
	again   returns
	waits   waits
}

func newRun(o Options) (*run, error) {
	if err := o.Conditions.Check(); err != nil {
		return nil, fmt.Errorf("conditions: %w", err)
	}
	o.Conditions = o.Conditions.Usual()
	c := &o.Conditions
	before := settled
	if c.ClockOffset > 0 {
		before = corrected
	}
	cfg := world.Config{
		Start: start.Add(-before), Seed: o.Seed + 1, Interval: c.Interval, RegionDelay: c.OneWay, Processing: c.Processing, Uncorrected: c.Uncorrected, Budget: c.Budget, Unreplicated: true, Lanes: 8,
		Rules: []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, Rates: limits(o)}}}},
	}
	if o.Consistency == Naive {
		cfg.Urgent = cfg.Interval
	}
	r := &run{o: o, since: cfg.Start}
	cfg.OnGrants = r.granted
	for i := range o.Regions {
		region := world.Region{Name: nameOf(i)}
		for e := range o.Edges {
			region.Edges = append(region.Edges, fmt.Sprintf("%s-%d", region.Name, e+1))
		}
		cfg.Regions = append(cfg.Regions, region)
		r.edges = append(r.edges, region.Edges...)
	}
	w, err := world.New(cfg)
	if err != nil {
		return nil, err
	}
	r.w = w
	for _, link := range links(w) {
		link.Jitter = time.Duration(c.Jitter * float64(link.Delay))
		link.Loss, link.Twice, link.Late = c.Loss, c.Duplicates, c.Reordering
	}
	r.setClocks()
	r.befall, r.planned = r.faults(), workload(o)
	return r, nil
}

func links(w *world.World) []*world.Link {
	edges, regions := w.Links()
	return []*world.Link{edges, regions}
}

// up is how long the cluster has been.
func (r *run) up() time.Duration { return r.w.Now().Sub(r.since) }

// setClocks has each clock be off by up to the offset.
func (r *run) setClocks() {
	most := int64(r.o.Conditions.ClockOffset)
	if most == 0 {
		return
	}
	rnd := stream(r.o.Seed, "clocks", 0)
	off := func() time.Duration { return time.Duration(rnd.Int64N(2*most+1) - most) }
	for _, name := range r.edges {
		r.w.SetClock(name, off(), 0)
	}
	for i := range r.o.Regions {
		for _, v := range r.w.Servers(nameOf(i)) {
			r.w.SetServerClock(v, off(), 0)
		}
	}
}

// advance moves time, and has happen what falls due.
func (r *run) advance(after time.Duration) error {
	at := start.Add(after)
	for {
		befalls := len(r.befall) > 0 && !r.befall[0].at.After(at)
		due, waited := r.waits.due()
		switch {
		case waited && due <= after && !(befalls && r.befall[0].at.Before(start.Add(due))):
			r.w.Advance(start.Add(due))
			r.over(due)
		case befalls:
			r.w.Advance(r.befall[0].at)
			if err := r.befall[0].do(); err != nil {
				return err
			}
			r.befall = r.befall[1:]
		default:
			r.w.Advance(at)
			return nil
		}
	}
}

// ask puts a request to its edge, or to the next one of the region where that one is
// away.
func (r *run) ask(a arrival, u *user) {
	name := r.edges[a.edge]
	for range r.o.Edges {
		if r.w.Site(name).There() {
			break
		}
		a.edge = a.edge/r.o.Edges*r.o.Edges + (a.edge+1)%r.o.Edges
		name = r.edges[a.edge]
	}
	w := waiting{arrival: a, user: u, edge: name, node: r.w.Node(name)}
	d, bound := r.check(&w, r.o.Conditions.StrictWait > 0)
	if d.Basis.Await > 0 && !d.Allowed {
		r.await(w, d)
		return
	}
	r.decided(&w, a.after, d)
	if r.o.told != nil {
		r.o.told(u, a.after, told{d.Rate, bound})
	}
}

// check puts a request to its edge now.
func (r *run) check(w *waiting, awaits bool) (limit.Decision, limit.Bound) {
	req := w.node.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", w.user.name)
	req.Cost, req.Bounds, req.Awaits = w.cost, r.o.told != nil, awaits
	return w.node.Check(r.w.NowAt(w.edge), req), req.Bound
}

// decided notes what became of a request.
func (r *run) decided(w *waiting, at time.Duration, d limit.Decision) {
	w.user.saw(at, w.cost, d.Allowed)
	if !d.Allowed {
		w.after = at
		r.denied(w.arrival, d.RetryAfter)
	}
}

// next is what is asked next: something new, or once more what was denied.
func (r *run) next() (a arrival, ok bool) {
	switch {
	case len(r.again) > 0 && (len(r.planned) == 0 || r.again[0].after <= r.planned[0].after):
		return heap.Pop(&r.again).(arrival), true
	case len(r.planned) > 0:
		a, r.planned = r.planned[0], r.planned[1:]
		return a, true
	}
	return a, false
}

// roundTrip is how soon a client that does not wait asks again.
const roundTrip = 10 * time.Millisecond

// denied has the client come back, if it does and the scenario still runs then.
func (r *run) denied(a arrival, wait time.Duration) {
	if r.o.Conditions.Retry == scenarios.NoRetry || a.tries == scenarios.MostTries {
		return
	}
	if r.o.Conditions.Retry == scenarios.AtOnce {
		wait = 0
	}
	a.after += max(wait, roundTrip)
	a.tries++
	if a.after < r.o.Scenario.Lasts.Of(r.o.Window) {
		heap.Push(&r.again, a)
	}
}

// returns are clients that come back, the soonest first.
type returns []arrival

func (q returns) Len() int           { return len(q) }
func (q returns) Less(i, j int) bool { return q[i].after < q[j].after }
func (q returns) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *returns) Push(x any)        { *q = append(*q, x.(arrival)) }
func (q *returns) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
