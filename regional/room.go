package regional

import (
	"math"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Config.MaxBytes is shared out once: a quarter goes to the outboxes where there
// are peers, the rest to the lanes in equal parts, whoever serves them now, so
// that who takes over another's lanes has room for them.
//
// Where a lane has no room for one more key it forgets the one that matters least.
// Most of what is held is only a cache: the store has it, and who asks again is
// answered from there. What cannot be read from there is not forgotten: where all
// is of that kind new keys are refused. Those that have used much of their limit
// have others make room that have not.

const (
	outboxShare = 4 // the part of MaxBytes
	// deltaBytes is what a delta takes in an outbox; larger ones count for several.
	deltaBytes = deltasync.DeltaBytes
	// fewestDeltas is the smallest outbox, and fewestKeys what a lane must hold.
	fewestDeltas = 64
	fewestKeys   = 64

	// counterBytes is a counter as the allocator rounds it, and placeBytes its
	// place in the lane's map, which keeps it when the counter goes.
	counterBytes = (int(unsafe.Sizeof(counter{})) + 31) &^ 31
	placeBytes   = 32
	keyBytes     = int(unsafe.Sizeof(deltasync.Key(0)))
	heirKeys     = int(unsafe.Sizeof(heir{})) / keyBytes
	// freshBytes is what a key takes when it comes: with one entry of one cell.
	freshBytes = counterBytes + placeBytes + keyBytes + int(unsafe.Sizeof(crdt.Entry{})+unsafe.Sizeof(missing{})) + 2*keyBytes
)

// outboxDeltas is how many deltas each outbox holds at the most.
func (c *Config) outboxDeltas() int {
	return int(min(c.MaxBytes/outboxShare/int64(max(1, c.Lanes*len(c.Peers)))/deltaBytes, 1<<16))
}

// laneBytes is what the counters of a lane may take.
func (c *Config) laneBytes() int {
	left := c.MaxBytes
	if len(c.Peers) > 0 {
		left -= c.MaxBytes / outboxShare
	}
	return int(left / int64(c.Lanes))
}

// LeastBytes is the smallest MaxBytes for so many lanes and peers.
func LeastBytes(lanes, peers int) int64 {
	least := int64(lanes) * int64(fewestKeys*freshBytes) * 2
	return max(least, outboxShare*int64(lanes*peers)*fewestDeltas*deltaBytes)
}

// room is what the counters of a lane may take, and do.
type room struct {
	keys, bytes int            // at most
	held        int            // bytes of the counters
	guests      int            // of them those of guests
	asking      int            // and those of contests
	askers      map[uint64]int // of these, by PoP: see popasks.go
	unmet       bool           // some found no room since sendAway
	most        int            // counters that there were at once
	displaced   uint64         // counters that were forgotten though they cannot be read again
	all         searches       // among all counters
}

// searches is what those for counters to be forgotten go on from, among all or a PoP's.
type searches struct {
	hand      int      // the place in lane.order where the next one begins
	newHand   int      // and that among those who came last
	enough    worth    // who is worth no more goes without a look at others; raised where there are none such
	barren    [3]int64 // by need; until then nobody searches: one has just found nothing
	evictions uint
	hot       int64 // until then nobody searches far: all were hot
	locked    bool  // the last one that found nothing met some that may not be forgotten as yet
}

// rested has the next one search, whatever the last ones found.
func (r *searches) rested() { r.barren, r.hot = [3]int64{}, 0 }

// size is what the lane takes.
func (l *lane) size() int {
	places := cap(l.order) + cap(l.push) + cap(l.hot) + 2*l.retry.total
	for j := range l.peers {
		places += cap(l.peers[j].again) + cap(l.peers[j].refused)*heirKeys
	}
	return l.room.held + l.truths.bytes + l.terms.bytes + placeBytes*(l.room.most+len(l.guests)) + keyBytes*places
}

// heavy says that it takes more than it may.
func (l *lane) heavy() bool { return l.size() > l.room.bytes }

// crowded says that there is no room for one more key.
func (l *lane) crowded() bool {
	return len(l.counters) >= l.room.keys || l.size()+freshBytes > l.room.bytes
}

// tight says that there soon may be none: who comes and goes would else decide what is
// kept of the others.
func (l *lane) tight() bool {
	return len(l.counters) >= l.room.keys/8*7 || l.size()+freshBytes > l.room.bytes/8*7
}

// weigh brings what is known of a counter's size up to date.
func (l *lane) weigh(c *counter) {
	bytes := counterBytes + c.edges.Bytes() + c.regions.Bytes()
	bytes += max(cap(c.missing), c.edges.Len()) * int(unsafe.Sizeof(missing{})) // the store may soon lack what each edge told
	if c.votes != nil {
		bytes += c.votes.bytes()
	}
	if c.rivals != nil {
		bytes += mapBytes(len(c.rivals), int(unsafe.Sizeof(uint64(0))+unsafe.Sizeof(rival{})))
	}
	if c.taken != nil {
		bytes += int(unsafe.Sizeof(crdt.GCounter{})) + c.taken.Bytes()
	}
	if c.abroad != nil {
		bytes += int(unsafe.Sizeof(abroad{})) + c.abroad.told.Bytes()
	}
	if c.past != nil {
		bytes += int(unsafe.Sizeof(past{}))
	}
	if c.parts != nil {
		bytes += int(unsafe.Sizeof(*c.parts)) + cap(*c.parts)*int(unsafe.Sizeof(owned{}))
	}
	asking := 0
	if c.contest != nil {
		asking = c.contest.bytes()
	}
	paid := int32(min(bytes, math.MaxInt32/2))
	weight := paid + int32(min(asking, math.MaxInt32/2))
	l.charge(c, int(paid))
	l.room.held += int(weight - c.weight)
	l.room.asking += asking - int(c.weight-c.paid)
	if c.guest {
		l.room.guests += int(weight - c.weight)
	}
	c.weight, c.paid = weight, paid
}

// unload takes a counter off what the lane holds.
func (l *lane) unload(c *counter) {
	l.uncharge(c)
	l.room.held -= int(c.weight)
	l.room.asking -= int(c.weight - c.paid)
	if c.guest {
		l.room.guests -= int(c.weight)
	}
}

// mapBytes is about what a map takes, of so many entries of so many bytes, at most: it
// has room for eight from the first one on, and doubles.
func mapBytes(entries, bytes int) int {
	const head = 56
	if entries <= 8 {
		return head + 8*bytes
	}
	return head + entries*bytes*5/2
}

// enter gives a new counter a place.
func (l *lane) enter(key deltasync.Key, c *counter) {
	l.counters[key] = c
	l.order = append(l.order, key)
	l.room.most = max(l.room.most, len(l.counters))
	l.weigh(c)
}

// worth orders counters by what is lost when they are forgotten: the bits that
// follow, and then how much of the limit is used.
type worth uint32

const (
	mostUsed   worth = 1<<10 - 1
	unexported worth = 1 << 10 // others have yet to be told, and there is no copy in an outbox
	unstored   worth = 1 << 11 // it is not in the store, or that is away
	hotCounter worth = 1 << 12 // it has used much of its limit
	priceless  worth = math.MaxUint32

	hotFrom = (mostUsed + 1) / 4
	// little is so little of a limit that nobody looks for less.
	little = (mostUsed + 1) / 32
)

// need is what room is needed for. Beyond the first, counters make it that cannot be
// read again, as edges tell those once more when the store is back.
type need int

const (
	forAny            need = iota
	forOneThatMatters      // those that have used little
	forTheRest             // as there is too little for those that are here: whatever is left
)

// worth is what a counter is worth, priceless where it may not be forgotten.
func (a *Aggregator) worth(l *lane, key deltasync.Key, why need, now int64) worth {
	c := l.counters[key]
	if c.writing > 0 {
		return priceless // what becomes of the write stands with it
	}
	w := l.share(c, now)
	if w >= hotFrom {
		w |= hotCounter
	}
	if c.again != 0 || c.pushed || c.abroad != nil && c.abroad.listed {
		w |= unexported
	}
	if owes := c.owes(); owes || a.store.lost(key, c) {
		if why == forAny || why == forOneThatMatters && w&hotCounter != 0 || owes && !c.retried { // that one is about to be written
			return priceless
		}
		w |= unstored
	}
	return w
}

// lost says that a key could not be read now: its part of the store is away.
func (p *parts) lost(key deltasync.Key, c *counter) bool {
	return p.away.Load() > 0 && p.known[p.of(key, c)].down.Load()
}

// share is the part of its limit that a key uses.
func (l *lane) share(c *counter, now int64) worth {
	if c.penalty.at(now) != 0 {
		return mostUsed
	}
	return portion(l.used(c, now), c.shape.Limit)
}

func portion(used, limit uint64) worth {
	switch {
	case limit == 0:
		return 0
	case used >= limit:
		return mostUsed
	}
	return min(mostUsed, worth(float64(used)/float64(limit)*float64(mostUsed+1)))
}

// matters says that a delta tells of a key which has used much of its limit, or
// is kept out.
func matters(shape deltasync.Shape, d *deltasync.Delta, now int64) bool {
	used, oldest := d.Carry.Level/micro, reach(shape, now)
	for _, cell := range d.Cells {
		if cell.Slice >= oldest {
			used = crdt.SatAdd(used, cell.Net())
		}
	}
	return portion(used, shape.Limit) >= hotFrom || lasts(d.Until, now)
}

// owes says that the store lacks something of the key.
func (c *counter) owes() bool {
	return len(c.missing) > 0 || c.penalty.lacks || c.past != nil && c.past.lacks || c.retried && c.abroad != nil && c.abroad.unkept != nothing
}

const (
	// looks is how many counters an eviction compares, newLooks how many of those
	// that came last where all of the first are hot, and mostLooks at how many it
	// looks to find one at all.
	looks     = 32
	newLooks  = 64
	mostLooks = 1024
	// strays is how many it passes by for each that it compares, if it is for a PoP's own.
	strays = 8
	// barrenFor is how long nobody looks again for what was not found.
	barrenFor = 10 * time.Millisecond
)

// makeRoom forgets counters until there is room for one more, and says whether
// there is. For a key that matters more is given up; for one of a PoP that has more of the
// lane than its part its own are, or nobody's.
func (a *Aggregator) makeRoom(l *lane, pop uint64, matters bool, now int64) bool {
	why := forAny
	if matters {
		why = forOneThatMatters
	}
	if !a.makeOwnRoom(l, pop, freshBytes, nil, why, now) {
		return false
	}
	for l.crowded() {
		if !a.evict(l, why, now) {
			return false
		}
	}
	return true
}

// bursts says that it takes a tenth more than it may.
func (l *lane) bursts() bool { return l.size() > l.room.bytes/10*11 }

// relieve forgets counters while those that there are take more than they may. Where
// none can be read again, as the store is away, they grow by a tenth before some make
// room for the others, who use least of their limit first.
func (a *Aggregator) relieve(l *lane, now int64) {
	for range strides {
		switch {
		case !l.heavy():
			return
		case a.relieveOf(l, now):
		case !l.bursts():
			if !a.evict(l, forAny, now) {
				return
			}
		case !a.evict(l, forOneThatMatters, now) && !a.evict(l, forTheRest, now):
			return
		}
	}
}

// search is what an eviction has found so far.
type search struct {
	now    int64
	why    need
	pop    uint64   // whose counters are looked at; nobody: all are
	keep   *counter // if not nil it stays, as do those of the last batch, which are yet to be answered
	enough worth
	at     int // in lane.order; -1: nothing
	least  worth
	locked bool // some may not be forgotten as yet
}

// look looks at n counters from a hand on, among those at places from first on,
// and stops at one that is worth little enough. Of a PoP's it may find fewer.
func (a *Aggregator) look(l *lane, s *search, hand *int, first, n int) {
	for range min(n*strays, mostLooks, len(l.order)-first) {
		if *hand < first || *hand >= len(l.order) {
			*hand = first
		}
		at := *hand
		*hand++
		c := l.counters[l.order[at]]
		switch {
		case s.pop == nobody:
		case !c.gives(s.pop):
			continue
		case s.keep != nil && (c == s.keep || c.batch == l.batches):
			s.locked = true
			continue
		}
		w := a.worth(l, l.order[at], s.why, s.now)
		s.locked = s.locked || w == priceless && (s.pop == nobody || c.payer() != nobody)
		if w < s.least && (s.pop == nobody || w < hotCounter || c.payer() == s.pop) {
			s.at, s.least = at, w
		}
		if n--; n == 0 || w <= s.enough {
			return
		}
	}
}

// evict forgets, of a stretch of counters, the one that is worth least. Who comes
// stands last, and takes the place of who goes: so where most are hot, those that
// a flood brings make room for each other.
func (a *Aggregator) evict(l *lane, why need, now int64) bool {
	return a.evictBy(l, &l.room.all, search{now: now, why: why})
}

func (a *Aggregator) evictBy(l *lane, r *searches, s search) bool {
	now, why, barren := s.now, s.why, &r.barren[s.why]
	if waits(*barren, now) {
		return false
	}
	if r.enough >= hotCounter && !waits(r.hot, now) {
		r.enough = little
	}
	s.at, s.least, s.enough = -1, priceless, r.enough
	a.look(l, &s, &r.hand, 0, looks)
	if s.least >= hotCounter && (s.at < 0 || !waits(r.hot, now)) {
		a.look(l, &s, &r.newHand, len(l.order)/4*3, newLooks)
		if s.least >= hotCounter {
			if a.look(l, &s, &r.hand, 0, mostLooks); s.least >= hotCounter {
				r.hot = now + int64(barrenFor)
			}
		}
	}
	// What has used much of its limit does not make room for what has not, while
	// others are about to be written: in a full store it may be gone by now, and these
	// can go when they are. Who comes is looked at once more then: see take.
	if s.at < 0 || s.least >= hotCounter && s.locked && why == forAny {
		*barren, r.locked = now+int64(barrenFor), s.locked
		return false
	}
	switch {
	case s.least < hotCounter:
		r.enough = min(max(s.least, little), unexported|hotFrom-1)
	case r.enough < hotCounter && waits(r.hot, now):
		r.enough = s.least
	}
	if r.evictions++; r.evictions%(2*looks) == 0 {
		r.enough = little // others may have come that are worth less
	}
	forgot := l.counters[l.order[s.at]].again
	l.forgot |= forgot
	switch {
	case s.least&unstored != 0:
		l.room.displaced++
		a.stats.evictedUnstored.Add(1)
	case forgot != 0:
		a.stats.evictedUnexported.Add(1)
	default:
		a.stats.evicted.Add(1)
	}
	l.drop(s.at)
	return true
}

// waits says that an instant some time ahead has not come; one that is further
// ahead was set before a clock was set back.
func waits(until, now int64) bool { return now < until && until-now <= int64(barrenFor) }
