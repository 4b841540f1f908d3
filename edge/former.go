package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A bucket whose capacity or refill was changed by much is cut into slices of
// another width, which nobody could add to those of before: it counts under
// another generation. What is in it counts as ever, so a key takes its level
// over, from where it stood, at its first request under the changed rate. As all
// edges do, and levels join by max, others' charges are not lost either.

// formers are the rates, by generation, that a rate was before it was changed,
// the last one first.
type formers map[uint64][]*limit.Rate

// mostFormers bounds how many changes back a key may not have been asked for.
const mostFormers = 4

// formersOf finds the buckets of a set that others were before, of those that
// there were before that, and of the set that was in force last.
func formersOf(set *limit.Set, before *limit.Set, known formers) formers {
	last := map[uint64]*limit.Rate{}
	for _, rule := range before.Rules() {
		for _, rate := range rule.Rates {
			if rate.Bucket() {
				last[rate.Lineage] = rate
			}
		}
	}
	found := formers{}
	for _, rule := range set.Rules() {
		for _, rate := range rule.Rates {
			was := last[rate.Lineage]
			if !rate.Bucket() || was == nil {
				continue
			}
			list := slices.DeleteFunc(append([]*limit.Rate{was}, known[was.Generation]...), func(r *limit.Rate) bool {
				return r.Generation == rate.Generation
			})
			if len(list) > 0 {
				found[rate.Generation] = list[:min(len(list), mostFormers)]
			}
		}
	}
	return found
}

// legacy is what a key has under what its rate was before: the level of its own
// charges, that of everybody's, and the end of a penalty.
type legacy struct {
	own, all uint64
	until    int64
}

// inheritance is the legacy of the key of a bucket that is not live. What has it
// is forgotten: another change back would find it as it was.
func (n *Node) inheritance(s *shard, key deltasync.Key, rate *limit.Rate, now int64) (l legacy) {
	known := n.formers.Load()
	if known == nil || !rate.Bucket() {
		return l
	}
	hash := deltasync.Hash(deltasync.Hash(key).Key(rate.Generation)) // the same bits flip back
	for _, was := range (*known)[rate.Generation] {
		was = was.As(rate) // a tenant's bucket was a multiple of it
		own, all := uint64(0), uint64(0)
		old := hash.Key(was.Generation)
		if h := s.blocked.find(old, was, now); h.penalty {
			l.until = max(l.until, h.until)
		} else if h.until > now {
			own = was.FullBefore(time.Duration(h.until - now))
		}
		if r := s.find(old); r != nil {
			b := s.whole(r)
			r.settle()
			own = roundedUp(b.rate.Measure(&b.memory.exact, nil, nil, crdt.Carry{}, now))
			all = roundedUp(b.rate.Used(s.sums(b), b.memory.carry, now))
			l.until = max(l.until, b.sentence(now))
			n.forget(s, s.placeOf(old), now)
		} else {
			seen := n.cfg.View.Get(old)
			all = roundedUp(was.Used(seen.Cells, seen.Carry, now))
			l.until = max(l.until, seen.Until)
		}
		s.blocked.lift(old)
		// Of what a bucket starts with once, as much stays spent, or to be spent.
		// A limit that stayed, as one that a request asks for, has as much in use.
		moved := func(level uint64) uint64 {
			if rate.Limit == was.Limit {
				return level
			}
			return crdt.SatSub(crdt.SatAdd(level, rate.Drain.Floor), was.Drain.Floor)
		}
		if own > 0 {
			l.own = max(l.own, moved(own))
		}
		if all > 0 {
			l.all = max(l.all, moved(all))
		}
	}
	return l
}

func roundedUp(l limit.Level) uint64 {
	if l.Part {
		return crdt.SatAdd(l.Whole, 1)
	}
	return l.Whole
}

// placeOf is where the record of a key stands that is live.
func (s *shard) placeOf(key deltasync.Key) int {
	i := s.home(key)
	for s.table[i].key != key {
		i = s.after(i)
	}
	return i
}

// bequeath gives a new record what its key had before.
func (s *shard) bequeath(r *record, l legacy, now int64) {
	b := r.block
	if l.own > 0 {
		x := &b.memory.exact
		x.Charge(b.rate, crdt.SatSub(l.own, roundedUp(b.rate.Measure(x, nil, nil, crdt.Carry{}, now))), now)
	}
	if l.all > 0 {
		b.memory.carry = b.memory.carry.Later(b.rate.CarryOf(l.all, now))
	}
	s.obey(r, l.until, now)
}
