package trial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/sim/world"
)

// action is something that befalls the world.
type action struct {
	at   time.Time
	what Fault
	do   func() error
}

// episodes plans a fault's: each begins some time after the one before has
// ended, and lasts for a while. end is nil for what is over at once.
func (t *trial) episodes(f Fault, every, lasts time.Duration, begin func(rnd *rand.Rand) (end func() error, err error)) {
	if !t.has[f] {
		return
	}
	rnd := t.stream("fault " + string(f))
	span := func(mean time.Duration) time.Duration { return time.Duration(rnd.ExpFloat64() * float64(mean)) }
	stop := start.Add(t.faulty)
	for at := start.Add(span(every)); at.Before(stop); at = at.Add(span(every)) {
		until := at.Add(span(lasts))
		if until.After(stop) {
			until = stop
		}
		seed := rnd.Uint64()
		var end func() error
		t.actions = append(t.actions, action{at, f, func() (err error) {
			t.line("fault: %s", f)
			end, err = begin(rand.New(rand.NewPCG(seed, 0)))
			return err
		}}, action{until, f, func() error {
			if end == nil {
				return nil
			}
			t.line("end of the fault: %s", f)
			return end()
		}})
		at = until
	}
}

// What frames between regions, and those of edges, take longer at the most where
// links are slow.
const (
	slowest       = 400 * time.Millisecond
	slowestUplink = 110 * time.Millisecond
)

// befall plans all that is to happen.
func (t *trial) befall() {
	edges, between := t.w.Links()
	link := func(f Fault, worsen func(*world.Link)) {
		if t.has[f] {
			worsen(edges)
			worsen(between)
			worsen(t.w.Within())
		}
	}
	link(Loss, func(l *world.Link) { l.Loss = 0.15 })
	link(Duplication, func(l *world.Link) { l.Twice = 0.15 })
	link(Jitter, func(l *world.Link) { l.Jitter = 40 * time.Millisecond })
	link(Clog, func(l *world.Link) { l.Rate = 4_000 })
	t.clocks()
	t.serverClocks()

	anyEdge := func(rnd *rand.Rand) *world.Site { return t.w.Site(t.w.Edges()[rnd.IntN(len(t.w.Edges()))]) }
	anyRegion := func(rnd *rand.Rand) string { return t.regionNames[rnd.IntN(len(t.regionNames))] }
	anyServer := func(rnd *rand.Rand) *world.Server {
		servers := t.w.Servers(anyRegion(rnd))
		return servers[rnd.IntN(len(servers))]
	}
	// way is two parts that talk to each other.
	way := func(rnd *rand.Rand) (from, to string) {
		if len(t.regionNames) > 1 && rnd.IntN(2) == 0 {
			i := rnd.IntN(len(t.regionNames))
			return t.regionNames[i], t.regionNames[(i+1)%len(t.regionNames)]
		}
		s := anyEdge(rnd)
		if rnd.IntN(2) == 0 {
			return s.Region, s.Name
		}
		return s.Name, s.Region
	}
	t.episodes(Partition, 3*time.Second, 2*time.Second, func(rnd *rand.Rand) (func() error, error) {
		r := anyRegion(rnd)
		t.w.Cut(r, true)
		return func() error { t.w.Cut(r, false); return nil }, nil
	})
	t.episodes(Uplink, 2*time.Second, 2*time.Second, func(rnd *rand.Rand) (func() error, error) {
		s := anyEdge(rnd)
		both := func(cut bool) {
			t.w.CutPath(s.Name, s.Region, cut)
			t.w.CutPath(s.Region, s.Name, cut)
		}
		both(true)
		return func() error { both(false); return nil }, nil
	})
	t.episodes(OneWay, 2*time.Second, 2*time.Second, func(rnd *rand.Rand) (func() error, error) {
		from, to := way(rnd)
		t.w.CutPath(from, to, true)
		return func() error { t.w.CutPath(from, to, false); return nil }, nil
	})
	t.episodes(Freeze, 2*time.Second, 2*time.Second, func(rnd *rand.Rand) (func() error, error) {
		from, to := way(rnd)
		t.w.Freeze(from, to, true)
		return func() error { t.w.Freeze(from, to, false); return nil }, nil
	})
	t.episodes(Slow, time.Second, 3*time.Second, func(rnd *rand.Rand) (func() error, error) {
		from, to := way(rnd)
		most := slowest // there and back less than anybody waits
		if t.w.Site(from) != nil || t.w.Site(to) != nil {
			most = slowestUplink
		}
		there, back := rnd.Int64N(int64(most)), rnd.Int64N(2)*rnd.Int64N(int64(most))
		set := func(there, back int64) {
			t.w.Slow(from, to, time.Duration(there))
			t.w.Slow(to, from, time.Duration(back))
		}
		set(there, back)
		return func() error { set(0, 0); return nil }, nil
	})
	t.episodes(CrashEdge, 3*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		s := anyEdge(rnd)
		t.died = true
		delete(t.loaded, s.Name)
		return nil, t.w.Crash(s.Name)
	})
	t.episodes(CrashServer, 3*time.Second, time.Second, func(rnd *rand.Rand) (func() error, error) {
		v := anyServer(rnd)
		t.kill(v)
		return func() error { return t.start(v) }, nil
	})
	t.episodes(Flap, 500*time.Millisecond, 200*time.Millisecond, func(rnd *rand.Rand) (func() error, error) {
		v := t.w.Servers(t.regionNames[0])[0]
		t.kill(v)
		return func() error { return t.start(v) }, nil
	})
	t.episodes(Leave, 2*time.Second, 2*time.Second, func(rnd *rand.Rand) (func() error, error) {
		v := anyServer(rnd)
		if v.Aggregator() == nil {
			return nil, nil // it was killed
		}
		t.leave(v)
		return func() error { return t.w.Return(v) }, nil
	})
	t.episodes(Split, 2*time.Second, 3*time.Second, func(rnd *rand.Rand) (func() error, error) {
		servers := t.w.Servers(anyRegion(rnd))
		from, to := servers[rnd.IntN(len(servers))], servers[rnd.IntN(len(servers))]
		both := rnd.IntN(2) == 0
		set := func(cut bool) error {
			t.w.Split(from, to, cut)
			if both {
				t.w.Split(to, from, cut)
			}
			return nil
		}
		return func() error { return set(false) }, set(true)
	})
	store := func(state world.StoreState) func(rnd *rand.Rand) (func() error, error) {
		return func(rnd *rand.Rand) (func() error, error) {
			r := anyRegion(rnd)
			s, log := t.w.Store(r), t.w.RightsLog(r)
			s.Set(state)
			log.Set(state)
			return func() error { s.Set(world.StoreUp); log.Set(world.StoreUp); return nil }, nil
		}
	}
	t.episodes(StoreDown, 3*time.Second, time.Second, store(world.StoreDown))
	t.episodes(StoreDeaf, 3*time.Second, time.Second, store(world.StoreDeaf))
	t.episodes(StoreWipe, 4*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		r := anyRegion(rnd)
		t.w.Store(r).Wipe()
		t.forgotten(r)
		if rnd.IntN(3) == 0 { // else it is on another disk
			t.w.RightsLog(r).Wipe()
		}
		return nil, nil
	})
	t.episodes(StoreFailTo, 4*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		r := anyRegion(rnd)
		t.forgotten(r)
		tail := time.Duration(rnd.IntN(1500)) * time.Millisecond
		if rnd.IntN(3) == 0 {
			if err := t.w.RightsLog(r).FailOver(tail); err != nil {
				return nil, err
			}
		}
		return nil, t.w.Store(r).FailOver(tail)
	})
	t.episodes(KnowsNothing, 5*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		r := anyRegion(rnd)
		t.w.Store(r).Wipe()
		t.forgotten(r)
		for _, v := range t.w.Servers(r) {
			if err := t.start(v); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	t.membership()
	t.episodes(RuleChange, 2*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		return nil, t.load(anyEdge(rnd).Name, func(v *version) { v.more = uint64(rnd.IntN(mostFactor)) })
	})
	t.episodes(Generation, time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		return nil, t.load(anyEdge(rnd).Name, func(v *version) { v.anew = !v.anew })
	})
	t.episodes(Flood, 2*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		t.flood(anyEdge(rnd).Name)
		return nil, nil
	})
	t.provoke()
	t.episodes(Hostile, 700*time.Millisecond, 0, func(rnd *rand.Rand) (func() error, error) {
		t.hostile.attack(rnd)
		return nil, nil
	})
	slices.SortStableFunc(t.actions, func(a, b action) int { return a.at.Compare(b.at) })
}

// flood asks an edge for many keys that come once.
func (t *trial) flood(edge string) {
	n := t.w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	for range 60 {
		t.floods++
		req.Set("user", fmt.Sprint("f", t.floods))
		beliefs := n.Inspect(t.w.NowAt(edge), req)
		t.check(edge, req)
		for _, b := range beliefs {
			own, _, _ := n.Cells(b.Key)
			t.strangers[b.Key] = &crdt.Vector{}
			for _, cell := range own {
				t.strangers[b.Key].Add(cell)
			}
		}
	}
}

// farthest is by how much an edge's clock is set wrong at the most.
const farthest = 3 * time.Second

// clocks sets the parts' clocks wrong.
func (t *trial) clocks() {
	rnd := t.stream("clocks")
	for _, name := range t.w.Edges() {
		offset, drift := time.Duration(rnd.IntN(101)-50)*time.Millisecond, float64(rnd.IntN(401)-200)/1e6
		if !t.has[Skew] {
			offset = 0
		}
		if !t.has[Drift] {
			drift = 0
		}
		t.w.SetClock(name, offset, drift)
	}
	t.episodes(ClockStep, 4*time.Second, 0, func(rnd *rand.Rand) (func() error, error) {
		name := t.w.Edges()[rnd.IntN(len(t.w.Edges()))]
		most := int64(500 * time.Millisecond)
		if rnd.IntN(3) == 0 { // from a second on a clock is set right at once
			most = int64(farthest)
			t.stepped = farthest
		}
		t.w.SetClock(name, time.Duration(rnd.Int64N(2*most)-most), 0)
		return nil, nil
	})
}

// recover ends all faults.
func (t *trial) recover() error {
	edges, between := t.w.Links()
	for _, l := range []*world.Link{edges, between, t.w.Within()} {
		l.Loss, l.Twice, l.Jitter, l.Rate = 0, 0, 0, 0
	}
	if err := t.joinAll(); err != nil {
		return err
	}
	for _, name := range t.w.Edges() {
		t.w.SetClock(name, 0, 0)
	}
	for _, r := range t.regionNames {
		t.w.Store(r).Set(world.StoreUp)
		t.w.RightsLog(r).Set(world.StoreUp)
		for _, v := range t.w.Servers(r) {
			t.w.SetServerClock(v, 0, 0)
			if v.Aggregator() == nil || t.w.Leaves(v) {
				if err := t.w.Return(v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
