package edge

import (
	"math"
	"math/bits"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// blocked remembers which keys of a shard have nearly used up their limit and
// are not live here: forgotten to make room, or pushed by the region. Such a key
// may spend what it had left; once its use would have fallen below the
// threshold, what the threshold leaves; and all of its limit only when the last
// of what it had used has left the window. So a flood of other keys wins it
// nothing.
//
// It is local and never sent. Sixteen bytes an entry in a table that grows up
// to a bound; where a set of the table is full, the entry that has longest to
// go moves to the filter, which remembers 16 bits of it: that it may spend
// nothing, and until when.
type blocked struct {
	table  []hold // in sets of ways; grows up to most
	most   int
	filter filter
	seen   int64 // the latest time so far, in ns since 1970; of a clock that was set back, since then
}

// hold is one blocked key. what is, from the top, 40 bits of the instant that
// all it had used has left its window (the first two are of times after 2116: they say that
// all of it was told by the region, and that the view has had that since), 6 bits of how long before that it eases,
// in 64ths of a window, a bit that says that all this is a penalty, one that it
// is weak, and 16 bits of what it had used, rounded up: ten of them, shifted by
// the other six. So it speaks of what is counted, and holds for any limit that
// the key is judged by: another tenant's, one that a request names, or the one
// of a rule that was changed meanwhile. (The key changes with what a count
// means.)
type hold struct {
	key  deltasync.Key
	what uint64
}

const (
	ways      = 8
	usedBits  = 10
	shiftBits = 6
	feeble    = 1 << (usedBits + shiftBits)
	penalized = feeble << 1
	easeShift = usedBits + shiftBits + 2
	endShift  = easeShift + 6 // instants are rounded up to 2^24 ns, 17 ms
	six       = 1<<6 - 1
	told      = 1 << 63
	covered   = 1 << 62
	holdBytes = 16
)

// sweptAPut is how many buckets of the filter are swept with each key that comes in: all
// of them long before as many keys have come as it has room for.
const sweptAPut = 4

// crowdedShare is the part of its limit from which on a key stays limited
// whatever becomes of its record, in percent.
const crowdedShare = 80

func newHold(key deltasync.Key, rate *limit.Rate, h held) hold {
	end := uint64(h.until+1<<endShift-1) >> endShift << endShift
	ease := uint64(0)
	if h.extra > 0 && h.eases < h.until {
		ease = min(uint64(int64(end)-h.eases)/easeOf(rate), six)
	}
	what := end | ease<<easeShift | roundUp(h.used)
	if h.penalty {
		what |= penalized
	}
	if h.weak {
		what |= feeble
	}
	if h.told {
		what |= told
	}
	if h.covered {
		what |= covered
	}
	return hold{key, what}
}

// roundUp packs a number into 16 bits, no smaller than it is and by 1/512 larger
// at the most, and unpack gives it back.
func roundUp(x uint64) uint64 {
	shift := max(0, bits.Len64(x)-usedBits)
	top := x >> shift
	if top<<shift < x {
		if top++; top == 1<<usedBits {
			top, shift = top>>1, shift+1
		}
	}
	return uint64(shift)<<usedBits | top
}

func unpack(packed uint64) uint64 {
	top, shift := packed&(1<<usedBits-1), packed>>usedBits&six
	if top<<shift>>shift != top {
		return math.MaxUint64
	}
	return top << shift
}

func (h hold) until() int64 { return int64(h.what &^ (told | covered) >> endShift << endShift) }

// weak says that the entry is worth a place in the table only while that has
// some: to the filter it would be all or nothing.
func (h hold) weak() bool { return h.what&feeble != 0 }

// lasts orders entries by who leaves the table first: the weak, then who has
// longest to go, but no penalty before others, as the filter knows none: there
// it is held to its limit, for no longer than a window.
func (h hold) lasts() int64 {
	switch {
	case h.weak():
		return math.MaxInt64
	case h.what&penalized != 0:
		return 0
	}
	return h.until()
}

// held is what the entry says, rounded to the key's disadvantage.
func (h hold) held(rate *limit.Rate) held {
	out := held{until: h.until(), eases: h.until(), rounded: 1, used: unpack(h.what), penalty: h.what&penalized != 0, weak: h.weak(), told: h.what&told != 0, covered: h.what&covered != 0}
	// Of what is beyond the ceiling it is not known when it falls below a
	// threshold so small.
	if ease := h.what >> easeShift & six; ease > 0 && out.used <= rate.Ceiling {
		out.eases -= int64(ease * easeOf(rate))
		out.extra = extraOf(rate, out.used)
	}
	return out
}

// easeOf is what one part of the easing stands for.
func easeOf(rate *limit.Rate) uint64 { return uint64(longestHold(rate))/64 + 1 }

// set is where a key stands, if it does.
func (b *blocked) set(key deltasync.Key) []hold {
	i := reduce(uint32(uint64(key)>>16), len(b.table)/ways) * ways
	return b.table[i : i+ways]
}

// follow notes the time. Where the clock was set back, so is what ends by it:
// else a key would stay blocked for as long as the step was.
func (b *blocked) follow(now int64) {
	back := b.seen - now
	if back > int64(maxAhead) {
		for i := range b.table {
			b.table[i] = b.table[i].earlier(back)
		}
		b.filter.earlier(back)
	}
	if back < 0 || back > int64(maxAhead) {
		b.seen = now
	}
}

// earlier is the entry with an end that is so much before.
func (h hold) earlier(by int64) hold {
	if h.what == 0 || h.until() <= by {
		return hold{}
	}
	h.what = h.what&(1<<endShift-1|told|covered) | uint64(h.until()-by+1<<endShift-1)>>endShift<<endShift
	return h
}

// find is what a key is held to under a rate; until is 0 where it is not
// blocked.
func (b *blocked) find(key deltasync.Key, rate *limit.Rate, now int64) held {
	b.follow(now)
	return b.asOf(key, rate, now)
}

// asOf is find, as far as it is known, of an instant that is over: by it no clock was set
// back.
func (b *blocked) asOf(key deltasync.Key, rate *limit.Rate, at int64) held {
	if h := b.exact(key); h != nil && h.until() > at {
		return h.held(rate)
	}
	end := b.filter.until(key, at)
	return held{until: end, eases: end, rounded: longestHold(rate)/4 + 1<<(shortest+1), used: rate.Ceiling}
}

// exact is the key's entry in the table, whether it has ended or not.
func (b *blocked) exact(key deltasync.Key) *hold {
	if len(b.table) == 0 {
		return nil
	}
	set := b.set(key)
	for i := range set {
		if set[i].key == key {
			return &set[i]
		}
	}
	return nil
}

// put blocks a key, and takes the place of what was known of it.
func (b *blocked) put(h hold, now int64) {
	b.follow(now)
	if len(b.table) == 0 {
		if b.most < ways {
			b.overflow(h, now)
			return
		}
		b.table = make([]hold, ways)
	}
	for {
		set, free := b.set(h.key), -1
		for i := range set {
			switch old := set[i]; {
			case old.key == h.key:
				set[i] = h
				return
			case free < 0 && old.until() <= now: // an empty place ended in 1970
				free = i
			}
		}
		if free >= 0 {
			set[free] = h
			return
		}
		if 2*len(b.table) > b.most {
			break
		}
		b.grow(now)
	}
	set := b.set(h.key)
	for i := range set {
		if set[i].lasts() > h.lasts() {
			set[i], h = h, set[i]
		}
	}
	b.overflow(h, now)
}

// overflow has the filter remember what the table has no place for. What comes in clears
// some of what has ended: who limits in one process alone calls no Tick.
func (b *blocked) overflow(h hold, now int64) {
	if !h.weak() {
		b.filter.sweep(now, sweptAPut)
		b.filter.put(h.key, h.until(), now)
	}
}

// grow doubles the table; the keys of a set go to two sets.
func (b *blocked) grow(now int64) {
	old := b.table
	b.table = make([]hold, 2*len(old))
	for _, h := range old {
		if h.until() <= now {
			continue
		}
		set := b.set(h.key)
		for i := range set {
			if set[i].what == 0 {
				set[i] = h
				break
			}
		}
	}
}

// lift takes a key's block back. One that moved to the filter ends by itself:
// there it looks like others'.
func (b *blocked) lift(key deltasync.Key) {
	if h := b.exact(key); h != nil {
		*h = hold{}
	}
}

// count is the number of keys in the table and in the filter.
func (b *blocked) count(now int64) (table, filter int) {
	for i := range b.table {
		if b.table[i].until() > now {
			table++
		}
	}
	return table, b.filter.taken
}
