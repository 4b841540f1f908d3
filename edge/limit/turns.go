package limit

import (
	"cmp"
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// turns is what a bucket knows of the requests that it told to wait.
//
// A queue has two lines. In the first stand those that go by the rule's own outflow or by a
// faster one, a tenant's or one that a request asked for: in it nobody is told a turn
// before what came earlier has flowed out, be it the level that falls at once, as rules make
// the outflow faster or others give back, a clock that is set back, or a request of
// another outflow that comes between. Who goes by a slower one stands in the second, which
// is behind the first: he overtakes nobody, and nobody else waits at his pace.
//
// No line is longer than a full queue takes to flow out, whatever the level, which says
// little where it drains at several paces.
//
// A bucket with max_delay has no lines: who waits does so for room.
type turns struct {
	lines [2]line
	round int64     // of both, that may be what those who told them rounded up
	most  int64     // what a full queue takes, or took by the rules that its floors are of
	least uint64    // with max_delay: the least room that any who waits was told to wait for
	told  int64     // when turns were last told of: it may be of a bucket that was never charged here
	costs [2]uint32 // of the last who was told his turn in each line, as many times the rule's own outflow, rounded up
}

// line is a line of a queue.
type line struct {
	turn  int64 // when the last who was told his turn has flowed out; with max_delay when he may go on
	began int64 // when that one may go on, in a queue
	floor int64 // nobody who comes may go on before, whoever leaves
}

// next is when whoever comes next may go on at the earliest.
func (l *line) next() int64 { return max(l.turn, l.floor) }

// of says in which line who goes by a rate stands.
func (t *turns) of(r *Rate) int {
	if r.Slower() {
		return 1
	}
	return 0
}

// next is when whoever comes next, and goes by a rate, may go on at the earliest.
func (t *turns) next(r *Rate) int64 {
	if r.Slower() {
		return max(t.lines[0].next(), t.lines[1].next())
	}
	return t.lines[0].next()
}

// backlog is the time between those that have to flow out before whoever comes next, and
// goes by a rate: since now, or when all have gone on who wait by what rules were; but of
// these no more than wait in a full queue of such rules, or there would be more of them after
// each change. As much as rounding adds is left out: a nanosecond for each part that was given back, and a
// millionth of a unit.
func (t *turns) backlog(r *Rate, now int64) (from, to int64) {
	from = max(now, min(t.floor(r), satAdd(now, t.most)))
	return from, max(from, satSub(t.next(r), int64(time.Microsecond)+r.outflow(1)/micro))
}

// floor is that of those before whoever comes next, and goes by a rate.
func (t *turns) floor(r *Rate) int64 {
	if r.Slower() {
		return max(t.lines[0].floor, t.lines[1].floor)
	}
	return t.lines[0].floor
}

// inLine is the level of a bucket that flows out in as long a time as those take that were
// told their turns, times Drain.Per.
func (b *bucket) inLine(r *Rate, now int64) wide {
	if !r.Queue {
		return wide{}
	}
	from, to := b.turns.backlog(r, now)
	return product(r.Drain.Refill, uint64(to-from))
}

// lineWait is how long after now inLine is no more than target.
func (b *bucket) lineWait(r *Rate, target wide, now int64) time.Duration {
	if !r.Queue {
		return 0
	}
	b.follow(r, now)
	from, to := b.turns.backlog(r, now)
	room, _ := target.over(r.Drain.Refill)
	if room = min(room, math.MaxInt64); to-from <= int64(room) {
		return 0
	}
	at := to - int64(room)
	if b.turns.floor(r) >= at {
		at -= b.turns.most
	}
	return time.Duration(at - now)
}

// last says that nobody was told a turn behind that of a charge, which may have been told by
// a clock that was set back since. Of one that nobody knows (At is 0) nobody waits behind it
// whose turn has come.
func (t *turns) last(c *Charge, now int64) bool {
	const rounding = int64(time.Microsecond) // a nanosecond for each part that was given back
	next := t.next(c.Rate)
	behind := satSub(satSub(next, c.Rate.outflow(c.Cost)), c.Turn)
	return next <= now || behind <= 0 && (behind > -rounding || c.At == 0)
}

// goBack has what was told go back with a clock that was set back to now: who waits does so
// by one that nobody sets.
func (t *turns) goBack(by, now int64) {
	for i := range t.lines {
		l := &t.lines[i]
		l.turn, l.began, l.floor = satSub(l.turn, by), satSub(l.began, by), satSub(l.floor, by)
	}
	t.told = min(t.told, now)
}

// Waited says that all have gone on whom a bucket told to wait, by a clock that was not set
// back since. In a queue the last of them may yet flow out.
func (x *Exact) Waited(r *Rate, now int64) bool {
	t := &x.bucket.turns
	if t.told > now {
		return false
	}
	for i := range t.lines {
		l := &t.lines[i]
		if l.floor > now || r.Queue && l.began > now || !r.Queue && l.turn > now {
			return false
		}
	}
	return true
}

// Slower says that it drains slower than its rule says, for a tenant, or as a request
// asked for.
func (r *Rate) Slower() bool { return r.ruled != nil && r.ruled.DrainsFaster(r) }

// DrainsFaster says that a bucket drains at a faster pace than another.
func (r *Rate) DrainsFaster(other *Rate) bool {
	return product(other.Drain.Refill, uint64(r.Drain.Per)).less(product(r.Drain.Refill, uint64(other.Drain.Per)))
}

// Leading is the rate by which the first line of its queue goes, as far as it tells: itself,
// or the rule's own where it is slower, or one request's.
func (r *Rate) Leading() *Rate {
	if r.asked || r.Slower() {
		return r.ruled
	}
	return r
}

// RuledAsFast says that two buckets drain at the same pace, but for what tenants or requests
// have instead.
func (r *Rate) RuledAsFast(other *Rate) bool {
	is, was := cmp.Or(r.ruled, r).Drain, cmp.Or(other.ruled, other).Drain
	return is.Refill == was.Refill && is.Per == was.Per
}

// outflow is how long a cost takes to flow out, rounded up.
func (r *Rate) outflow(cost uint64) int64 {
	return int64(min(product(cost, uint64(r.Drain.Per)).overUp(r.Drain.Refill), math.MaxInt64))
}

// Queued notes that a request of some cost was told its turn in a queue. The nanosecond
// that is begun is not the next one's to wait: the level says whether he has to.
func (x *Exact) Queued(r *Rate, cost uint64, turn, now int64) {
	t := &x.bucket.turns
	if max(t.lines[0].next(), t.lines[1].next()) <= now { // nobody waits any more
		t.round, t.most = 0, 0
	}
	t.told = max(t.told, now)
	whole, _ := product(cost, uint64(r.Drain.Per)).over(r.Drain.Refill)
	i, out := t.of(r), satAdd(turn, int64(min(whole, math.MaxInt64)))
	if l := &t.lines[i]; out >= l.turn {
		l.turn, l.began = out, turn
		rule := cmp.Or(r.ruled, r).Drain
		t.costs[i] = uint32(min(product(rule.Refill, uint64(out-turn)).overUp(uint64(rule.Per)), math.MaxUint32))
	}
}

// Leaves notes that of a charge that may be given back so much is: if it was the last in a
// queue, who comes next has its turn.
func (x *Exact) Leaves(c *Charge, cost uint64) {
	if c.Rate.Queue {
		t := &x.bucket.turns
		l := &t.lines[t.of(c.Rate)]
		l.turn = satSub(l.turn, c.Rate.outflow(cost))
		l.began = min(l.began, l.turn)
	}
}

// Lines is when nobody waits any more in the one line of a queue and in the other.
type Lines [2]int64

// Lines is what a rate says of them, where until tells it of one: of the first by Leading,
// and of the other where it is Slower itself.
func (r *Rate) Lines(until func(*Rate) int64) (l Lines) {
	l[0] = until(r.Leading())
	if r.Slower() {
		l[1] = until(r)
	}
	return l
}

// And is the later of both, of each line.
func (l Lines) And(m Lines) Lines { return Lines{max(l[0], m[0]), max(l[1], m[1])} }

// Lines is what turns were told, to those that wait in a queue or waited; and how much
// earlier they may have been due by what Behind was told.
func (x *Exact) Lines() (lines Lines, rounded int64) {
	t := &x.bucket.turns
	return Lines{t.lines[0].next(), t.lines[1].next()}, t.round
}

// Handed is what Lines are to a rate that comes next: those that were told turns here keep
// them, and the last of them flows out by what is faster, that or what he was told by. Floors
// are what had been told to Behind.
func (x *Exact) Handed(next *Rate) (lines, floors Lines) {
	next = cmp.Or(next.ruled, next) // what tenants have is so many times that
	for i := range lines {
		l, cost := x.bucket.turns.lines[i], x.bucket.turns.costs[i]
		out := l.turn
		if out > l.began && cost < math.MaxUint32 {
			out = min(out, satAdd(l.began, next.outflow(uint64(cost))))
		}
		lines[i], floors[i] = max(out, l.floor), l.floor
	}
	return lines, floors
}

// Behindhand is when the last of those has flowed out, at the latest, whom others told turns
// by a rate until some instant, so much in all, behind those in lines, if another comes after.
func (r *Rate) Behindhand(charged uint64, lines Lines, until int64, next *Rate) int64 {
	last := lines[0]
	if r.Slower() {
		last = max(last, lines[1])
	}
	if charged == 0 {
		return last
	}
	return satAdd(satAdd(max(last, until), r.outflow(charged-1)), min(r.outflow(1), next.outflow(1)))
}

// Behind notes, at now, that nobody who comes to a queue may go on before an instant, that
// of his line, whoever leaves, where a full queue takes so long by the rules that were. It may
// have been rounded up by so much.
func (x *Exact) Behind(lines Lines, most, rounded, now int64) {
	t := &x.bucket.turns
	if max(t.lines[0].next(), t.lines[1].next()) <= now {
		t.round, t.most = 0, 0
	}
	t.round, t.most = max(t.round, rounded), max(t.most, most)
	t.told = max(t.told, now)
	for i := range lines {
		t.lines[i].floor = max(t.lines[i].floor, lines[i])
	}
}

// Waits notes that a request was told to wait until its turn, for room in a bucket of which
// so much is withheld from it. Those who wait may have been told by margins that have
// closed, by limits of their own, or as others of their class.
func (x *Exact) Waits(r *Rate, withheld uint64, turn, now int64) {
	t, room := &x.bucket.turns, crdt.SatSub(r.Ceiling, withheld)
	t.told = max(t.told, now)
	if l := &t.lines[0]; l.turn <= now { // nobody waits any more
		t.least, l.turn = room, turn
	} else {
		t.least, l.turn = min(t.least, room), max(l.turn, turn)
	}
}

// tooLate is how long after now who comes would not wait for longer than MaxWait, behind
// those who were told their turns.
func (b *bucket) tooLate(r *Rate, now int64) time.Duration {
	if !r.Queue || r.MaxWait == 0 || b.turns.next(r) <= now {
		return 0
	}
	b.follow(r, now)
	return time.Duration(max(0, b.turns.next(r)-now-int64(r.MaxWait)))
}
