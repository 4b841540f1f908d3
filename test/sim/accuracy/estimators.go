package accuracy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/measure"
)

// Traffic of A18: sources by popularity, each of which comes and goes, so that many
// cross their limit now and then (who comes evenly is always far from it, or always
// at it).
const (
	sources  = 270_000
	asked    = 20_000_000
	lasting  = 10 * time.Minute
	estimate = time.Minute // the window
	phase    = 30 * time.Second
)

// limitsAt are what few, some and many of the sources reach.
var limitsAt = []uint64{20_000, 2000, 200}

// estimator is an algorithm as the production code has it.
type estimator struct {
	name   string
	rate   *limit.Rate
	counts []crdt.Vector // by source
	wrong  [3]int        // verdicts, by limit
	target float64       // per million with few sources at the limit; 0: none
}

func estimators() (out []*estimator, err error) {
	for _, e := range []struct {
		name   string
		spec   limit.RateSpec
		target float64
	}{
		{"40 slices, as by default", limit.RateSpec{}, 14},
		{"40 slices, the oldest in full", limit.RateSpec{Oldest: "full"}, 0},
		{"60 slices", limit.RateSpec{Slices: 60}, 0},
		{"10 slices", limit.RateSpec{Slices: 10}, 0},
		{"two windows, interpolated", limit.RateSpec{Algorithm: "sliding_window"}, 0},
		{"fixed window", limit.RateSpec{Algorithm: "fixed_window"}, 0},
	} {
		e.spec.Limit, e.spec.Per = 1, estimate
		set, problems := limit.Options{}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "r", Rates: []limit.RateSpec{e.spec}}}})
		if set == nil {
			return nil, fmt.Errorf("%s: %v", e.name, problems)
		}
		out = append(out, &estimator{e.name, set.Rules()[0].Rates[0], make([]crdt.Vector, sources), [3]int{}, e.target})
	}
	return out, nil
}

// judge compares what the estimator says of a source with what the log says, each for
// a request that is not counted yet, and counts it.
func (e *estimator) judge(source int, now int64, exact uint64, cells []crdt.Cell) []crdt.Cell {
	v := &e.counts[source]
	cells = v.Cells(cells[:0])
	level := e.rate.Rounded(e.rate.Used(cells, limit.Carry{}, now))
	for i, l := range limitsAt {
		if (level < l) != (exact < l) {
			e.wrong[i]++
		}
	}
	v.Add(crdt.Cell{Slice: e.rate.SliceAt(now), Charges: 1})
	v.Retire(e.rate.Reach(now))
	return cells
}

// recent is the instants of a source's requests in the last window.
type recent struct {
	at   []int64
	gone int
}

func (r *recent) count(now int64) uint64 {
	for r.gone < len(r.at) && r.at[r.gone] <= now-int64(estimate) {
		r.gone++
	}
	if r.gone > 64 && 2*r.gone > len(r.at) {
		r.at = r.at[:copy(r.at, r.at[r.gone:])]
		r.gone = 0
	}
	return uint64(len(r.at) - r.gone)
}

// compareEstimators counts n requests, all of them (an open loop): how many verdicts
// each estimator has wrong, and how many sources reach each limit.
func compareEstimators(n int) (all []*estimator, reach [3]int, err error) {
	if all, err = estimators(); err != nil {
		return nil, reach, err
	}
	rnd := rand.New(rand.NewPCG(18, 18))
	source := measure.Zipf(sources, 1, rnd)
	logs := make([]recent, sources)
	reached := [3]map[int]bool{{}, {}, {}}
	now := float64(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	mean := float64(lasting) / asked
	var cells []crdt.Cell
	for range n {
		at, s := int64(now), source()
		for !on(s, at) {
			s = source()
		}
		now += rnd.ExpFloat64() * mean
		exact := logs[s].count(at)
		for i, l := range limitsAt {
			if exact >= l {
				reached[i][s] = true
			}
		}
		for _, e := range all {
			cells = e.judge(s, at, exact, cells)
		}
		logs[s].at = append(logs[s].at, at)
	}
	for i := range reached {
		reach[i] = len(reached[i])
	}
	return all, reach, nil
}

// estimators writes what they have wrong.
func (t *table) estimators(all []*estimator, reach [3]int, n int) {
	fmt.Fprintf(&t.text, "\n## A18, estimators at zero lag\n\nWrong verdicts per million of %d requests of %d sources in windows of a minute, all counted, beside an exact log of them; sources come and go, half a minute at a time.\n\n| estimator | target |", n, sources)
	for i, l := range limitsAt {
		fmt.Fprintf(&t.text, " %d a minute, which %d sources reach |", l, reach[i])
	}
	t.text.WriteString("\n|---|---|---|---|---|\n")
	for _, e := range all {
		target, cells := "–", [3]string{}
		for i, wrong := range e.wrong {
			cells[i] = fmt.Sprintf("%.0f", 1e6*float64(wrong)/float64(n))
		}
		if e.target > 0 {
			target = fmt.Sprintf("≤ %.0f", e.target)
			cells[0] = t.judge(&row{ID: "A18"}, "wrong per million", cells[0], below(e.target, 1e6*float64(e.wrong[0])/float64(n)))
		}
		fmt.Fprintf(&t.text, "| %s | %s | %s |\n", e.name, target, strings.Join(cells[:], " | "))
	}
}

// on says that a source is there: in half of its phases, by chance. They begin for
// each at another instant, else they would begin with slices.
func on(source int, at int64) bool {
	phases := (at + int64(mix(uint64(source))%uint64(phase))) / int64(phase)
	return mix(uint64(source)<<32^uint64(phases))>>63 == 0
}

// mix is a number at random for each x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
