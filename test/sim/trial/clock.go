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

// How far clocks are set wrong at the end, and what may be left of that when they had
// the time to find out, and to turn it back by five milliseconds a second. A twentieth of
// the 160 ms that it takes to ask another region may be due to the ways; and a clock that
// is set while it asks finds half of how far, on a way that seems the shorter for it, and
// believes that for a minute (seed 1564).
const (
	endsOff  = 100 * time.Millisecond
	turning  = 30 * time.Second
	clockOff = endsOff/2 + 10*time.Millisecond
)

// correct demands that clocks which are wrong are corrected. What the edges
// take for the time differs little from the aggregators', and theirs from the others', who
// are more. An aggregator that owns no lane asks nobody, and tells nobody.
func (t *trial) correct() error {
	rnd := t.stream("clocks at the end")
	wrong := func() time.Duration { return time.Duration(rnd.Int64N(int64(2*endsOff))) - endsOff }
	for _, name := range t.w.Edges() {
		t.w.SetClock(name, wrong(), 0)
	}
	if t.regions > 2 {
		for _, v := range t.w.Servers(t.regionNames[rnd.IntN(t.regions)]) {
			t.w.SetServerClock(v, wrong(), 0)
		}
	}
	if err := t.advance(t.w.Now().Add(turning)); err != nil {
		return err
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if st := v.Aggregator().Stats(t.w.NowAtServer(v)); st.Owned > 0 {
				t.right(v.Name, t.w.NowAtServer(v).Add(st.ClockCorrection))
			}
		}
	}
	for _, name := range t.w.Edges() {
		if !t.isOld(name) {
			t.right(name, t.w.NowAt(name).Add(t.w.Node(name).Stats(t.w.NowAt(name)).ClockCorrection))
		}
	}
	return t.err
}

// right demands that what somebody takes for the time is about right.
func (t *trial) right(who string, clock time.Time) {
	if off := clock.Sub(t.w.Now()).Abs(); off > clockOff {
		t.failf("clocks", "%s takes the time to be %v off, %v after its clock was set wrong", who, clock.Sub(t.w.Now()), turning)
	}
}
