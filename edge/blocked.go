package edge

import (
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// blocked remembers which keys of a shard have nearly used up their limit and
// are not live here: forgotten to make room, or pushed by the region. Until
// such a key's use would have fallen below the threshold it gets no more than
// what it had left, so a flood of other keys wins it nothing.
//
// It is local and never sent. Sixteen bytes an entry in a table of a fixed
// size; where a set of the table is full, the entry that has longest to go
// moves to the filter, which remembers 16 bits of it: that it is blocked.
type blocked struct {
	table  []hold // in sets of ways; grows up to most
	most   int
	filter filter
}

// hold is one blocked key. what is, from the top, 40 bits of the instant that
// the key is blocked until, 8 bits of what it may still spend, in 256ths of the
// rate's ceiling or whole units, and 16 bits that tell the rate's limit: of a limit that was
// changed meanwhile it says nothing.
type hold struct {
	key  deltasync.Key
	what uint64
}

const (
	ways      = 8
	leftShift = 16
	endShift  = 24 // instants are rounded up to 2^24 ns, 17 ms
	holdBytes = 16
)

// crowdedShare is the part of its limit from which on a key stays limited
// whatever becomes of its record, in percent.
const crowdedShare = 80

func newHold(key deltasync.Key, rate *limit.Rate, until int64, left uint64) hold {
	parts := min(left/unitOf(rate), 255)
	end := uint64(until+1<<endShift-1) >> endShift << endShift
	return hold{key, end | parts<<leftShift | uint64(tagOf(rate))}
}

func (h hold) until() int64 { return int64(h.what >> endShift << endShift) }

// left is what may still be spent, no more than it was.
func (h hold) left(rate *limit.Rate) uint64 { return (h.what >> leftShift & 0xff) * unitOf(rate) }

// unitOf is what one part of left stands for.
func unitOf(rate *limit.Rate) uint64 { return rate.Ceiling/256 + 1 }

func (h hold) tag() uint16 { return uint16(h.what) }

// tagOf tells limits apart.
func tagOf(rate *limit.Rate) uint16 {
	return uint16((rate.Limit*0x9e3779b97f4a7c15 ^ rate.Ceiling*0xd6e8feb86659fd93) >> 48)
}

// set is where a key stands, if it does.
func (b *blocked) set(key deltasync.Key) []hold {
	i := reduce(uint32(uint64(key)>>16), len(b.table)/ways) * ways
	return b.table[i : i+ways]
}

// find is the block of a key under a rate: until when, and what it may spend
// before; until is 0 where it is not blocked.
func (b *blocked) find(key deltasync.Key, rate *limit.Rate, now int64) (until int64, left uint64) {
	tag := tagOf(rate)
	if len(b.table) > 0 {
		for _, h := range b.set(key) {
			if h.key == key && h.tag() == tag && h.until() > now {
				return h.until(), h.left(rate)
			}
		}
	}
	return b.filter.until(key, tag, now), 0
}

// add blocks a key. Of two blocks of one key under one limit the stricter part
// of each holds.
func (b *blocked) add(h hold, now int64) {
	if len(b.table) == 0 {
		if b.most < ways {
			b.filter.put(h.key, h.tag(), h.until(), now)
			return
		}
		b.table = make([]hold, ways)
	}
	for {
		set, free := b.set(h.key), -1
		for i := range set {
			switch old := set[i]; {
			case old.key == h.key:
				if old.tag() == h.tag() && old.until() > now {
					end := max(old.what>>endShift, h.what>>endShift)
					left := min(old.what>>leftShift&0xff, h.what>>leftShift&0xff)
					h.what = end<<endShift | left<<leftShift | uint64(h.tag())
				}
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
		if set[i].until() > h.until() {
			set[i], h = h, set[i]
		}
	}
	b.filter.put(h.key, h.tag(), h.until(), now)
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
	if len(b.table) == 0 {
		return
	}
	set := b.set(key)
	for i := range set {
		if set[i].key == key {
			set[i] = hold{}
		}
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

// bytes is the memory that all of it holds.
func (b *blocked) bytes() int { return holdBytes*len(b.table) + b.filter.bytes() }
