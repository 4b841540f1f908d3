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

// boundRatios are error_bound and error_bound_surge as parts of a limit.
type boundRatios struct{ now, surge float64 }

// or is the larger of each.
func (b boundRatios) or(o boundRatios) boundRatios {
	return boundRatios{max(b.now, o.now), max(b.surge, o.surge)}
}

// ruleBound is what that is for a rate of that generation.
type ruleBound struct {
	generation uint64
	boundRatios
}

// bounds are the largest of late, by generation: of this span and of the one before.
type bounds struct {
	mu           sync.Mutex // guards what follows
	since        int64
	latest, last map[uint64]boundRatios
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
		b.latest[s.generation] = b.latest[s.generation].or(s.boundRatios)
	}
}

// turn begins a span anew where one is over. b.mu is held.
func (b *bounds) turn(now int64) {
	switch past := now - b.since; {
	case b.latest == nil || past < 0 || past >= 2*int64(boundSpan):
		b.latest, b.last, b.since = map[uint64]boundRatios{}, nil, now
	case past >= int64(boundSpan):
		b.latest, b.last, b.since = map[uint64]boundRatios{}, b.latest, now
	}
}

// boundRatios are those of a live record. s.mu is held.
func (s *shard) boundRatios(r *record, now int64) boundRatios {
	rate := r.block.rate
	b, limit := s.bound(r, rate, 1, now), float64(max(1, rate.Limit))
	return boundRatios{float64(b.Now) / limit, float64(b.Surge) / limit}
}

// boundOf is what metrics tell of a rule.
type boundOf struct {
	namespace, rule string
	boundRatios
}

// mostBounds is how many rules have a series of their own; of the others the largest
// bound counts, under the name otherRules.
const (
	mostBounds = 500
	otherRules = "other"
)

// boundsByRule is the largest bound of each rule, of those that others count for too; and, of
// those that no document has, only where there is something to tell. While it is not known how
// many others there are, nothing is told of a rule that may be exceeded: 0 would say that it is not.
func (n *Node) boundsByRule(now int64) (out []boundOf) {
	set := n.Rules()
	if set == nil {
		return nil
	}
	n.bounds.mu.Lock()
	defer n.bounds.mu.Unlock()
	n.bounds.turn(now)
	others, heard := map[string]boundRatios{}, n.cluster.regions.Load() > 0 // by namespace
	for _, rule := range set.Rules() {
		ratios, shared, unknown := boundRatios{}, false, false
		for _, rate := range rule.Rates {
			shared = shared || rate.Scope != limit.ScopeEdge
			unknown = unknown || !heard && rate.Scope != limit.ScopeEdge && rate.Consistency != limit.Strict
			ratios = ratios.or(n.bounds.latest[rate.Generation]).or(n.bounds.last[rate.Generation])
		}
		switch {
		case !shared, unknown, rule.Brought && ratios == (boundRatios{}):
		case len(out) < mostBounds:
			out = append(out, boundOf{rule.Namespace, rule.Name, ratios})
		default:
			others[rule.Namespace] = others[rule.Namespace].or(ratios)
		}
	}
	for namespace, ratios := range others {
		out = append(out, boundOf{namespace, otherRules, ratios})
	}
	return out
}
