package edge

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// For metrics the largest bound of each rule is kept, of keys that are flushed as they
// are past half of their limits: only these may be above them. A flush looks at a few,
// the next one at others.

// boundsAFlush is how many keys a flush looks at: some 50 µs of work.
const boundsAFlush = 32

// boundSpan is how long a largest bound counts at the least, and twice that at the most.
const boundSpan = 15 * time.Second

// ruleBound is a bound as a part of the limit, of a rate of that generation.
type ruleBound struct {
	generation uint64
	ratio      float64
}

// bounds are the largest of late, by generation: of this span and of the one before.
type bounds struct {
	mu           sync.Mutex // guards what follows
	since        int64
	latest, last map[uint64]float64
}

// note takes in what a flush saw.
func (b *bounds) note(seen []ruleBound, now int64) {
	if len(seen) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	for _, s := range seen {
		b.latest[s.generation] = max(b.latest[s.generation], s.ratio)
	}
}

// turn begins a span anew where one is over. b.mu is held.
func (b *bounds) turn(now int64) {
	switch past := now - b.since; {
	case b.latest == nil || past < 0 || past >= 2*int64(boundSpan):
		b.latest, b.last, b.since = map[uint64]float64{}, nil, now
	case past >= int64(boundSpan):
		b.latest, b.last, b.since = map[uint64]float64{}, b.latest, now
	}
}

// boundRatio is the bound of a live record as a part of its limit. s.mu is held.
func (s *shard) boundRatio(r *record, now int64) float64 {
	rate := r.block.rate
	return float64(s.bound(r, rate, 1, now).Now) / float64(max(1, rate.Limit))
}

// boundOf is what metrics tell of a rule.
type boundOf struct {
	namespace, rule string
	ratio           float64
}

// mostBounds is how many rules have a series of their own; of the others the largest
// bound counts, under the name otherRules.
const (
	mostBounds = 500
	otherRules = "other"
)

// boundsByRule is the largest bound of each rule, of those that others count for too.
func (n *Node) boundsByRule(now int64) (out []boundOf) {
	set := n.Rules()
	if set == nil {
		return nil
	}
	n.bounds.mu.Lock()
	defer n.bounds.mu.Unlock()
	n.bounds.turn(now)
	others := map[string]float64{} // by namespace
	for _, rule := range set.Rules() {
		ratio, shared := 0.0, false
		for _, rate := range rule.Rates {
			shared = shared || rate.Scope != limit.ScopeEdge
			ratio = max(ratio, n.bounds.latest[rate.Generation], n.bounds.last[rate.Generation])
		}
		switch {
		case !shared:
		case len(out) < mostBounds:
			out = append(out, boundOf{rule.Namespace, rule.Name, ratio})
		default:
			others[rule.Namespace] = max(others[rule.Namespace], ratio)
		}
	}
	for namespace, ratio := range others {
		out = append(out, boundOf{namespace, otherRules, ratio})
	}
	return out
}
