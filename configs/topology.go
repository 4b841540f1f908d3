package configs

import (
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Bounds of a topology.
const (
	maxTopologyRegions = 1000
	maxTopologyEdges   = 100_000 // of a region
	maxTopologyDelay   = 10 * time.Second
)

// ReadTopology reads where limits are to hold, for CheckRulesOver:
//
//	regions: {eu: 2, us: 10}                              # edges of each
//	delay: {region: 80ms, edge: 5ms}                      # one way: between regions, and from an edge to its own
//	sync: {interval: 100ms, urgent_interval: 20ms}        # as in the settings; these are the defaults
//
// The warnings are of what no limit holds over. The error is a *RulesError where the file
// could be read, but not understood.
func ReadTopology(file string) (t limit.Topology, warnings []Mistake, err error) {
	text, err := readFile(file)
	if err != nil {
		return t, nil, fmt.Errorf("topology: %w", err)
	}
	src := newSource(file, text)
	trees, mistakes := parseTree(src, text)
	if len(mistakes) > 0 {
		return t, nil, &RulesError{Mistakes: sortMistakes(mistakes)}
	}
	r := newReader(src)
	switch len(trees) {
	case 0:
		r.mistake("", position{}, "E004", "such as regions: {eu: 2, us: 2}", "the file is empty")
	case 1:
		t = r.topology(trees[0])
	default:
		r.mistake("", trees[1].at, "E231", "one file, one topology", "a second document")
	}
	if len(r.mistakes) > 0 {
		return t, nil, &RulesError{Mistakes: sortMistakes(r.mistakes)}
	}
	for _, p := range distant(t) {
		warnings = append(warnings, r.mistakeOf(p))
	}
	return t, warnings, nil
}

func (r *reader) topology(n *node) limit.Topology {
	t := limit.Topology{Between: 80 * time.Millisecond, Within: 5 * time.Millisecond, Interval: 100 * time.Millisecond, UrgentGap: 20 * time.Millisecond}
	most := func(dst *time.Duration, least, most time.Duration) read {
		return func(path string, n *node) {
			r.duration(dst)(path, n)
			if !r.bad[path] && (*dst < least || *dst > most) {
				r.mistake(path, n.at, "E013", fmt.Sprintf("%s to %s", durationText(least), durationText(most)), "%s is out of range", clip(n.text))
			}
		}
	}
	r.object("", n, []field{
		{"regions", "such as regions: {eu: 2, us: 2}, the edges of each", r.topologyRegions(&t)},
		{"delay", "", func(path string, n *node) {
			r.object(path, n, []field{{"region", "", most(&t.Between, 0, maxTopologyDelay)}, {"edge", "", most(&t.Within, 0, maxTopologyDelay)}})
		}},
		{"sync", "", func(path string, n *node) {
			r.object(path, n, []field{
				{"interval", "", most(&t.Interval, 10*time.Millisecond, time.Minute)},
				{"urgent_interval", "", most(&t.UrgentGap, time.Millisecond, time.Minute)},
			})
			if !r.reported(path) && t.UrgentGap > t.Interval {
				r.mistake(path, n.at, "E231", "make it shorter, or the interval longer", "urgent_interval, %v, is longer than interval, %v", t.UrgentGap, t.Interval)
			}
		}},
	})
	return t
}

// topologyRegions reads {eu: 2, us: 10}.
func (r *reader) topologyRegions(t *limit.Topology) read {
	return func(path string, n *node) {
		switch {
		case n.kind != kindMapping:
			r.wrongKind(path, n, "a mapping of regions to how many edges they have", "such as regions: {eu: 2, us: 2}")
			return
		case len(n.entries) < 1 || len(n.entries) > maxTopologyRegions:
			r.mistake(path, n.at, "E231", "such as regions: {eu: 2, us: 2}", "%d regions; a topology has 1 to %d", len(n.entries), maxTopologyRegions)
			return
		}
		for _, e := range n.entries {
			at, edges := join(path, e.key), 0.0
			if e.key == "" {
				r.mistake(at, e.at, "E231", "such as eu: 2", "a region without a name")
				continue
			}
			r.number(&edges)(at, e.value)
			if r.bad[at] {
				continue
			}
			if edges < 1 || edges > maxTopologyEdges || edges != math.Trunc(edges) {
				r.mistake(at, e.value.at, "E231", fmt.Sprintf("1 to %d", maxTopologyEdges), "%s edges are out of range", clip(e.value.text))
				continue
			}
			t.Regions, t.Edges, t.Largest = t.Regions+1, t.Edges+int(edges), max(t.Largest, int(edges))
		}
	}
}

// CheckRulesOver is CheckRules with what a topology makes of the limits: it refuses
// those that cannot be held over it, and warns of those that are exceeded by much.
func CheckRulesOver(t limit.Topology, paths ...string) (set *limit.Set, warnings []Mistake, err error) {
	return FormatSpillgate.CheckOver(t, paths...)
}

// strains are the rates that are not held well over a topology.
func strains(docs []parsed, set *limit.Set, t limit.Topology) (refused, strained []Mistake) {
	rest := set.Rules() // they stand in the order of the documents, candidates behind the rules of theirs
	for i := range docs {
		first := 0
		if len(rest) > 0 {
			first = rest[0].Index
		}
		for ; len(rest) > 0 && rest[0].Namespace == docs[i].doc.Namespace; rest = rest[1:] {
			told, path := docs[i].reader.mistakeOf, fmt.Sprintf("rules[%d]", rest[0].Index-first)
			if live := rest[0].Live; live != nil {
				path = fmt.Sprintf("rules[%d].candidate", live.Index-first)
			}
			no, hardly := rest[0].Strains(path, t)
			for _, p := range no {
				refused = append(refused, told(p))
			}
			for _, p := range hardly {
				strained = append(strained, told(p))
			}
		}
	}
	return refused, strained
}
