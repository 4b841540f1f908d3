package regional

import (
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
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
	// youngFor is how long it may take whoever takes a lane over to be told what was asked for
	// in all regions before.
	youngFor = 3 * time.Second
	// pastWeighed is how many times it is known what regions were weighed by: who is found
	// to be silent fell silent after the first of them, even one that is far away.
	pastWeighed = 9
)

// regionDemand is that of another region, and when it told it.
type regionDemand struct {
	deltasync.Demand
	at    int64
	first int64                // when it first told one
	told  float32              // what it was weighed by then
	past  [pastWeighed]float32 // what it was weighed by when contest.past was

	frozen  float64 // its part of the limit, as it was when it fell silent; 0: it speaks
	guessed bool    // which is not known: that of a key that is new
	untold  bool    // likewise: it had told nothing yet to whoever took the lane over
	bequest float64 // that part, as who had the lane before noted; 0: he noted none, or it was heard since
	former  float64 // that part, as it was when it was last taken back
	back    int64   // when that was
	floored bool    // it has no less than that, as it fell silent soon after
	fresh   float64 // what it would have had else
	fell    int64   // when it did
}

// weight is what it is weighed by. It tells anew what is asked for there when that has changed,
// and not as that lies further and further back.
func (r *regionDemand) weight(s deltasync.Shape, now int64) float64 {
	mid, slow := float64(r.Mid), float64(r.Slow)
	if slow > mid {
		slow = limit.Relaxed(slow, mid, limit.SpansOf(s.Window()).Slow, time.Duration(now-r.at))
	}
	return weighed(mid, slow, paceOf(s))
}

// freeze gives regions that fell silent, a bit each, the parts that they had, and takes
// them back from those that speak again, once all who do agree whom they hear.
func (a *Aggregator) freeze(c *counter, silent uint64, now int64) {
	t := c.contest
	if c.shape.Limit == 0 || c.shape.Regional {
		return
	}
	differ := a.links.differ.Load()
	for j := range t.regions {
		was := t.regions[j].frozen
		switch r := &t.regions[j]; {
		case silent>>j&1 == 0 && (was == 0 && r.bequest == 0 || differ>>j&1 == 0):
			if had := max(was, r.bequest); had != 0 {
				r.former, r.back = had, now
			}
			if r.frozen, r.guessed = 0, false; r.bequest != 0 && !a.awaitsPeer(j, now) {
				r.bequest, t.changed = 0, now
			}
		case was != 0 && was != r.fresh && r.floored && silent>>j&1 != 0 && a.onlyLate(j, r.fell, now):
			r.frozen = r.fresh
		case r.frozen == 0 && r.bequest != 0:
			r.frozen = r.bequest
			continue // since it was noted
		case r.frozen == 0:
			rest := t.shared()
			r.frozen, r.guessed = a.had(c, j, now)
			a.keepFormer(r, rest, now)
			if r.guessed {
				continue // what was noted is better, however old
			}
		}
		if t.regions[j].frozen != was {
			t.changed = now
		}
	}
}

// keepFormer has a region that fell silent soon after it was taken back have no less than
// before, of what is left: others, and it itself, may not have heard yet that all hear all, and
// go on with the parts of before. One that comes and goes follows demand in the end.
func (a *Aggregator) keepFormer(r *regionDemand, rest float64, now int64) {
	a.links.mu.Lock()
	soon := int64(finds*a.cfg.Interval+suspicion+apartAfter) + 6*a.links.longest()
	a.links.mu.Unlock()
	least := r.former
	switch {
	case now < r.back || now-r.back >= soon:
		r.floored = false
		return
	case r.floored:
		least = (r.former + r.frozen) / 2
	}
	if least > r.frozen {
		r.fresh, r.fell = r.frozen, now
		r.frozen, r.floored = max(r.frozen, min(least, rest)), true
	}
}

// onlyLate says that a peer goes on to speak which was found to be silent a moment ago, and
// hears: so far away that its answers alone are late, it is cut off from nobody. Unless this
// region is apart, which makes all seem silent, after a cut.
func (a *Aggregator) onlyLate(j int, fell, now int64) bool {
	return (!a.apart(now) || a.unbroken(now)) && now-fell < int64((beat+1)*a.cfg.Interval) && a.spoken.read(j).last > fell && !a.links.deaf[j].Load()
}

// shared is the part of the limit that is left to those that are not cut off.
func (t *contest) shared() float64 {
	rest := 1.0
	for j := range t.regions {
		rest -= t.regions[j].frozen
	}
	return max(0, rest)
}

// had is the part of the limit that a region has which has just fallen silent, by what was
// asked for in all of them shortly before: that all of them know, here and on the other
// side. Those that are aside already have what they had then, whatever they are asked for
// since, and the rest is what the others share. A region that told of no demand has none, or
// next to none. Whoever took the lane over just before, and was not told by all, or knows of a
// region by the store alone, goes by what was spent, and where that is too little, each has as
// much; and so of a key that is too new for all to have told. That is a guess where others may
// have known it for longer.
func (a *Aggregator) had(c *counter, j int, now int64) (part float64, guessed bool) {
	t, r, least, i, until := c.contest, &c.contest.regions[j], a.least(c), 0, a.parted(j, now)-a.tells(j)
	for i < pastWeighed-1 && t.past[i].at > until {
		i++
	}
	rest, others, all := 1.0, 1, t.ownBefore(i)+least
	for k := range t.regions {
		if frozen := t.regions[k].frozen; frozen != 0 {
			rest -= frozen
			continue
		}
		others, all = others+1, all+t.before(k, i)+least
	}
	rest = max(rest, 1e-6)
	v, lacks := a.spoken.read(j), t.taken && (r.first == 0 && until-t.born < int64(answersLacks) || a.untold(c, i))
	if v.recalled {
		until = v.last
	}
	if r.untold = lacks || v.recalled; r.untold && v.last != 0 && c.asked != 0 {
		if part, ok := a.spentPart(c, j, until); ok {
			return rest * part, true
		}
	}
	if a.unmet(j) || lacks && r.first == 0 { // it has told nothing here
		return rest / float64(others), true
	}
	return rest * (t.before(j, i) + least) / all, t.past[i].at == 0
}

// untold says that some region had counted by when all were weighed, and told nothing of what
// is asked for there, before or as soon as the lane was taken over: it told another who has the
// lane too, as the two do not hear of each other.
func (a *Aggregator) untold(c *counter, i int) bool {
	t, by := c.contest, c.contest.past[i].at
	for k := range t.regions {
		if r := &t.regions[k]; r.frozen != 0 || r.first != 0 && (r.first <= by || r.first-t.born < int64(youngFor)) {
			continue
		}
		if v := c.regions.Of(crdt.Replica{Node: a.nodes[k]}); v != nil && v.Len() > 0 && v.At(0).Slice < sliceAt(c.shape, max(by, t.born)) {
			return true
		}
	}
	return false
}

// spentPart is the part that a region has of what all spent who share a limit, until it fell
// silent, weighed as what is asked for is: as whoever took the lane over finds it in the store.
// ok is false where that is too little to tell, be it that the limit was used up.
func (a *Aggregator) spentPart(c *counter, j int, until int64) (part float64, ok bool) {
	window, width, pace := c.shape.Window(), int64(c.shape.Width), paceOf(c.shape)
	span, to := float64(max(limit.SpansOf(window).Mid, c.shape.Width)), sliceAt(c.shape, until)
	from, spent := to-crdt.Slice(c.shape.Slices), 0.0
	weigh := func(cells []crdt.Cell) float64 {
		mid, slow := 0.0, 0.0
		for _, cell := range cells {
			if cell.Slice <= to {
				net, age := float64(cell.Net()), max(0, until-int64(cell.Slice)*width-width/2)
				mid, slow = mid+net*math.Exp(-float64(age)/span), slow+net
			}
		}
		mid *= float64(time.Second) / span
		spent += mid
		return weighed(mid, slow/window.Seconds(), pace)
	}
	own, all := 0.0, weigh(c.subtotal(from))+a.least(c)
	for k := range c.contest.regions {
		if c.contest.regions[k].frozen != 0 && k != j {
			continue
		}
		weight := a.least(c)
		if v := c.regions.Of(crdt.Replica{Node: a.nodes[k]}); v != nil {
			weight += weigh(v.From(from, nil))
		}
		if all += weight; k == j {
			own = weight
		}
	}
	return own / all, spent >= pace/4
}

// ownBefore is what this region was weighed by at a time; where the lane was taken over since,
// its edges told that first soon after.
func (t *contest) ownBefore(i int) float64 {
	switch {
	case !t.taken || t.past[i].at > t.born:
		return float64(t.past[i].own)
	case t.own > 0:
		return t.own
	}
	return t.weight
}

// before is what a region was weighed by at a time; of one that had not told by then here,
// where the lane was taken over, what it told then counts.
func (t *contest) before(j, i int) float64 {
	r := &t.regions[j]
	if t.taken && r.past[i] == 0 && r.first >= t.past[i].at && r.first-t.born < int64(youngFor) {
		return float64(r.told)
	}
	return float64(r.past[i])
}

// doubt is the cost by which all regions may exceed a limit, as it is a guess what those have
// that are cut off, and the store could not tell better, be it that it knows of no cut before:
// they may have all of it, while here there is what that guess leaves.
func (a *Aggregator) doubt(l *lane, c *counter) uint64 {
	guessed, untold, rest := false, false, 1.0
	for i := range c.contest.regions {
		r := &c.contest.regions[i]
		guessed, untold, rest = guessed || r.guessed, untold || r.guessed && r.untold, rest-r.frozen
	}
	if !guessed || !untold && !a.links.unread.Load() && a.listed(slices.Index(a.lanes, l)) {
		return 0
	}
	return uint64(max(0, rest) * float64(c.shape.Limit))
}

// pastWeights is when regions were weighed by so much, and this one.
type pastWeights struct {
	at  int64
	own float32
}

// tells is how long it takes a region at the most to hear what is asked for here.
func (a *Aggregator) tells(j int) int64 {
	a.links.mu.Lock()
	defer a.links.mu.Unlock()
	return int64(2*a.cfg.Interval) + a.links.ways[j]*13/10
}

// noteWeights takes note of what regions are weighed by, now and then: at about the same
// instants everywhere, and this one by what the others can have heard by then, so that all find
// the same parts. Of a key that is new more is asked for from one look to the next, and each
// would have more than the others think.
func (a *Aggregator) noteWeights(c *counter, now int64) {
	t, step := c.contest, int64(max(500*time.Millisecond, 4*a.cfg.Interval))
	if t.own == 0 && now-t.born >= int64(a.patience()) {
		t.own = t.weight
	}
	last := t.past[0].at
	if young := t.past[1].at == 0 && last <= now && now < last+step; young || last/step == now/step {
		return // not all who ask for a new key have told
	}
	beside := t.besideOf(c.shape, a.least(c), now)
	copy(t.past[1:], t.past[:])
	own := t.weight
	if !t.taken || now-t.born >= int64(youngFor) { // else others heard it of who had the lane before
		own = min(own, t.seen(now-a.unseen(now)).weight)
	}
	t.past[0] = pastWeights{now, float32(own + t.telling.whole()*beside)}
	for j := range t.regions {
		r := &t.regions[j]
		copy(r.past[1:], r.past[:])
		r.past[0] = float32(r.weight(c.shape, now) + r.whole(now)*beside)
	}
}

// keeps is what a region told of what it keeps, if that was lately.
func (r *regionDemand) keeps(told float64, now int64) float64 {
	if now-r.at >= int64(keepTold) {
		return 0
	}
	return told
}

// whole is the cost of the limit that edges have which fell silent, what they have spent of it
// too: it is theirs again.
func (r *regionDemand) whole(now int64) float64 {
	return r.keeps(float64(r.Kept+r.KeptSpent), now)
}

func (k *kept) whole() float64 { return k.cost + k.spent }

// besideOf is what a unit of cost weighs that a region keeps for edges that fell silent, if
// these are to have that beside the region's part of what is left.
func (t *contest) besideOf(s deltasync.Shape, least float64, now int64) float64 {
	all, kept, rest := t.weight+least, t.telling.whole(), float64(s.Limit)
	for j := range t.regions {
		r := &t.regions[j]
		if r.frozen != 0 {
			rest -= r.frozen * float64(s.Limit)
			continue
		}
		all, kept = all+r.weight(s, now)+least, kept+r.whole(now)
	}
	return all / max(rest-kept, float64(s.Limit)/1000)
}

// least is what a region weighs where nothing is asked for.
func (a *Aggregator) least(c *counter) float64 {
	return limit.LeastWeight(c.shape.Limit, c.shape.Window(), len(a.cfg.Peers)+1)
}

// over says that a contest, one of so many, is to be forgotten.
func (t *contest) over(now int64, contests int) bool {
	return now-t.heard > int64(forgetContest) && !t.keeps(now, contests)
}

// keeps says that a contest is not to be forgotten, one of so many, though nobody asks:
// a region is cut off, and has a part that would not be known else, or that this is over is
// yet to be noted.
func (t *contest) keeps(now int64, contests int) bool {
	if contests > mostFrozen {
		return false
	}
	return t.uneven() && now-t.heard <= int64(keepFrozen) || t.willed && !passed(t.changed, now, int64(forgetContest))
}

// uneven says that a region which is cut off has another part than of a key that is new.
func (t *contest) uneven() bool {
	for j := range t.regions {
		if f := max(t.regions[j].frozen, t.regions[j].bequest); f != 0 && math.Abs(f*float64(len(t.regions)+1)-1) > 1e-3 {
			return true
		}
	}
	return false
}
