package regional

import (
	"unsafe"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Penalties are a sender's to invent, as counts are. A PoP that has no more to show
// than the penalty itself keeps a key out for a term, and for as long as that lasted
// what it tells is then not heeded: half of the time at the most, and so long in a row,
// however often it tells a later end. With a key that has used half of its limit
// anybody may keep it out anew, as he may by counting. Edges themselves heed what they
// set for as long as they set it for, and nothing longer than their rule's.
//
// Terms are remembered beside the counters, as a PoP can have its own of these forgotten.
// Of more keys than there is room for it keeps none out with nothing to show.
// Another aggregator that comes to serve the lane does not know them: where lanes change
// hands once a term, a key may be kept out for all of the time.

// mostTerms bounds the keys of a lane that a PoP keeps out, or rests from, with nothing
// to show.
const mostTerms = 1024

// term is how long a PoP has kept a key out.
type term struct{ from, until int64 }

// terms are those of a lane.
type terms struct {
	pops  map[uint64]map[deltasync.Key]term
	bytes int
}

// counts says that the term lasts, or that its PoP rests from it: for as much time as it
// took. One from later on was set before a clock was set back.
func (t *term) counts(now int64) bool {
	return t.from == now || t.from < now && now < t.until+(t.until-t.from)
}

// heed is how much of a penalty that an edge tells is heeded: its end, an earlier one,
// or 0.
func (a *Aggregator) heed(l *lane, key deltasync.Key, c *counter, up *deltasync.Up, until, now int64) int64 {
	if !lasts(until, now) || until <= c.penalty.at(now) {
		return until // it changes nothing
	}
	pop := deltasync.PopOf(up.Node)
	if l.evident(c, now) {
		l.terms.forget(pop, key)
		return min(until, now+int64(limit.LongestTerm(c.shape.Window())))
	}
	t, ok := l.terms.of(pop, key, now)
	switch {
	case !ok || now >= t.until && t.from < now: // it has to rest
		a.stats.clamped.Add(1)
		return 0
	case until > t.from+int64(limit.LongestTerm(c.shape.Window())):
		a.stats.clamped.Add(1)
		until = t.from + int64(limit.LongestTerm(c.shape.Window()))
	}
	t.until = max(t.until, until)
	l.terms.set(pop, key, t)
	return until
}

// evident says that a key has used so much of its limit that somebody may have been
// denied.
func (l *lane) evident(c *counter, now int64) bool {
	return c.shape.Limit > 0 && l.used(c, now) >= percent(c.shape.Limit, 50)
}

// of is a PoP's term of a key, a new one if it has none or has rested; false: there is
// no room for one.
func (t *terms) of(pop uint64, key deltasync.Key, now int64) (term, bool) {
	had, ok := t.pops[pop][key]
	switch {
	case ok && had.counts(now):
		return had, true
	case !ok && len(t.pops[pop]) >= mostTerms:
		return term{}, false
	}
	return term{now, now}, true
}

func (t *terms) set(pop uint64, key deltasync.Key, to term) {
	if t.pops == nil {
		t.pops = map[uint64]map[deltasync.Key]term{}
	}
	if t.pops[pop] == nil {
		t.pops[pop] = map[deltasync.Key]term{}
	}
	t.bytes -= bytesOf(t.pops[pop])
	t.pops[pop][key] = to
	t.bytes += bytesOf(t.pops[pop])
}

func (t *terms) forget(pop uint64, key deltasync.Key) {
	of := t.pops[pop]
	if _, ok := of[key]; !ok {
		return
	}
	t.bytes -= bytesOf(of)
	if delete(of, key); len(of) == 0 {
		delete(t.pops, pop)
		return
	}
	t.bytes += bytesOf(of)
}

// forgetTerms forgets those of PoPs that have rested.
func (l *lane) forgetTerms(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pop, of := range l.terms.pops {
		for key, had := range of {
			if !had.counts(now) {
				l.terms.forget(pop, key)
			}
		}
	}
}

func bytesOf(of map[deltasync.Key]term) int {
	if len(of) == 0 {
		return 0
	}
	return mapBytes(len(of), int(unsafe.Sizeof(deltasync.Key(0))+unsafe.Sizeof(term{})))
}
