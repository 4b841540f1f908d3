package edge

import (
	"math/bits"

	"github.com/spillgate/spillgate/sync"
)

// filter remembers keys until an instant, 16 bits each: a fingerprint, and in
// place of the instant one of 63 generations that it is rounded up to. It is a
// cuckoo filter (Fan et al., CoNEXT 2014) whose slots expire. A key that was
// put in is found until its generation ends, but for those that full gave up;
// one that was not is found with a probability of 8/1024 at most.
type filter struct {
	buckets []uint64            // of four slots; nil until a key comes
	most    int                 // buckets, once there are any
	ends    *[generations]int64 // when a generation ends, in ns since 1970; 0: free; made with buckets
	taken   int                 // slots in use, those that ended and were not swept too
	full    uint64              // keys given up because there was no place
	dying   uint64              // generations that the sweep under way clears, a bit each
	swept   int                 // buckets that it has been through
	dice    uint32
}

const (
	generations = 64 // number 0 stands for an empty slot
	printBits   = 10
	slotBits    = 16
	slots       = 64 / slotBits
	slotMask    = 1<<slotBits - 1
	// kicks bounds the moves that make room for a key: at 95 % of the slots
	// more of them hardly ever help.
	kicks = 128
	// shortest is the narrowest rounding of an instant, about a second.
	shortest = 30
)

// places are the buckets that a key may stand in, and its fingerprint.
func (f *filter) places(key deltasync.Key) (one, two int, print uint64) {
	h := uint64(key) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	print = h >> (64 - printBits)
	one = reduce(uint32(h), len(f.buckets))
	return one, f.other(one, print), print
}

// other is the second bucket of a key that stands in one, and the first of one
// that stands in the second.
func (f *filter) other(bucket int, print uint64) int {
	n := len(f.buckets)
	two := reduce(uint32(print+1)*0x9e3779b1, n) - bucket
	if two < 0 {
		two += n
	}
	return two
}

// reduce maps x to 0 … n-1 (Lemire, 2019).
func reduce(x uint32, n int) int { return int(uint64(x) * uint64(n) >> 32) }

func slotOf(bucket uint64, i int) uint64 { return bucket >> (i * slotBits) & slotMask }

func (f *filter) setSlot(bucket, i int, slot uint64) {
	b := &f.buckets[bucket]
	*b = *b&^(slotMask<<(i*slotBits)) | slot<<(i*slotBits)
}

// until is when the key ceases to be remembered; 0: it is not.
func (f *filter) until(key deltasync.Key, now int64) (until int64) {
	if f.buckets == nil {
		return 0
	}
	one, two, print := f.places(key)
	for _, b := range [2]int{one, two} {
		for i := range slots {
			slot := slotOf(f.buckets[b], i)
			if slot>>printBits != 0 && slot&(1<<printBits-1) == print {
				if end := f.ends[slot>>printBits]; end > now {
					until = max(until, end)
				}
			}
		}
	}
	return until
}

// put remembers a key until an instant, rounded up by a quarter of the time to
// it or a second, whichever is more.
func (f *filter) put(key deltasync.Key, until, now int64) {
	if f.most == 0 {
		f.full++
		return
	}
	if f.buckets == nil {
		f.buckets, f.ends = make([]uint64, f.most), new([generations]int64)
	}
	generation := f.generation(until, now)
	one, two, print := f.places(key)
	free, place := -1, 0
	for _, b := range [2]int{one, two} {
		for i := range slots {
			slot := slotOf(f.buckets[b], i)
			live := slot>>printBits != 0 && f.ends[slot>>printBits] > now
			switch {
			case live && slot&(1<<printBits-1) == print: // the key, or one that looks the same
				if f.ends[slot>>printBits] < f.ends[generation] {
					f.setSlot(b, i, generation<<printBits|print)
				}
				return
			case !live && free < 0:
				free, place = b, i
			}
		}
	}
	if free < 0 {
		f.cuckoo(one, generation<<printBits|print, now)
		return
	}
	f.fill(free, place, generation<<printBits|print)
}

// fill writes to a slot that holds nothing, or what has ended.
func (f *filter) fill(bucket, i int, slot uint64) {
	if slotOf(f.buckets[bucket], i) == 0 {
		f.taken++
	}
	f.setSlot(bucket, i, slot)
}

// cuckoo puts a slot into a full bucket; what it throws out goes to its other
// bucket, and so on.
func (f *filter) cuckoo(bucket int, slot uint64, now int64) {
	for range kicks {
		f.dice = f.dice*1664525 + 1013904223
		i := int(f.dice >> 30)
		out := slotOf(f.buckets[bucket], i)
		f.setSlot(bucket, i, slot)
		slot, bucket = out, f.other(bucket, out&(1<<printBits-1))
		for i := range slots {
			if s := slotOf(f.buckets[bucket], i); s>>printBits == 0 || f.ends[s>>printBits] <= now {
				f.fill(bucket, i, slot)
				return
			}
		}
	}
	f.full++
}

// generation is one that ends no sooner than until. Instants are rounded to
// multiples of a power of two, so that few generations serve all: four for
// each doubling of the time to go. Where all are in use, the next one that
// ends later serves, and where there is none the last one is made longer.
func (f *filter) generation(until, now int64) uint64 {
	spacing := int64(1) << max(shortest, bits.Len64(uint64(max(1, until-now)))-3)
	end := (until + spacing - 1) &^ (spacing - 1)
	free, later, last := 0, 0, 0
	for g := generations - 1; g > 0; g-- {
		switch e := f.ends[g]; {
		case f.dying>>g&1 != 0 || e != 0 && e <= now:
		case e == 0:
			free = g
		case e == end:
			return uint64(g)
		default:
			if e > end && (later == 0 || e < f.ends[later]) {
				later = g
			}
			if last == 0 || e > f.ends[last] {
				last = g
			}
		}
	}
	switch {
	case free != 0:
		f.ends[free] = end
		return uint64(free)
	case later != 0:
		return uint64(later)
	case last != 0:
		f.ends[last] = end
		return uint64(last)
	}
	// All have ended and wait to be swept: the one that ended last serves, and
	// what it holds is remembered longer than it had to be.
	for g := 1; g < generations; g++ {
		if f.ends[g] > f.ends[last] || last == 0 {
			last = g
		}
	}
	f.dying &^= 1 << last
	f.ends[last] = end
	return uint64(last)
}

// earlier has all generations end so much before.
func (f *filter) earlier(by int64) {
	if f.buckets == nil {
		return
	}
	for g, end := range f.ends {
		if end != 0 {
			f.ends[g] = max(1, end-by)
		}
	}
}

// sweep clears slots that have ended, so many buckets at a time, and gives the
// memory back when nothing is left.
func (f *filter) sweep(now int64, buckets int) (more bool) {
	if f.buckets == nil {
		return false
	}
	if f.swept == 0 {
		live := false
		f.dying = 0
		for g, end := range f.ends {
			switch {
			case end > now:
				live = true
			case end != 0:
				f.dying |= 1 << g
			}
		}
		if !live {
			*f = filter{most: f.most, full: f.full, dice: f.dice}
			return false
		}
		if f.dying == 0 {
			return false
		}
	}
	for ; f.swept < len(f.buckets) && buckets > 0; buckets-- {
		b := f.buckets[f.swept]
		for i := range slots {
			if slot := slotOf(b, i); slot != 0 && f.dying>>(slot>>printBits)&1 != 0 {
				b &^= slotMask << (i * slotBits)
				f.taken--
			}
		}
		f.buckets[f.swept] = b
		f.swept++
	}
	if f.swept < len(f.buckets) {
		return true
	}
	for g := range f.ends {
		if f.dying>>g&1 != 0 {
			f.ends[g] = 0
		}
	}
	f.swept, f.dying = 0, 0
	return false
}

// bytes is the memory that the filter holds.
func (f *filter) bytes() int { return 8 * len(f.buckets) }
