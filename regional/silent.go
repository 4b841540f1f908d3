package regional

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// An edge that is cut off from its region, which lives, goes on with the share that it
// had. So that is kept for it, here and, as it is told, in the other regions: nobody can
// tell it from an edge that has died. One that is heard and hears nothing, as what is cut
// is one direction alone, says so (FeatureDeaf), and is silent likewise: it keeps to what
// it had, whatever it is asked for, until it takes its leave. One that dies is soon given up
// by those who route to it, as one that is cut off is not; until then little is lost by what
// is kept for it. Later on an edge's equal part is kept, and then nothing: the edge has an
// equal part for as long as it is cut off.

const (
	// KeepFair is how long after it fell silent an edge has anything kept for it.
	KeepFair = time.Minute
	// keepTold is how long what another region keeps counts after it was told, and
	// tellKept how often that is told again.
	keepTold = 10 * time.Second
	tellKept = 2 * time.Second
)

// presence is when an edge was last heard of in a lane: who has a share there says so.
type presence struct {
	at          int64
	incarnation uint64
	left        bool // it took its leave, or is heard of elsewhere
	supposed    bool // by what it counted alone: see absent.go
}

// meet notes that an edge is there, or that it takes its leave. mu is held.
func (l *lane) meet(up *deltasync.Up, now int64) {
	p, leaves := l.present[up.Node], up.Features&deltasync.FeatureLeaves != 0
	switch {
	case p == nil && len(l.present) >= mostAskers && !l.forgetSilent(now) && !l.forgetOneOfMany(up.Node):
		return
	case p == nil:
		p = &presence{}
		l.present[up.Node] = p
	case up.Features&deltasync.FeatureDeaf != 0 && !leaves: // that counts, as there may be no other frame
		return
	case up.Incarnation < p.incarnation:
		return // it was on its way for long
	}
	p.left = leaves || p.left && up.Incarnation == p.incarnation
	p.at, p.incarnation, p.supposed = now, up.Incarnation, false
}

// forgetSilent makes room for other edges, if any is silent for so long that nothing is
// kept for it.
func (l *lane) forgetSilent(now int64) (some bool) {
	for node, p := range l.present {
		if p.left || now-p.at > int64(KeepFair) || p.at > now {
			delete(l.present, node)
			some = true
		}
	}
	return some
}

// forgetOneOfMany makes room for an edge by one of a PoP that has more than half of the
// places, if another does: its edges may be invented.
func (l *lane) forgetOneOfMany(node uint64) bool {
	crowd, lead := uint64(0), 0
	for other := range l.present { // who has more than half is left (Boyer and Moore, 1981)
		switch pop := deltasync.PopOf(other); {
		case lead == 0:
			crowd, lead = pop, 1
		case pop == crowd:
			lead++
		default:
			lead--
		}
	}
	n, first := 0, uint64(math.MaxUint64)
	for other := range l.present {
		if deltasync.PopOf(other) == crowd {
			n, first = n+1, min(first, other)
		}
	}
	if n <= mostAskers/2 || deltasync.PopOf(node) == crowd {
		return false
	}
	l.present[first].left = true
	delete(l.present, first)
	return true
}

// loseSight forgets who is there: another aggregator serves the lane, and hears of them.
func (l *lane) loseSight() {
	for _, p := range l.present {
		p.left = true
	}
	clear(l.present)
}

// claims says that an edge has a part of the limit, should it be silent: it is asked for
// the key, or was shortly before it was last heard of; else it need not go on to say that
// it is there. And it has not gone, nor has another life of it begun.
func (e *asker) claims() bool {
	return e.edge != nil && !e.edge.left && e.edge.incarnation == e.life && e.edge.at-e.at < int64(deltasync.ShareKept/2)
}

// keep finds the edges that are silent, which count for nothing in the contest, and what
// of the limit is kept for them.
func (a *Aggregator) keep(c *counter, now int64) {
	t := c.contest
	if age := now - t.keptAt; age >= 0 && age < int64(a.cfg.Interval)/2 {
		return
	}
	sum := a.sumOf(c, now) // of all that were there a moment ago
	t.keptAt, t.kept, t.keptSpent = now, 0, 0
	for i := range t.edges {
		e := &t.edges[i]
		if !e.claims() {
			e.part, e.silent = 0, false
			continue
		}
		e.edge.at = min(e.edge.at, now) // a clock was set back
		silence := time.Duration(now - e.edge.at)
		if silence <= a.bears(e) {
			e.part, e.silent = 0, false
			continue
		}
		if !e.silent {
			e.silent, e.part, e.fair = true, a.partOf(c, e, sum, now), a.equalPart(c, e.node, 1, now)
			t.sums.at = 0 // it is none of them any more
		}
		kept, spent := a.keptFor(c, e, silence, now)
		t.kept, t.keptSpent = t.kept+kept, t.keptSpent+spent
	}
}

// bears is how long an edge may say nothing until it is taken to be silent: not long if it
// was asked for the key until then, as it says something in each interval.
func (a *Aggregator) bears(e *asker) time.Duration {
	if e.edge.at-e.at < int64(a.patience()) {
		return 4 * a.cfg.Interval
	}
	return a.lately()
}

// keptFor is the cost that is kept for an edge which has been silent for so long, beside what
// it has spent of its part.
func (a *Aggregator) keptFor(c *counter, e *asker, silence time.Duration, now int64) (kept, spent float64) {
	limit := float64(c.shape.Limit)
	if !c.shape.Bucket() { // as of regions
		spent = float64(c.spentAt(e.node, now))
	}
	part, fair := e.part*limit, 0.0
	if silence <= KeepFair {
		fair = min(e.part, e.fair) * limit
	}
	switch {
	case silence <= deltasync.ShareKept:
		return max(0, part-spent), min(part, spent)
	case silence <= deltasync.ShareKept+c.shape.Window(): // it may have spent that by then
		return min(max(0, part-spent), max(0, fair-spent, 2*e.demand.Fast*deltasync.ShareKept.Seconds())), min(part, spent)
	}
	return max(0, fair-spent), min(fair, spent)
}

// partOf is the part of the limit that an edge has that fell silent: what it was told
// last, as of all in the contest it was told.
func (a *Aggregator) partOf(c *counter, e *asker, sum float64, now int64) float64 {
	s := limit.SpansOf(c.shape.Window())
	d := e.since(s, paceOf(c.shape), a.patience(), e.edge.at)
	own, least := d.Steady(s), a.least(c)
	edges := a.liveBeside(now, e.node) // each weighs its part of the least, as it does there
	return c.contest.part * (own + least/float64(edges)) / (max(sum, own) + least)
}

// equalPart is that of an edge, one of so many, of which its region knows nothing but that it
// is there.
func (a *Aggregator) equalPart(c *counter, node uint64, of int, now int64) float64 {
	regions := len(a.cfg.Peers) + 1
	if c.shape.Regional {
		regions = 1
	}
	edges, _ := a.live(now)
	with := float64(edges+of) / float64(max(1, edges)) // they may not be counted any more
	return 1 / (float64(regions*a.liveBeside(now, node)) * with)
}

// spentAt is what an edge is known to have spent in the window.
func (c *counter) spentAt(node uint64, now int64) (sum uint64) {
	entries := entriesOf(c.edges.Entries(), node)
	for i := range entries {
		sum = crdt.SatAdd(sum, c.spentOf(&entries[i].Vector, now))
	}
	return sum
}

// keptChanged says that the other regions should hear what is kept.
func (t *contest) keptChanged(limit uint64, now int64) bool {
	off := math.Abs(t.kept - t.telling.cost)
	return (t.kept == 0) != (t.telling.cost == 0) || off > float64(limit)/50 || t.kept+t.keptSpent > 0 && passed(t.telling.at, now, int64(tellKept))
}
