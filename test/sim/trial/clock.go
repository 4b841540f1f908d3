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
