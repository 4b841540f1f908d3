package deltasync

import (
	"math/bits"
	"math/rand/v2"
)

// index finds the entries of an Outbox: a table with linear probing, as every key
// is put in, found and taken out again between two frames. Several entries of a
// key, of other lives or generations, stand behind each other.
type index struct {
	places []place // a power of two, at most three quarters of them taken
	taken  int
	shift  int    // what the home of a key is shifted by
	odd    uint64 // that keys are multiplied by: random, as others may choose keys
}

type place struct {
	key   Key // 0: an empty place
	entry *entry
}

const smallestIndex = 16

func newIndex() index {
	x := index{odd: rand.Uint64() | 1}
	x.resize(smallestIndex)
	return x
}

func (x *index) resize(n int) {
	x.places, x.shift = make([]place, n), 64-bits.Len(uint(n-1))
}

func (x *index) home(key Key) int { return int(uint64(key) * x.odd >> x.shift) }

func (x *index) after(i int) int { return (i + 1) & (len(x.places) - 1) }

// find is the entry of that name, or nil.
func (x *index) find(id *lifeKey) *entry {
	for i := x.home(id.key); ; i = x.after(i) {
		switch p := &x.places[i]; {
		case p.key == 0:
			return nil
		case p.key == id.key && p.entry.lifeKey == *id:
			return p.entry
		}
	}
}

// add puts in an entry that is not there.
func (x *index) add(e *entry) {
	if 4*(x.taken+1) > 3*len(x.places) {
		old := x.places
		x.resize(2 * len(old))
		for _, p := range old {
			if p.key != 0 {
				x.put(p)
			}
		}
	}
	x.put(place{e.key, e})
	x.taken++
}

func (x *index) put(p place) {
	i := x.home(p.key)
	for x.places[i].key != 0 {
		i = x.after(i)
	}
	x.places[i] = p
}

// remove takes out an entry, which is there, and closes the gap, so that probing
// still finds what stood behind it.
func (x *index) remove(e *entry) {
	i := x.home(e.key)
	for x.places[i].entry != e {
		i = x.after(i)
	}
	x.taken--
	for j := i; ; {
		j = x.after(j)
		p := x.places[j]
		if p.key == 0 {
			break
		}
		if mask := len(x.places) - 1; (j-x.home(p.key))&mask >= (j-i)&mask { // its probe path runs through the gap
			x.places[i] = p
			i = j
		}
	}
	x.places[i] = place{}
}
