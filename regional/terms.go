package regional

import (
	"cmp"
	"slices"
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

// mostTerms bounds the PoPs of which terms are kept, of each key.
const mostTerms = 16

// term is how long a PoP has kept a key out.
type term struct {
	pop         uint64
	from, until int64
}

// counts says that the term lasts, or that its PoP rests from it: for as much time as it
// took. One from later on was set before a clock was set back.
func (t *term) counts(now int64) bool {
	return t.from == now || t.from < now && now < t.until+(t.until-t.from)
}

// heed is how much of a penalty that an edge tells is heeded: its end, an earlier one,
// or 0.
func (a *Aggregator) heed(l *lane, c *counter, up *deltasync.Up, until, now int64) int64 {
	if !lasts(until, now) {
		return until // nobody heeds it
	}
	t := c.penalty.term(deltasync.PopOf(up.Node), now)
	most := int64(limit.LongestTerm(c.shape.Window()))
	// Whether it has more to show is worked out only where that matters.
	if (now >= t.until || until > t.from+most) && t.from < now && l.evident(c, now) {
		*t = term{pop: t.pop, from: now, until: now}
	}
	switch {
	case now >= t.until && t.from < now: // it has to rest
		a.stats.clamped.Add(1)
		return 0
	case until > t.from+most:
		a.stats.clamped.Add(1)
		until = t.from + most
	}
	t.until = max(t.until, until)
	return until
}

// evident says that a key has used so much of its limit that somebody may have been
// denied.
func (l *lane) evident(c *counter, now int64) bool {
	return c.shape.Limit > 0 && l.used(c, now) >= percent(c.shape.Limit, 50)
}

// term is a PoP's, a new one if it has none or has rested. Where there are too many, the
// one that is over first makes way.
func (p *penalty) term(pop uint64, now int64) *term {
	p.forgetTerms(now)
	if p.terms == nil {
		p.terms = &[]term{}
	}
	all := *p.terms
	at := slices.IndexFunc(all, func(t term) bool { return t.pop == pop })
	if at < 0 && len(all) >= mostTerms {
		first := slices.MinFunc(all, func(a, b term) int { return cmp.Compare(a.until, b.until) })
		all = slices.DeleteFunc(all, func(t term) bool { return t == first })
	}
	if at < 0 {
		at, all = len(all), append(all, term{pop: pop, from: now, until: now})
	}
	*p.terms = all
	return &all[at]
}

// forgetTerms forgets those of PoPs that have rested.
func (p *penalty) forgetTerms(now int64) {
	if p.terms == nil {
		return
	}
	*p.terms = slices.DeleteFunc(*p.terms, func(t term) bool { return !t.counts(now) })
	if len(*p.terms) == 0 {
		p.terms = nil
	}
}

// kept says that something of the penalty is to be kept: it lasts, or somebody who set
// it has to rest.
func (p *penalty) kept(now int64) bool {
	return p.at(now) != 0 || p.terms != nil && slices.ContainsFunc(*p.terms, func(t term) bool { return t.counts(now) })
}

func (p *penalty) bytes() int {
	if p.terms == nil {
		return 0
	}
	return int(unsafe.Sizeof(*p.terms)) + cap(*p.terms)*int(unsafe.Sizeof(term{}))
}
