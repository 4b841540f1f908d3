package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// class is how soon a dirty record is told. (design.md §4: cadence is per key.)
type class int

const (
	pressing class = iota // with the next flush, which hurries: half of its limit used, or more
	urgently              // likewise: first touched, asked about
	hot                   // with the next regular flush
	cold                  // within a second: little changed of a long window, far from its limit
	classes  = int(cold) + 1
)

// coldEvery is how long cold records wait at the most, shortestCold the window
// from which on there are any: a twentieth of it is that.
const (
	coldEvery    = time.Second
	shortestCold = 20 * coldEvery
)

// patient says that counts which rose by so much since the last fold may wait
// with the cold ones: by less than a hundredth of the limit.
func patient(rate *limit.Rate, rose uint64) bool {
	return rate.Window >= shortestCold && rose < rate.Limit/100
}

// calm is patient for all that the record was charged in the slice of its last
// fold, as far as it is settled: what folds with every request never gathers much
// between two.
func (r *record) calm(rate *limit.Rate) bool {
	if !patient(rate, r.fresh) {
		return false
	}
	return r.sparse() || patient(rate, r.block.own.Get(r.block.slice).Charges)
}

// coldTick names the second that a shard's cold records are due in. Each shard
// has its own beginning, so that they do not come all at once.
func coldTick(now int64, shard int) int64 {
	return (now + int64(shard)*int64(coldEvery)/shards) / int64(coldEvery)
}

// mark makes the record dirty, and due with the next flush of its class. One
// that is dirty already stands in a list; it is put in a sooner one if that is
// new.
func (s *shard) mark(r *record, f flags) {
	news := f &^ r.flags
	switch {
	case news&urgent != 0:
		s.enlist(r, r.sooner(urgently))
	case r.flags&dirty == 0 || news&untold != 0:
		s.enlist(r, r.sooner(hot))
	}
	r.flags |= dirty | f
}

// sooner is the class of a record that would be in another: under a flood of keys
// those that are new must not keep those back that are near their limit.
func (r *record) sooner(c class) class {
	if rate := r.block.rate; rate.Limit > 0 && r.known() >= rate.Limit/2 && r.known() > 0 {
		return pressing
	}
	return c
}

// enlist puts the record at the end of a list.
func (s *shard) enlist(r *record, c class) {
	total := 0
	for _, list := range s.dirty {
		total += len(list)
	}
	if total >= smallestTable+2*s.used {
		s.compact()
	}
	s.dirty[c] = append(s.dirty[c], r.key)
	if bit := uint32(1) << c; s.waits.Load()&bit == 0 {
		s.waits.Or(bit)
	}
	r.flags |= dirty
}

// compact drops from the lists what was forgotten since, and what stands in a
// sooner one: while nothing can be sent, keys come and go.
func (s *shard) compact() {
	for c := range s.dirty {
		s.dirty[c] = slices.DeleteFunc(s.dirty[c], func(key deltasync.Key) bool {
			r := s.find(key)
			if r == nil || r.flags&dirty == 0 {
				return true
			}
			r.flags &^= dirty // so that its next entry goes
			return false
		})
	}
	for _, list := range s.dirty {
		for _, key := range list {
			s.find(key).flags |= dirty
		}
	}
}
