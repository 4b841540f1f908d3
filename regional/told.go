package regional

import (
	"cmp"
	"slices"
	"time"
)

// RateTruth is what was true of a rate since this aggregator started: of the slices
// that have closed, of keys that had used much of their limit.
type RateTruth struct {
	Namespace string `json:"namespace"`
	Rule      string `json:"rule"`
	Rate      string `json:"rate"`
	Algorithm string `json:"algorithm"`
	Limit     uint64 `json:"limit"`   // the rule's own; tenants may have others
	Ceiling   uint64 `json:"ceiling"` // with its margins: what is above that is too much
	WindowMS  int64  `json:"window_ms"`
	Judged    bool   `json:"judged"` // false: by slices nothing can be said of the algorithm
	Keys      int    `json:"keys_watched"`
	// Seen is of all keys of lanes that are this aggregator's, and Reported of those of
	// them that this region reports: each key is reported by one region, so that sums
	// over all regions, and all aggregators of each, count nothing twice.
	Seen     Sums    `json:"seen"`
	Reported Sums    `json:"reported"`
	Worst    *Worst  `json:"worst,omitempty"` // of all keys seen
	Regions  []Cause `json:"caused_by_region"`
	PoPs     []Cause `json:"caused_by_pop"` // of this region
}

// Cause is what somebody admitted of what was too much: see truth.go.
type Cause struct {
	Name string  `json:"name"` // "": it is not known who
	Hits float64 `json:"over_admitted"`
}

// HasRules says that it is known what the rules are: else no truth can be told.
func (a *Aggregator) HasRules() bool { return a.tallies.rates.Load() != nil }

// UnknownRates is how many rates edges counted by of late that its rules do not have.
func (a *Aggregator) UnknownRates(now time.Time) int { return a.tallies.unknowns(a.clock.At(now)) }

// Truth is what was true of the rates of a rule; of all rules where it is "", and of
// all namespaces where that is.
func (a *Aggregator) Truth(namespace, rule string) []RateTruth {
	keys := map[*tally]int{}
	for _, l := range a.lanes {
		l.mu.Lock()
		for _, v := range l.truths.of {
			keys[v.tally]++
		}
		l.mu.Unlock()
	}
	a.tallies.mu.Lock()
	list := slices.Clone(a.tallies.list)
	a.tallies.mu.Unlock()
	out := []RateTruth{}
	for _, t := range list {
		if (namespace == "" || t.namespace == namespace) && (rule == "" || t.rule == rule) {
			r := a.read(t)
			r.Keys = keys[t]
			out = append(out, r)
		}
	}
	return out
}

// read is what a tally holds.
func (a *Aggregator) read(t *tally) RateTruth {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := RateTruth{
		Namespace: t.namespace, Rule: t.rule, Rate: t.name, Seen: t.seen, Reported: t.home, Judged: judged(t.rate),
		Algorithm: t.rate.Algorithm.String(), Limit: t.rate.Limit, Ceiling: t.rate.CeilingOf(t.rate.Limit), WindowMS: t.rate.Window.Milliseconds(),
	}
	if t.worst.Over > 0 {
		worst := t.worst
		r.Worst = &worst
	}
	r.Regions = causes(t.regions, func(who uint64) string {
		if j := slices.Index(a.nodes, who); j >= 0 {
			return a.cfg.Peers[j]
		} else if who == a.self.Node {
			return a.cfg.Region
		}
		return ""
	})
	r.PoPs = causes(t.pops, a.pops.name)
	return r
}

// causes lists who did what, the most first.
func causes(of map[uint64]float64, name func(uint64) string) []Cause {
	byName := map[string]float64{}
	for who, hits := range of {
		byName[name(who)] += hits
	}
	list := make([]Cause, 0, len(byName))
	for n, hits := range byName {
		list = append(list, Cause{n, hits})
	}
	slices.SortFunc(list, func(x, y Cause) int { return cmp.Or(cmp.Compare(y.Hits, x.Hits), cmp.Compare(x.Name, y.Name)) })
	return list
}

// RegionState is how another region, or this one, takes part.
type RegionState struct {
	Region string `json:"region"`
	// State is self; ok; catching_up, as it was silent and has yet to tell what it
	// counted meanwhile; deaf: it is heard, and says that it hears nothing of this
	// region; silent: slices close without it as incomplete; never_heard, by no
	// aggregator of the region for a day: nothing waits for it; or unknown, as this
	// aggregator does not hear it, and the store does not say whether others do. One that
	// owns no lane hears nobody, and knows what the store says alone.
	State    string     `json:"state"`
	Heard    *time.Time `json:"heard,omitempty"`      // last
	Told     *time.Time `json:"told_until,omitempty"` // slices that ended well before are known of it
	WayMS    int64      `json:"one_way_ms"`           // how long frames take to it; 0: not known
	Unstored bool       `json:"store_down"`           // it took counts that its store lacks
	// Unheard is the regions of which it says it heard nothing for 2 s. It and they keep to the
	// parts of limits that they had, and so does who hears both.
	Unheard []string `json:"unheard,omitempty"`
}

// Regions is how all regions take part, this one last.
func (a *Aggregator) Regions(now time.Time) []RegionState {
	t := a.clock.At(now)
	out := make([]RegionState, 0, len(a.cfg.Peers)+1)
	at := func(t int64) *time.Time {
		if t == 0 {
			return nil
		}
		u := time.Unix(0, t).UTC()
		return &u
	}
	for j, peer := range a.cfg.Peers {
		v := a.spoken.read(j)
		r := RegionState{Region: peer, State: "ok", Heard: at(v.last), Told: at(v.told())}
		told, noted := a.ties.elsewhere(j, t)
		idle := a.firstOwned() == 64 && passed(v.last, t, int64(quietFor))
		if idle && told > v.last {
			r.Heard, r.Told = at(told), at(told)
		}
		switch {
		case idle && !noted, v.last == 0 && a.links.unread.Load():
			r.State = "unknown"
		case idle && told > 0 && !passed(told, t, int64(quietFor+2*tiesEvery)): // it was noted, and then read
		case v.last == 0:
			r.State = "never_heard"
		case passed(v.last, t, int64(quietFor)):
			r.State = "silent"
		case a.links.deaf[j].Load() && a.links.suspects(j, a.cfg.Interval, t):
			r.State = "deaf"
		case v.told() != v.last:
			r.State = "catching_up"
		}
		r.Unheard = a.unheardBy(j, t)
		a.links.mu.Lock()
		r.WayMS = time.Duration(a.links.ways[j]).Milliseconds()
		a.links.mu.Unlock()
		for _, l := range a.lanes {
			l.mu.Lock()
			r.Unstored = r.Unstored || l.peers[j].unstored
			l.mu.Unlock()
		}
		out = append(out, r)
	}
	return append(out, RegionState{Region: a.cfg.Region, State: "self", Unstored: a.store.away.Load() > 0})
}
