package trial

import (
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/test/sim/world"
)

// Aggregators' clocks. Those of other regions correct one that is off (design.md §4), and
// edges take theirs for the time.

// mostSet is by how much an aggregator's clock may be set wrong. From there on a clock is an
// alarm (design.md §6), and its counts may be of slices that the store takes for nonsense.
const mostSet = time.Second

// serverClocks sets the aggregators' clocks wrong: a little from the start, and some by a
// second for a while.
func (t *trial) serverClocks() {
	if !t.has[ServerClock] {
		return
	}
	rnd := t.stream("server clocks")
	little := func(rnd *rand.Rand) time.Duration { return time.Duration(rnd.IntN(101)-50) * time.Millisecond }
	var all []*world.Server
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			t.w.SetServerClock(v, little(rnd), float64(rnd.IntN(401)-200)/1e6)
			all = append(all, v)
		}
	}
	t.episodes(ServerClock, 3*time.Second, 3*time.Second, func(rnd *rand.Rand) (func() error, error) {
		v := all[rnd.IntN(len(all))]
		t.sets[v.Name]++
		t.w.SetServerClock(v, time.Duration(rnd.Int64N(int64(2*mostSet)))-mostSet, 0)
		return func() error {
			t.sets[v.Name]++
			t.w.SetServerClock(v, little(rnd), 0)
			return nil
		}, nil
	})
}

// clockOf is the time as an aggregator that runs takes it to be.
func (t *trial) clockOf(v *world.Server) time.Time {
	if !t.has[ServerClock] {
		return t.w.Now()
	}
	raw := t.w.NowAtServer(v)
	return raw.Add(v.Aggregator().Stats(raw).ClockCorrection)
}

// clockSets is how often the clock of an aggregator that runs was set, by whomever.
func (t *trial) clockSets(v *world.Server) uint64 {
	if !t.has[ServerClock] {
		return 0
	}
	return t.sets[v.Name] + v.Aggregator().Stats(t.w.NowAtServer(v)).ClockSteps
}

// How far clocks are set wrong at the end, how long it takes to find out, and what may be
// left of that when they had the time to turn it back by five milliseconds a second. A
// twentieth of the 160 ms that it takes to ask another region may be due to the ways.
const (
	endsOff  = 100 * time.Millisecond
	findsOut = 10 * time.Second
	slewing  = 5 * time.Millisecond // a second
	clockOff = 10 * time.Millisecond
)

// correct demands that clocks which are wrong are corrected. What the edges
// take for the time differs little from the aggregators', and theirs from the others', who
// are more. An aggregator that owns no lane asks nobody, and tells nobody. What faults left
// to be turned back is turned back by then, too (seed 80018796).
func (t *trial) correct() error {
	rnd := t.stream("clocks at the end")
	wrong := func() time.Duration { return time.Duration(rnd.Int64N(int64(2*endsOff))) - endsOff }
	most := time.Duration(0)
	for _, name := range t.w.Edges() {
		most = max(most, t.shown(name).Sub(t.w.Now()).Abs())
		t.w.SetClock(name, wrong(), 0)
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			most = max(most, t.shownBy(v).Sub(t.w.Now()).Abs())
		}
	}
	if t.regions > 2 {
		for _, v := range t.w.Servers(t.regionNames[rnd.IntN(t.regions)]) {
			t.w.SetServerClock(v, wrong(), 0)
		}
	}
	if err := t.advance(t.w.Now().Add(findsOut + (most+2*endsOff)/slewing*time.Second)); err != nil {
		return err
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if v.Aggregator().Stats(t.w.NowAtServer(v)).Owned > 0 {
				t.right(v.Name, t.shownBy(v))
			}
		}
	}
	for _, name := range t.w.Edges() {
		if !t.isOld(name) {
			t.right(name, t.shown(name))
		}
	}
	return t.err
}

// shown is what an edge takes for the time, and shownBy an aggregator.
func (t *trial) shown(edge string) time.Time {
	raw := t.w.NowAt(edge)
	return raw.Add(t.w.Node(edge).Stats(raw).ClockCorrection)
}

func (t *trial) shownBy(v *world.Server) time.Time {
	raw := t.w.NowAtServer(v)
	return raw.Add(v.Aggregator().Stats(raw).ClockCorrection)
}

// right demands that what somebody takes for the time is about right.
func (t *trial) right(who string, clock time.Time) {
	if off := clock.Sub(t.w.Now()).Abs(); off > clockOff {
		t.failf("clocks", "%s takes the time to be %v off, long after its clock was set wrong", who, clock.Sub(t.w.Now()))
	}
}
