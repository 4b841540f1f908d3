package regional

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// It takes a while until two regions that are cut off from each other know it (suspect.go).
// Until then each shares by what it heard last of the other: what that has spent leaves the
// window, so that there seems to be more left, while the other spends on; and likewise there.
// What both admit too much by that grows with the time that nothing was heard, and is gone
// about as long after they know, as each has more than its part, and admits nothing until
// that has left the window. A bucket's is in its own bounds (edge/limit).

// deviations is the quantile of 99.9 % of a normal distribution, as of bounds (edge/limit).
const deviations = 3.09

// unheard is a time of which it is not known what a peer counted, as nothing was heard of it
// for longer than usual, until it was known to be cut off, or until now.
type unheard struct {
	from, to int64 // 0: there was none
	over     bool
}

// paused notes that a peer speaks that said nothing for so long.
func (l *links) paused(j int, lasted int64) {
	lasted = max(0, min(lasted, int64(time.Second)))
	usual := l.pauses[j].Load()
	l.pauses[j].Store(max(lasted, usual-(usual-lasted)/64))
}

// unheardOf is the last such time of a peer, if it was not heard since. What it told last it
// had counted one way ago. One that has something to tell does so each interval, and another
// answers: it says nothing for two at the most.
func (a *Aggregator) unheardOf(j int, now int64) unheard {
	l, interval := &a.links, int64(a.cfg.Interval)
	last, usual := l.hearsAt[j].Load(), min(max(l.pauses[j].Load(), interval), interval*3/2+int64(suspicion))
	l.mu.Lock()
	defer l.mu.Unlock()
	u, cut := &l.unheard[j], l.late(j, a.cfg.Interval, now)
	silent := last != 0 && l.ways[j] != 0 && now-last > usual+interval/2
	found := last + l.ways[j]*26/10 + 3*interval + int64(suspicion) // when that was, if nobody looked
	switch {
	case silent && !cut:
		*u = unheard{last - l.ways[j], now, false}
	case silent && !u.over:
		*u = unheard{last - l.ways[j], min(now, found), true}
	case !u.over || u.to > now: // it is heard, so there is no cut; or a clock was set back
		*u = unheard{}
	}
	return *u
}

// fades is how much of what was too much is left, at the most, since it is known that there is
// a cut: it goes about as it came.
func (u *unheard) fades(now int64) float64 {
	if u.from == 0 {
		return 0
	}
	return max(0, 1-float64(now-u.to)/float64(u.to-u.from))
}

// blind is the cost by which all may exceed a counter's limit by what they do not hear of each
// other: each side of a cut takes its part of what left the window of the other's, by chance
// more. Where those that are silent do not hear each other either all do so.
func (a *Aggregator) blind(c *counter, now int64) float64 {
	if c.shape.Bucket() || len(a.nodes) >= limit.MeshRegions { // else not all speak to each other
		return 0
	}
	left, away, alone := 0.0, 0.0, 0.0
	for j := range a.nodes {
		u := a.unheardOf(j, now)
		if u.fades(now) == 0 {
			continue
		}
		part := a.partNow(c, j, now)
		left, away, alone = max(left, c.leaves(u.from, u.to)*u.fades(now)), away+part, alone+part*(1-part)
	}
	here := max(0, 1-away)
	cost := left * max(2*away*here, alone+here*away)
	return cost + deviations*math.Sqrt(cost)
}

// leaves is what left the window from an instant to another, as it was charged that long before.
func (c *counter) leaves(from, to int64) (cost float64) {
	width, window := int64(c.shape.Width), int64(c.shape.Window())
	from, to = from-window, to-window
	if began := c.contest.began; began > from+window { // all of the window before
		to = began
	}
	for _, v := range []*crdt.Vector{c.edges.Sums(), c.regions.Sums()} {
		for i := range v.Len() {
			cell := v.At(i)
			start := int64(cell.Slice) * width
			if over := min(to, start+width) - max(from, start); over > 0 {
				cost += float64(cell.Net()) * float64(over) / float64(width)
			}
		}
	}
	return min(cost, float64(c.shape.Limit))
}

// partNow is the part of the limit that a region has.
func (a *Aggregator) partNow(c *counter, j int, now int64) float64 {
	t, least := c.contest, a.least(c)
	if frozen := t.regions[j].frozen; frozen != 0 {
		return frozen
	}
	all := t.weight + least
	for k := range t.regions {
		if r := &t.regions[k]; r.frozen == 0 {
			all += r.weight(c.shape, now) + least
		}
	}
	return t.shared() * (t.regions[j].weight(c.shape, now) + least) / all
}
