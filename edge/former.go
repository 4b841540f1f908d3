package edge

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A bucket whose capacity or refill was changed by much is cut into slices of
// another width, which nobody could add to those of before: it counts under
// another generation. What is in it counts as ever, so a key takes its level
// over, from where it stood at the change, at its first request under the changed
// rate, or when its record is swept. As all edges do, and levels join by max, others'
// charges are not lost either.

// formers is what rates were before they were changed.
type formers struct {
	of    map[uint64][]former    // by generation, the last one first
	heirs map[uint64]*limit.Rate // what those became, by theirs
	paces map[uint64]*limit.Rate // what queues were before that kept their generation, by it
	since map[uint64]int64       // when generations of now came in force; 0: with the last change; none: nobody knows
	at    atomic.Int64           // when the last change was first noticed; 0: it was not
}

// former is a rate and when it was changed; 0: with the last change.
type former struct {
	rate  *limit.Rate
	slow  *limit.Rate // of a queue, the slowest that it was before that under the same generation
	since int64       // when it came in force; 0: nobody knows
	until int64
}

// slices says that all that was charged under a rate is in its slices still: of what was
// carried over some may have been told turns by others that were before.
func (f former) slices(until int64) bool { return f.since > 0 && until-f.since < int64(f.rate.Window) }

// charged is what was charged while it was in force; it may have been before, too.
func (f former) charged(cells []crdt.Cell) (sum uint64) {
	for _, c := range cells {
		if c.Slice >= f.rate.SliceAt(f.since) {
			sum = crdt.SatAdd(sum, c.Charges)
		}
	}
	return sum
}

// last is when the last of those has flowed out whom others told turns, behind lines of
// before, if by its slices alone it might be so late; next comes after it.
func (f former) last(slow *limit.Rate, cells []crdt.Cell, late int64, before limit.Lines, until int64, next *limit.Rate) int64 {
	if !f.slices(until) {
		return late
	}
	return min(late, slow.Behindhand(f.charged(cells), before, until, next))
}

// changed is when the last change was, as far as is known at now.
func (f *formers) changed(now int64) int64 {
	f.at.CompareAndSwap(0, now)
	return min(now, f.at.Load())
}

// longestTurn is the longest that who waits in a queue is taken to do so: twice as long as a
// full one takes, by its own pace, or the slowest that it had.
func (f *formers) longestTurn(rate *limit.Rate) int64 {
	if f == nil || f.paces[rate.Generation] == nil && len(f.of[rate.Generation]) == 0 {
		return 2 * int64(rate.Longest())
	}
	most := longestHold(rate)
	if was := f.paces[rate.Generation]; was != nil {
		most = max(most, longestHold(was.As(rate)))
	}
	for _, was := range f.of[rate.Generation] {
		most = max(most, longestHold(was.rate.As(rate)))
	}
	return 2 * most
}

// became says that a rate is of those that became others: what is in its buckets went on
// under these.
func (f *formers) became(rate *limit.Rate) bool { return f != nil && f.heirs[rate.Generation] != nil }

// slower is the slower one of what a queue was, as some may wait by that still.
func slower(was, before *limit.Rate) *limit.Rate {
	if before != nil && was.DrainsFaster(before) {
		return before
	}
	return was
}

// mostFormers bounds how many changes back a key may not have been asked for.
const mostFormers = 4

// formersOf finds the buckets of a set that others were before, of those that
// there were before that, and of the set that was in force last.
func formersOf(set *limit.Set, before *limit.Set, known *formers) *formers {
	last := map[uint64]*limit.Rate{}
	for _, rule := range before.Rules() {
		for _, rate := range rule.Rates {
			if rate.Bucket() {
				last[rate.Lineage] = rate
			}
		}
	}
	found := &formers{of: map[uint64][]former{}, heirs: map[uint64]*limit.Rate{}, paces: map[uint64]*limit.Rate{}, since: map[uint64]int64{}}
	for _, rule := range set.Rules() {
		for _, rate := range rule.Rates {
			was := last[rate.Lineage]
			if !rate.Bucket() || was == nil {
				continue
			}
			list := []former{{rate: was, slow: was}}
			if known != nil {
				list[0].slow = slower(was, known.paces[was.Generation])
				if at, ok := known.since[was.Generation]; ok {
					list[0].since = cmp.Or(at, known.at.Load())
				}
				for _, f := range known.of[was.Generation] {
					if f.until == 0 {
						f.until = known.at.Load()
					}
					list = append(list, f)
				}
			}
			if was.Generation != rate.Generation {
				found.since[rate.Generation] = 0
			} else if list[0].since > 0 {
				found.since[rate.Generation] = list[0].since
			}
			list = slices.DeleteFunc(list, func(f former) bool {
				same := f.rate.Generation == rate.Generation
				if same && f.rate.Queue {
					found.paces[rate.Generation] = slower(f.slow, found.paces[rate.Generation])
				}
				return same
			})
			if list = list[:min(len(list), mostFormers)]; len(list) == 0 {
				continue
			}
			found.of[rate.Generation] = list
			for _, f := range list {
				found.heirs[f.rate.Generation] = rate
			}
		}
	}
	return found
}

// legacy is what a key has under what its rate was before: the level of its own
// charges, that of everybody's, at some instant, the end of a penalty, and when all have
// gone on who wait in the lines of a queue: they keep the turns of its pace.
type legacy struct {
	own, all limit.Fill
	at       int64
	until    int64
	lines    limit.Lines
	most     time.Duration // that a full queue took
}

// behind is how long, at the most, those still wait in a queue who are known by slices
// alone: after a change some do so by the pace that was, until it would have emptied.
func (n *Node) behind(rate *limit.Rate, sums []crdt.Cell, carry crdt.Carry, now int64) time.Duration {
	wait := rate.Latest(sums, carry, now)
	if f := n.formers.Load(); f != nil && f.paces[rate.Generation] != nil {
		if was := f.paces[rate.Generation].As(rate); now-f.changed(now) < int64(max(was.Window, was.Longest())) {
			wait = max(wait, was.Latest(sums, carry, now))
		}
	}
	return wait
}

// heir is the key and rate that a record of a bucket goes on under which was changed.
type heir struct {
	key  deltasync.Key
	rate *limit.Rate
}

// heirOf is that of a record, if its rate was changed.
func (f *formers) heirOf(r *record) (h heir, ok bool) {
	was := r.block.rate
	rate := f.heirs[was.Generation]
	if rate == nil {
		return h, false
	}
	rate = rate.As(was)
	return heir{goesOn(r.key, was.Generation, rate.Generation), rate}, true
}

// goesOn is the key that one goes on under as its generation becomes another.
func goesOn(key deltasync.Key, from, to uint64) deltasync.Key {
	return deltasync.HashOf(key, from).Key(to)
}

// handedOn says that a key of some generation went on under another: what others still tell
// of it is theirs to hand on. s.mu is held.
func (n *Node) handedOn(s *shard, key deltasync.Key, generation uint64) bool {
	f := n.formers.Load()
	if f == nil || f.heirs[generation] == nil {
		return false
	}
	return n.cfg.View.Get(key).Handed || s.find(goesOn(key, generation, f.heirs[generation].Generation)) != nil
}

// inherit has keys go on under what their rates became. s.mu is held.
func (n *Node) inherit(s *shard, heirs []heir, now int64) {
	for _, h := range heirs {
		if s.find(h.key) == nil {
			n.admit(s, h.key, h.rate, now, nil)
		}
	}
}

// handsOn notes that a key went on under another. Neither who inherits once more, as that
// was idle, nor rules that come back find it as it was: turns of a pace that was, and charges
// that have drained, would count again.
func (n *Node) handsOn(key deltasync.Key, rate *limit.Rate) {
	n.cfg.View.Set(key, Totals{Handed: true}, max(rate.Lingers(), rate.Memory))
}

// inheritance is the legacy of the key of a bucket that is not live, which is handed on to it.
func (n *Node) inheritance(s *shard, key deltasync.Key, rate *limit.Rate, now int64) (l legacy) {
	known := n.formers.Load()
	if known == nil || !rate.Bucket() {
		return l
	}
	hash := deltasync.Hash(deltasync.Hash(key).Key(rate.Generation)) // the same bits flip back
	list := known.of[rate.Generation]
	for i, f := range slices.Backward(list) {
		was, slow, next, until := f.rate.As(rate), f.slow.As(rate), rate, min(now, f.until) // a tenant's bucket was a multiple of it
		if f.until == 0 {
			until = known.changed(now)
		}
		if i > 0 {
			next = list[i-1].rate.As(rate)
		}
		own, all := was.Drained(l.own, l.at, until), was.Drained(l.all, l.at, until)
		old := hash.Key(was.Generation)
		l.most = max(l.most, slow.Longest())
		r, seen := s.find(old), n.cfg.View.Get(old)
		pushed := r == nil && !seen.Here && !seen.empty() // it was not asked here: what is held is others' too
		switch h := s.blocked.asOf(old, was, until); {
		case r == nil && seen.Handed: // one that moved to the filter ends by itself
		case h.penalty:
			l.until = max(l.until, h.until)
		case h.until > until:
			if own = max(own, limit.FillOf(was.FullBefore(time.Duration(h.until-until)))); !pushed {
				l.lines = l.lines.And(was.Lines(func(*limit.Rate) int64 { return h.until }))
			}
		}
		if r != nil {
			b := s.whole(r)
			r.settle()
			b.memory.exact.Follow(b.rate, now)
			lines, floors := b.memory.exact.Handed(next) // first: what looks back in time takes it for set back
			before := l.lines.And(floors)
			l.lines = l.lines.And(lines)
			own = max(own, b.rate.OwnFill(&b.memory.exact, until))
			all = max(all, b.rate.UsedFill(s.sums(b), b.memory.carry, until))
			l.until = max(l.until, b.sentence(now))
			l.lines = l.lines.And(slow.Lines(func(r *limit.Rate) int64 { // by others
				return f.last(r, s.sums(b), until+int64(r.Delay(nil, s.sums(b), b.memory.carry, until)), before, until, next)
			}))
			n.outlive(b)
			s.remove(s.placeOf(old))
			n.handsOn(old, was)
		} else if !seen.empty() {
			all = max(all, was.UsedFill(seen.Cells, seen.Carry, until))
			l.until = max(l.until, seen.Until)
			before := l.lines
			l.lines = l.lines.And(slow.Lines(func(r *limit.Rate) int64 {
				late := until + int64(r.Latest(seen.Cells, seen.Carry, until))
				if pushed {
					late = f.last(r, seen.Cells, late, before, until, next)
				}
				return late
			}))
			n.handsOn(old, was)
		}
		s.blocked.lift(old)
		l.own, l.all, l.at = moved(own, was, next), moved(all, was, next), until
	}
	return l
}

// moved is a level under another rate. Of what a bucket starts with once, as much stays
// spent, or to be spent. A limit that stayed, as one that a request asks for, has as much
// in use.
func moved(level limit.Fill, was, rate *limit.Rate) limit.Fill {
	if level == 0 || rate.Limit == was.Limit {
		return level
	}
	return level.Plus(rate.Drain.Floor).Less(was.Drain.Floor)
}

// placeOf is where the record of a key stands that is live.
func (s *shard) placeOf(key deltasync.Key) int {
	i := s.home(key)
	for s.table[i].key != key {
		i = s.after(i)
	}
	return i
}

// bequeath gives a new record what its key had before. It drains by its own rate since.
func (s *shard) bequeath(r *record, l legacy, now int64) {
	b := r.block
	if l.own > 0 {
		b.memory.exact.Inherits(b.rate, l.own, l.at)
	}
	if l.all > 0 {
		b.memory.carry = b.memory.carry.Later(b.rate.CarryOf(l.all, l.at))
	}
	if b.rate.Queue {
		b.memory.exact.Behind(l.lines, int64(l.most), 0, now)
	}
	s.obey(r, l.until, now)
}
