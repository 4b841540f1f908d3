package regional

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// mostTallies bounds the rates whose truth is told apart; the rest is told together,
// without names. mostCauses bounds the PoPs of each.
const (
	mostTallies = 256
	mostCauses  = 64
)

// known is a rate of the rules, and where its truth is told.
type known struct {
	rate   *limit.Rate
	tally  *tally
	passed *passings // nil: of what a rule borrows, and of more rates than that is kept of
}

// tallies is the truth by rate.
type tallies struct {
	rates     atomic.Pointer[map[uint64]known] // by generation; nil: no rules are known
	passed    atomic.Pointer[map[rateName]*passings]
	unwatched atomic.Uint64 // keys for which there was no room
	strict    atomic.Int64  // for how long what is spent counts in any strict limit, ns; 0: there is none, or no rules are known

	mu      sync.Mutex       // guards what follows; taken with a lane's held
	list    []*tally         // by namespace, rule and rate; the last one may be of all others
	unnamed map[uint64]int64 // generations of keys near their limit that no rule has, and when that was
}

const (
	// mostUnnamed bounds tallies.unnamed, and unnamedFor is how long they stand there.
	mostUnnamed = 64
	unnamedFor  = time.Minute
)

// unknown notes a generation that no rule has.
func (t *tallies) unknown(generation uint64, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unnamed == nil {
		t.unnamed = map[uint64]int64{}
	}
	if _, has := t.unnamed[generation]; has || len(t.unnamed) < mostUnnamed {
		t.unnamed[generation] = now
	}
}

// unknowns is how many there were of late.
func (t *tallies) unknowns(now int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.unnamed, func(_ uint64, at int64) bool { return passed(at, now, int64(unnamedFor)) })
	return len(t.unnamed)
}

// tally is what came of a rate since the start.
type tally struct {
	namespace, rule, name string // of the rest: rule is other, the others are empty

	mu      sync.Mutex // guards what follows; taken with a lane's held
	rate    *limit.Rate
	seen    Sums               // of all keys that are watched here
	home    Sums               // of those that this region reports
	regions map[uint64]float64 // hits too many of all keys, by the region that admitted them: see truth.go
	pops    map[uint64]float64 // likewise, by PoP of this region
	worst   Worst
}

// others is the rule of what is told together, as of edges' metrics.
const others = "other"

func newTally(namespace, rule, name string) *tally {
	return &tally{namespace: namespace, rule: rule, name: name, regions: map[uint64]float64{}, pops: map[uint64]float64{}}
}

// Sums is what was true of a rate in the windows that have closed.
type Sums struct {
	Windows    uint64 `json:"windows"`              // that ended; one with each slice of each key
	Over       uint64 `json:"windows_over"`         // of them above the ceiling
	Incomplete uint64 `json:"windows_incomplete"`   // of which some may be missing, for good
	ToldSince  uint64 `json:"windows_told_since"`   // of them those of which all regions have told what they have
	Amended    uint64 `json:"slices_amended"`       // that rose after they had closed
	Hits       uint64 `json:"over_admitted"`        // cost
	Under      uint64 `json:"under_admitted"`       // cost, where it is known what was asked for
	Known      uint64 `json:"windows_demand_known"` // where it is
}

func (s *Sums) add(d *Sums) {
	s.Windows += d.Windows
	s.Over += d.Over
	s.Incomplete += d.Incomplete
	s.ToldSince += d.ToldSince
	s.Amended += d.Amended
	s.Hits = crdt.SatAdd(s.Hits, d.Hits)
	s.Under = crdt.SatAdd(s.Under, d.Under)
	s.Known += d.Known
}

// Worst is the window that was furthest above its ceiling.
type Worst struct {
	Ratio   float64       `json:"ratio"` // above the ceiling, as a part of the limit
	Over    uint64        `json:"over"`
	Limit   uint64        `json:"limit"`
	Ceiling uint64        `json:"ceiling"`
	Key     deltasync.Key `json:"key,string"`
	Ended   time.Time     `json:"ended"`
}

// SetRules has the aggregator tell the truth of rates: it knows counters by their
// generation alone. What was found of those that stay is kept.
func (a *Aggregator) SetRules(set *limit.Set) {
	a.decided.setRules(set)
	t := &a.tallies
	t.mu.Lock()
	defer t.mu.Unlock()
	rates, passed, list, strict := map[uint64]known{}, map[rateName]*passings{}, []*tally(nil), int64(0)
	var was map[rateName]*passings
	if p := t.passed.Load(); p != nil {
		was = *p
	}
	var rest *tally
	if n := len(t.list); n > 0 && t.list[n-1].rule == others && t.list[n-1].name == "" {
		rest = t.list[n-1]
	}
	for _, rule := range set.Rules() {
		for i, rate := range rule.Rates {
			is := func(x *tally) bool {
				return x.namespace == rule.Namespace && x.rule == rule.Name && x.name == rate.Name
			}
			at, own := slices.IndexFunc(t.list, is), slices.IndexFunc(list, is)
			var x *tally
			switch {
			case own >= 0: // its name stands there twice
				x = list[own]
			case len(list) >= mostTallies:
				if rest == nil {
					rest = newTally("", others, "")
				}
				x = rest
			case at >= 0:
				x = t.list[at]
				list = append(list, x)
			default:
				x = newTally(rule.Namespace, rule.Name, rate.Name)
				list = append(list, x)
			}
			x.mu.Lock()
			x.rate = rate
			x.mu.Unlock()
			rates[rate.Generation] = known{rate, x, passingsOf(passed, was, rateName{rule.Namespace, rule.Name, rate.Name}, rate)}
			if lent := rule.Lent(); lent != nil && lent[i] != nil {
				rates[lent[i].Generation] = known{lent[i], x, nil}
			}
			if rate.Consistency == limit.Strict {
				strict = max(strict, int64(rate.Lasts()))
			}
		}
	}
	slices.SortStableFunc(list, func(x, y *tally) int {
		return cmp.Or(cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.rule, y.rule), cmp.Compare(x.name, y.name))
	})
	if rest != nil {
		list = append(list, rest)
	}
	t.list = list
	t.strict.Store(strict)
	t.passed.Store(&passed)
	t.rates.Store(&rates)
}

// account adds what the verdicts on a key say that was not said before.
func (v *truth) account(a *Aggregator, found []excess, e ends, key deltasync.Key) {
	d := Sums{Windows: e.windows, Incomplete: e.incomplete, ToldSince: e.toldSince, Amended: v.late}
	var more, less, ends, gone uint64
	grown := make([]excess, 0, 8)
	was := v.found
	worst := excess{}
	for _, x := range found {
		for len(was) > 0 && was[0].slice < x.slice {
			less, gone = less+v.counts(was[0]).hits, gone+v.counts(was[0]).over
			was = was[1:]
		}
		before := excess{}
		if len(was) > 0 && was[0].slice == x.slice {
			before, was = was[0], was[1:]
		}
		now, before := v.counts(x), v.counts(before)
		ends, gone = ends+crdt.SatSub(now.over, before.over), gone+crdt.SatSub(before.over, now.over)
		less += crdt.SatSub(before.hits, now.hits)
		if rise := crdt.SatSub(now.hits, before.hits); rise > 0 {
			more += rise
			grown = append(grown, excess{slice: x.slice, hits: rise})
		}
		if x.slice >= v.from && x.over > worst.over {
			worst = x
		}
	}
	for _, x := range was {
		less, gone = less+v.counts(x).hits, gone+v.counts(x).over
	}
	d.Hits, v.owed = settle(more, less, v.owed)
	d.Over, v.owedEnd = settle(ends, gone, v.owedEnd)
	t := v.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.add(&d)
	if v.home {
		t.home.add(&d)
	}
	if d.Hits > 0 {
		part := float64(d.Hits) / float64(more)
		for _, x := range grown {
			v.blame(a, x, part)
		}
	}
	if ratio := float64(worst.over) / float64(max(1, v.shape.Limit)); ratio > t.worst.Ratio {
		t.worst = Worst{
			Ratio: ratio, Over: worst.over, Limit: v.shape.Limit, Ceiling: v.inForce(worst.slice), Key: key,
			Ended: time.Unix(0, v.rate.EndOf(worst.slice)).UTC(),
		}
	}
}

// counts is what a verdict adds to the sums: hits, and one window, or nothing where it
// was another's to tell.
func (v *truth) counts(x excess) excess {
	switch {
	case x.slice < v.from:
		return excess{}
	case x.over > 0:
		x.over = 1
	}
	return x
}

// settle is what sums rise by: what is more, less what is less now, and less what they
// owe as it was told and is not so any more.
func settle(more, less, owed uint64) (rise, owes uint64) {
	less = crdt.SatAdd(less, owed)
	return crdt.SatSub(more, less), crdt.SatSub(less, more)
}

// blame says whose doing hits in a slice are; t.mu is held.
func (v *truth) blame(a *Aggregator, x excess, part float64) {
	t, all := v.tally, uint64(0)
	for i := range v.spenders {
		all += spentIn(v.spenders[i].cells.Get(x.slice))
	}
	hits := float64(x.hits) * part
	all = max(all, spentIn(v.total.Get(x.slice)))
	left := hits
	own := a.self.Node
	for i := range v.spenders {
		p := &v.spenders[i]
		if spent := spentIn(p.cells.Get(x.slice)); spent > 0 {
			by := hits * float64(spent) / float64(all)
			left -= by
			if slices.Contains(a.nodes, p.who) {
				charge(t.regions, p.who, by)
			} else {
				charge(t.regions, own, by)
				charge(t.pops, p.who, by)
			}
		}
	}
	if left > hits/1e6 {
		charge(t.regions, 0, left)
	}
}

// charge adds to what somebody did; where there are too many it is nobody's.
func charge(causes map[uint64]float64, who uint64, hits float64) {
	if _, has := causes[who]; !has && len(causes) >= mostCauses {
		who = 0
	}
	causes[who] += hits
}

// underAdmitted adds what was denied in a window though there was room, as far as is known.
func (v *truth) underAdmitted(hits uint64) {
	d, t := Sums{Under: hits, Known: 1}, v.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.add(&d)
	if v.home {
		t.home.add(&d)
	}
}
