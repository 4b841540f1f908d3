package regional

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// While regions are cut off from each other each side keeps to the parts of a limit
// that its regions had when the cut came, by what was asked for in each. So both must
// know the same of a key, and go on to know it for as long as the cut lasts: a region
// where alone a key was asked for has all of the limit, only as the others leave it
// alone when the key is asked for there.

const (
	// keepFrozen is how long after a demand was last told a contest is kept for what a
	// region had of it that is cut off. Who comes back to the key later has what one has
	// of a key that was first asked for during the cut.
	keepFrozen = time.Hour
	// mostFrozen bounds the contests of a lane that are kept for that alone.
	mostFrozen = republished
)

// freeze gives regions that fell silent, a bit each, the parts that they had, and takes
// them back from those that speak again.
func (a *Aggregator) freeze(c *counter, silent uint64) {
	t := c.contest
	if c.shape.Limit == 0 || c.shape.Regional {
		return
	}
	for j := range t.regions {
		switch r := &t.regions[j]; {
		case silent>>j&1 == 0:
			r.frozen = 0
		case r.frozen == 0:
			r.frozen = a.had(c, j)
		}
	}
}

// had is the part of the limit that a region has which has just fallen silent, as both
// sides know it. A region that told of no demand has none, or next to none; of a key
// that it cannot have told of in time nobody knows where it is asked for more.
func (a *Aggregator) had(c *counter, j int) float64 {
	t, pace, least := c.contest, paceOf(c.shape), a.least(c)
	silent := a.links.waiting[j].Load()
	if r := &t.regions[j]; r.at == 0 && t.began+a.tells(j) > silent {
		return 1 / float64(len(t.regions)+1)
	}
	all := t.seen(silent).weight + least // of this region as the other side has it
	for i := range t.regions {
		all += t.regions[i].weight(pace) + least
	}
	return (t.regions[j].weight(pace) + least) / all
}

// tells is how long it takes a region at the most to tell this one what is asked for.
func (a *Aggregator) tells(j int) int64 {
	a.links.mu.Lock()
	defer a.links.mu.Unlock()
	return int64(2*a.cfg.Interval) + a.links.ways[j]*13/10
}

// least is what a region weighs where nothing is asked for.
func (a *Aggregator) least(c *counter) float64 {
	return limit.LeastWeight(c.shape.Limit, c.shape.Window(), len(a.cfg.Peers)+1)
}

// keeps says that a contest is not to be forgotten, one of so many, though nobody asks:
// a region is cut off, and has a part that would not be known else.
func (t *contest) keeps(now int64, contests int) bool {
	if contests > mostFrozen || now-t.heard > int64(keepFrozen) {
		return false
	}
	for j := range t.regions {
		if f := t.regions[j].frozen; f != 0 && f != 1/float64(len(t.regions)+1) {
			return true
		}
	}
	return false
}
