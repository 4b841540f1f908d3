package limit

import (
	"sort"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
)

// MaxLog bounds the limit of a sliding log, its margin included: it may have to
// remember as many hits a key.
const MaxLog = 4096

// log is what an Exact knows of a sliding log: each charge with its instant,
// oldest first, those of one instant together. A charge counts from then on for
// a window, the instant a window later not included.
type log struct {
	ring  []stamp // a power of two
	head  int
	n     int
	total uint64
	top   uint64 // the largest ceiling that it was charged under: tenants and tiers may share it
	gone  int64  // when the newest was charged that was dropped before its time; 0: none was
	under uint64 // a ceiling that is there without it
	ahead int64  // up to when charges were made that follow moved; 0: none were
	back  int64  // to when it moved them, at the earliest of those that may count yet
}

type stamp struct {
	at   int64
	cost uint64
}

func (l *log) stamp(i int) *stamp { return &l.ring[(l.head+i)&(len(l.ring)-1)] }

// expire drops what has left the window.
func (l *log) expire(r *Rate, now int64) {
	l.follow(r, now)
	for l.n > 0 && satAdd(l.stamp(0).at, int64(r.Window)) <= now {
		l.drop()
	}
}

// follow has what lies ahead of a clock that was set back be charged now.
func (l *log) follow(r *Rate, now int64) {
	if l.n == 0 || !r.setBack(l.stamp(l.n-1).at, now) {
		return
	}
	if l.ahead < r.StartOf(r.Reach(now)) {
		l.back = now
	}
	l.back = min(l.back, now)
	l.ahead = max(l.ahead, l.stamp(l.n-1).at)
	for i := range l.n {
		l.stamp(i).at = min(l.stamp(i).at, now)
	}
	l.gone = min(l.gone, now)
	l.tidy()
}

// lacks says that what was dropped matters by now, as the ceiling was raised since, or some
// of the others were given back: slices tell what it was.
func (l *log) lacks(r *Rate, now int64) bool {
	return l.gone != 0 && r.Ceiling > l.under && satAdd(l.gone, int64(r.Window)) > now
}

func (l *log) drop() {
	l.total = crdt.SatSub(l.total, l.stamp(0).cost)
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.n--
}

// charge appends a charge. One that was denied may be logged too: then the
// oldest are dropped as long as the others fill the limit, as they decide
// nothing before those have left.
func (l *log) charge(r *Rate, cost uint64, at int64) {
	l.expire(r, at)
	if l.top = max(l.top, r.Ceiling); r.Lent { // requests may have any limit, and borrow above it
		l.top = MaxLog
	}
	if l.n > 0 {
		at = max(at, l.stamp(l.n-1).at)
	}
	l.total = crdt.SatAdd(l.total, cost)
	same := l.n > 0 && l.stamp(l.n-1).at == at
	if same {
		last := l.stamp(l.n - 1)
		last.cost = crdt.SatAdd(last.cost, cost)
	}
	for l.n > 0 && crdt.SatSub(l.total, l.stamp(0).cost) >= l.top {
		l.gone, l.under = l.stamp(0).at, l.top
		l.drop()
	}
	if !same {
		l.push(stamp{at, cost})
	}
}

func (l *log) push(s stamp) {
	if l.n == len(l.ring) {
		ring := make([]stamp, max(4, 2*l.n))
		for i := range l.n {
			ring[i] = *l.stamp(i)
		}
		l.ring, l.head = ring, 0
	}
	l.n++
	*l.stamp(l.n - 1) = s
}

// refund takes back what was charged in a slice, first at an instant and then the
// newest, and returns what is left of cost.
func (l *log) refund(r *Rate, cost uint64, made crdt.Slice, at, now int64) (left uint64) {
	l.expire(r, now)
	from, to := r.StartOf(made), r.EndOf(made)
	if at >= from && at < to {
		cost = l.takeBack(cost, at, at+1)
	}
	cost = l.takeBack(cost, from, to)
	if l.moved(from) {
		cost = l.takeBack(cost, l.back, l.back+1)
		cost = l.takeBack(cost, l.back, from)
	}
	l.tidy()
	l.under = 0 // what was dropped may decide now
	return cost
}

// moved says that charges of a slice that begins then may have been moved by follow: to back, or
// where it did so again, to some instant since.
func (l *log) moved(from int64) bool { return l.ahead != 0 && from > l.back && from <= l.ahead }

// of is what a slice has of what still counts, or others charged since it was moved.
func (l *log) of(r *Rate, slice crdt.Slice) uint64 {
	from, to := r.StartOf(slice), r.EndOf(slice)
	if l.moved(from) {
		from = l.back
	}
	return l.within(from, to)
}

// within is what was charged from one instant to another, and still counts.
func (l *log) within(from, to int64) (cost uint64) {
	for i := l.n - 1; i >= 0 && l.stamp(i).at >= from; i-- {
		if s := l.stamp(i); s.at < to {
			cost = crdt.SatAdd(cost, s.cost)
		}
	}
	return cost
}

// takeBack takes back what was charged from one instant to another, the newest first.
func (l *log) takeBack(cost uint64, from, to int64) (left uint64) {
	for i := l.n - 1; i >= 0 && cost > 0 && l.stamp(i).at >= from; i-- {
		if s := l.stamp(i); s.at < to {
			back := min(cost, s.cost)
			s.cost -= back
			l.total = crdt.SatSub(l.total, back) // it may have been too much to add up
			cost -= back
		}
	}
	return cost
}

// tidy joins the charges of one instant and drops the empty ones.
func (l *log) tidy() {
	kept := 0
	for i := range l.n {
		s := *l.stamp(i)
		switch {
		case s.cost == 0:
		case kept > 0 && l.stamp(kept-1).at == s.at:
			l.stamp(kept - 1).cost = crdt.SatAdd(l.stamp(kept-1).cost, s.cost)
		default:
			*l.stamp(kept) = s
			kept++
		}
	}
	l.n = kept
}

// after is what is left in the log when the k oldest have left it.
func (l *log) after(k int) uint64 {
	left := l.total
	for i := range k {
		left = crdt.SatSub(left, l.stamp(i).cost)
	}
	return left
}

// wait is how long after now there is room for cost beside what others count
// by their slices.
func (l *log) wait(r *Rate, others []crdt.Cell, cost uint64, now int64) time.Duration {
	l.expire(r, now)
	target := crdt.SatSub(r.Ceiling, cost)
	leaves := func(k int) int64 { // when the k oldest have left
		if k == 0 {
			return now
		}
		return max(now, l.stamp(k-1).at+int64(r.Window))
	}
	k := sort.Search(l.n+1, func(k int) bool {
		left := l.after(k)
		return left <= target && r.Rounded(r.inSlices(others, leaves(k))) <= target-left
	})
	if k == 0 {
		return 0
	}
	// Before the last of them leaves, others may have made room.
	at := r.firstFit(others, crdt.SatSub(target, l.after(k-1)), leaves(k-1))
	if l.after(k-1) > target || k <= l.n && leaves(k) < at {
		at = leaves(k)
	}
	return time.Duration(at - now)
}

// bytes is the memory that the log holds.
func (l *log) bytes() int { return len(l.ring) * int(unsafe.Sizeof(stamp{})) }

// clear forgets all, and keeps the memory where it is little.
func (l *log) clear() {
	ring := l.ring
	if len(ring) > 64 {
		ring = nil
	}
	*l = log{ring: ring}
}
