package regional

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

const (
	// mostTruths is how many keys an aggregator tells the truth of at once, all of
	// which it looks at each second; leastTruths is what a lane has at least.
	mostTruths  = 4096
	leastTruths = 64
	// truthShare is the part of a lane's memory that they may take.
	truthShare = 16
	// truthStrides is how many of them a Tick looks at before it lets others at the
	// lane.
	truthStrides = 32
	// mostAsked is how many windows of a key wait to be judged by what was asked for.
	mostAsked = 64
)

// truths is what a lane tells the truth of.
type truths struct {
	on     bool // rules are known
	silent bool // some region is
	of     map[deltasync.Key]*truth
	order  []deltasync.Key
	near   []deltasync.Key // keys that have used much of their limit since the last Tick
	bytes  int
	since  int64 // from when on slices that end are this aggregator's to tell of; 0: the lane is not

	sums  []spender   // see truth.spendings
	cells []crdt.Cell // likewise
}

// watchTruth has the truth be told of a key that has used much of its limit: four
// fifths, or, while others are silent who may have used as much, half of it.
func (l *lane) watchTruth(key deltasync.Key, c *counter, now int64) {
	if !l.truths.on || c.watched || c.guest || len(l.truths.near) >= mostTruths {
		return
	}
	if c.crossed&(1<<contended) == 0 && !(l.truths.silent && c.crossed != 0) && !l.hadUsed(c, now) {
		return
	}
	c.watched = true
	l.truths.near = append(l.truths.near, key)
}

// hadUsed says that much of the limit may have been used in a window that is over, as
// is known since something came in late.
func (l *lane) hadUsed(c *counter, now int64) bool {
	if c.late != stampOf(now) || c.past != nil || c.shape.Limit == 0 {
		return false
	}
	all := uint64(0)
	for _, cell := range l.everything(c) {
		all = crdt.SatAdd(all, cell.Net())
	}
	return all >= percent(c.shape.Limit, thresholds[contended])
}

// watchAgain has the next sweep, or Tick, look again at a key that has no truth: the
// rules, or the room for it, may be others by now.
func (l *lane) watchAgain(key deltasync.Key, c *counter, now int64) {
	if c.watched && l.truths.of[key] == nil {
		c.watched = false
	}
	l.watchTruth(key, c, now)
}

// late is how long after the end of a slice all should have told of it: edges take a
// second for what is far from its limit.
func (a *Aggregator) late(now int64) int64 {
	return int64(max(time.Second, 4*a.cfg.Interval) + 2*a.between(now))
}

// tellTruths closes slices of the lane's keys, if it is this aggregator's.
func (a *Aggregator) tellTruths(lane int, now int64) {
	rates := a.tallies.rates.Load()
	if rates == nil {
		return
	}
	l, told, late := a.lanes[lane], a.spoken.told(now), a.late(now)
	l.mu.Lock()
	l.truths.on, l.truths.silent = true, passed(told, now, int64(quietFor+catchesUp))
	if !a.Owns(lane) {
		l.forgetTruths()
		l.mu.Unlock()
		return
	}
	if l.truths.since == 0 {
		l.truths.since = now - late
	}
	a.openTruths(l, *rates, now)
	left := len(l.truths.order)
	l.mu.Unlock()
	for at := 0; left > 0; left -= truthStrides {
		l.mu.Lock()
		for range min(left, truthStrides) {
			if at >= len(l.truths.order) {
				break
			}
			if a.tellTruth(l, l.truths.order[at], *rates, told, late, now) {
				at++
			} else { // another key has its place
				l.dropTruth(at)
			}
		}
		l.mu.Unlock()
	}
}

// forgetTruths drops all: another tells of the lane now.
func (l *lane) forgetTruths() {
	for _, keys := range [][]deltasync.Key{l.truths.order, l.truths.near} {
		for _, key := range keys {
			if c := l.counters[key]; c != nil {
				c.watched = false
			}
		}
	}
	l.truths = truths{on: l.truths.on}
}

// openTruths begins to tell of keys that have used much of their limit.
func (a *Aggregator) openTruths(l *lane, rates map[uint64]known, now int64) {
	most := max(leastTruths, mostTruths/len(a.lanes))
	for _, key := range l.truths.near {
		c := l.counters[key]
		if c == nil || l.truths.of[key] != nil {
			continue
		}
		k, has := rates[c.shape.Generation]
		switch {
		case !has || k.rate.Width != c.shape.Width || c.shape.Limit == 0:
			a.tallies.unknown(c.shape.Generation, now) // the next sweep looks again
		case !judged(k.rate):
		case (len(l.truths.of) >= most || l.truths.bytes >= l.room.bytes/truthShare) && !l.displaceTruth(c):
			c.watched = false
			a.tallies.unwatched.Add(1)
		default:
			if l.truths.of == nil {
				l.truths.of = map[deltasync.Key]*truth{}
			}
			v := a.openTruth(l, key, c, k, l.truths.since, now)
			l.truths.of[key], l.truths.order = v, append(l.truths.order, key)
		}
	}
	l.truths.near = l.truths.near[:0]
}

// displaceTruth makes room for a key that is at its limit: one makes it that never was.
func (l *lane) displaceTruth(c *counter) bool {
	if c.crossed&(1<<(len(thresholds)-1)) == 0 {
		return false
	}
	for at, key := range l.truths.order[:min(len(l.truths.order), looks)] {
		if len(l.truths.of[key].found) == 0 {
			l.dropTruth(at)
			return true
		}
	}
	return false
}

// dropTruth forgets the key at a place in the order.
func (l *lane) dropTruth(at int) {
	s := &l.truths
	key := s.order[at]
	s.bytes -= s.of[key].held
	delete(s.of, key)
	last := len(s.order) - 1
	s.order[at] = s.order[last]
	s.order = s.order[:last]
	if c := l.counters[key]; c != nil {
		c.watched = false
	}
}

// tellTruth brings the truth of a key up to date, and says whether there will be more.
func (a *Aggregator) tellTruth(l *lane, key deltasync.Key, rates map[uint64]known, told, late, now int64) bool {
	v, c := l.truths.of[key], l.counters[key]
	k, has := rates[v.shape.Generation]
	if !has || c != nil && (c.shape.Generation != v.shape.Generation || c.shape.Width != v.shape.Width) {
		return false // it is another rule's
	}
	v.rate, v.tally = k.rate, k.tally
	if c != nil {
		v.adopt(c.shape, now)
		v.take(l, c)
		a.hearAsked(v, c, now)
	}
	settled, was := v.settled(now), v.next
	e := v.close(&a.spoken, told, late, now)
	if v.risen || v.next != was {
		found := v.judge(min(settled, was), v.total.Cells(nil))
		v.account(a, found, e, key)
		v.found, v.risen, v.late = found, false, 0
		v.judgeAsked()
	} else if e != (ends{}) {
		v.account(a, v.found, e, key)
	}
	bytes := v.bytes()
	l.truths.bytes += bytes - v.held
	v.held = bytes
	return v.retire(v.settled(now))
}

// hearAsked notes what is asked for in the window that ends now, where edges tell it:
// the least that it was whenever somebody looked.
func (a *Aggregator) hearAsked(v *truth, c *counter, now int64) {
	t := c.contest
	if t == nil || v.shape.Bucket() || len(v.asked) >= mostAsked {
		v.least = 0
		return
	}
	mid, window := a.demandOf(c, now)
	// These are averages, of which two deviations may be chance: under a steady demand
	// below the limit nothing is found lacking by that.
	asked := min(mid, window) * c.shape.Window().Seconds()
	asked = min(max(0, asked-2*math.Sqrt(asked)), mostSpent)
	at := sliceAt(c.shape, now)
	if v.heard == 0 {
		v.heard, v.least = at, asked // from now on
	}
	v.least = min(v.least, asked)
	if at >= v.heard+crdt.Slice(v.span()) { // windows that do not overlap
		v.asked = append(v.asked, crdt.Cell{Slice: at, Charges: uint64(v.least)})
		v.heard, v.least = at, asked
	}
}

// demandOf is what is asked for of a counter that has a contest, a second: of late, and over a window.
func (a *Aggregator) demandOf(c *counter, now int64) (mid, window float64) {
	t := c.contest
	all, _ := t.sum(limit.SpansOf(c.shape.Window()), paceOf(c.shape), a.patience(), now)
	mid, window = all.Mid, all.Window
	if !c.shape.Regional {
		for j := range t.regions {
			r := &t.regions[j]
			mid += float64(r.Mid)
			window += limit.Relaxed(float64(r.Window), float64(r.Mid), c.shape.Window(), time.Duration(now-r.at))
		}
	}
	return mid, window
}

// judgeAsked judges the windows of which it is known what was asked for: what of that
// was not admitted, though the limit had room.
func (v *truth) judgeAsked() {
	for len(v.asked) > 0 && v.asked[0].Slice < v.next {
		if x := v.asked[0]; x.Slice >= v.from {
			v.underAdmitted(crdt.SatSub(min(x.Charges, v.shape.Limit), v.spend(x.Slice)))
		}
		v.asked = v.asked[1:]
	}
}
