package regional

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What counted in a rate's windows of late is kept by how much of the limit a key had: so
// it is known what a smaller limit would have denied, before it is in force. Each key is
// looked at once a window, at what counted in the last one, or, where windows are long,
// each five minutes, at what counts now. What was denied is in no count: it would be
// denied by less all the more.

const (
	// pieceFor is the time that is kept together, and mostPieces how many of them.
	pieceFor   = 5 * time.Minute
	mostPieces = 12
	// oftenest is how often a key is looked at at most: of shorter windows some are not.
	oftenest = 10 * time.Second
	// settles is how long ago a window has ended that is looked at, where it slides:
	// what is far from its limit is told a second late, and is kept for that long.
	settles = time.Second
)

// mostPassings bounds the rates that it is kept of; of each it is some kilobytes.
const mostPassings = 4096

// rateName is what a rate is called.
type rateName struct{ namespace, rule, rate string }

// passings is what counted in a rate's windows of late.
type passings struct {
	mu     sync.Mutex // guards what follows; taken with a lane's held
	rate   *limit.Rate
	since  int64 // when the first was looked at; 0: none was
	pieces [mostPieces]passing
}

// passingsOf is a rate's, in a set of rules that takes the place of another: that which it had, if it still counts
// the same.
func passingsOf(of, was map[rateName]*passings, name rateName, rate *limit.Rate) *passings {
	p := was[name]
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	switch {
	case len(of) >= mostPassings:
		return nil
	case p == nil || p.rate.Generation != rate.Generation:
		p = &passings{}
	}
	p.rate = rate
	of[name] = p
	return p
}

// passing is that of five minutes.
type passing struct {
	number int64 // of all since the epoch
	bins   []bin // by size
}

// bin is windows of about the same size: half an octave, so that what is above a limit in
// some of them, and below in others, is little of the whole.
type bin struct {
	size    uint8 // see sizeOf
	windows uint32
	hits    float64 // in all of them, as parts of what the rule's own limit would be
}

// sizeOf is the bin of so many hits.
func sizeOf(hits float64) uint8 {
	size := uint8(0)
	for step := 1.0; step < hits && size < 250; size += 2 {
		if step *= 2; hits <= step*0.7071 {
			return size + 1
		}
	}
	return size
}

// note adds a window.
func (p *passings) note(hits float64, now int64) {
	number := now / int64(pieceFor)
	at := &p.pieces[number%mostPieces]
	if at.number != number {
		at.number, at.bins = number, at.bins[:0]
	}
	if p.since == 0 {
		p.since = now
	}
	size := sizeOf(hits)
	i := sort.Search(len(at.bins), func(i int) bool { return at.bins[i].size >= size })
	if i == len(at.bins) || at.bins[i].size != size {
		at.bins = slices.Insert(at.bins, i, bin{size: size})
	}
	at.bins[i].windows++
	at.bins[i].hits += hits
}

// notePassed looks at what counted of a key in its last window, if it was not looked at
// since that ended. The lane is held.
func (a *Aggregator) notePassed(l *lane, c *counter, rates map[uint64]known, now int64) {
	k, has := rates[c.shape.Generation]
	if !has || k.passed == nil || c.shape.Limit == 0 || c.shape.Width != k.rate.Width || k.rate.PerRequest {
		return
	}
	_, window := spanOf(c.shape, k.rate)
	turn := uint32(now/int64(min(max(window, oftenest), pieceFor))) | 1<<31
	if c.noted == turn {
		return
	}
	first := c.noted == 0
	c.noted = turn
	if first { // its window has just begun
		return
	}
	if hits := l.passedIn(c, k.rate, now); hits > 0 {
		k.passed.mu.Lock()
		k.passed.note(float64(hits)/float64(c.shape.Limit)*float64(k.rate.Limit), now)
		k.passed.mu.Unlock()
	}
}

// passedIn is what counted in the last window that has ended and is kept, or, where it is
// one that does not slide and is long, in the one that goes on.
func (l *lane) passedIn(c *counter, rate *limit.Rate, now int64) (hits uint64) {
	slices, window := spanOf(c.shape, rate)
	last := rate.SliceAt(now - int64(settles))
	switch {
	case c.shape.Bucket(): // a tenant's has its own
		last = sliceAt(c.shape, now-int64(settles))
	case slices == 1 && window <= pieceFor:
		last = rate.SliceAt(now) - 1
	}
	span := crdt.Slice(slices)
	for _, cell := range l.everything(c) {
		if cell.Slice > last-span && cell.Slice <= last {
			hits = crdt.SatAdd(hits, spentIn(cell))
		}
	}
	return hits
}

// spanOf is the window of a counter: how many slices it has, and how long it is; a tenant's bucket
// has its own.
func spanOf(shape deltasync.Shape, rate *limit.Rate) (slices int, window time.Duration) {
	if shape.Bucket() {
		return shape.Slices, shape.Window()
	}
	return rate.Slices, rate.Window
}

// Passed is what counted in a rate's windows within the last hour, in lanes that are this
// aggregator's.
type Passed struct {
	Since time.Time // or since it began to look
	rate  limit.Rate
	bins  []bin
}

// Passed is what counted in the windows of a rate; false: nothing is known of it.
func (a *Aggregator) Passed(now time.Time, namespace, rule, rate string) (p Passed, known bool) {
	t, all := a.clock.At(now), a.tallies.passed.Load()
	if all == nil {
		return p, false
	}
	of := (*all)[rateName{namespace, rule, rate}]
	if of == nil {
		return p, false
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	oldest := t/int64(pieceFor) - mostPieces
	for i := range of.pieces {
		if piece := &of.pieces[i]; piece.number > oldest {
			p.bins = append(p.bins, piece.bins...)
		}
	}
	p.rate = *of.rate
	p.Since = time.Unix(0, max(of.since, t-int64(mostPieces*pieceFor))).UTC()
	return p, len(p.bins) > 0
}

// Denied is what of that another limit would have denied.
type Denied struct {
	Part    float64 `json:"part"`           // of what counted, at the least
	Windows uint64  `json:"windows_denied"` // of a key each, in which it would have been exceeded
	Of      uint64  `json:"windows"`
}

// Denied is what the rate that takes this one's place would have denied; false: it admits
// no less, or counts something else.
func (p *Passed) Denied(next *limit.Rate) (d Denied, less bool) {
	was := &p.rate
	alike := was.Bucket() == next.Bucket() && (was.Algorithm == limit.Concurrency) == (next.Algorithm == limit.Concurrency)
	if !alike || next.PerRequest || !was.Bucket() && (was.Window != next.Window || was.Period != next.Period) {
		return d, false
	}
	most := admits(next, was.Window)
	if most >= admits(was, was.Window) {
		return d, false
	}
	all, above := 0.0, 0.0
	for _, b := range p.bins {
		n := float64(b.windows)
		all += b.hits
		d.Of += uint64(b.windows)
		if b.hits > n*most { // of some of them that are below it no more is said than of their mean
			above += b.hits - n*most
			d.Windows += uint64(b.windows)
		}
	}
	if all > 0 {
		d.Part = above / all
	}
	return d, true
}

// admits is the most that a rate lets pass of a key in a time.
func admits(r *limit.Rate, window time.Duration) float64 {
	most := float64(r.CeilingOf(r.Limit))
	if r.Bucket() && r.Drain.Per > 0 {
		most += float64(window) / float64(r.Drain.Per) * float64(r.Drain.Refill)
	}
	return most
}
