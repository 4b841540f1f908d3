package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Algorithm says how the slices of a window add up to what is used.
type Algorithm uint8

const (
	// FixedWindow counts the slice that now falls in, and nothing before it.
	FixedWindow Algorithm = iota + 1
	// SlidingWindow counts the current window and as much of the one before
	// as still overlaps the last W (two windows, interpolated).
	SlidingWindow
	// SubWindows counts the last N slices of W/N, and as much of the slice
	// before them as still overlaps the last W.
	SubWindows
	// TokenBucket has a capacity that is refilled at a steady rate. Its level
	// is what was taken and has not been refilled.
	TokenBucket
	// LeakyBucket has a capacity that drains at a steady rate: as a meter it is
	// a TokenBucket by another name, as a queue it tells each request how long
	// to wait for its turn.
	LeakyBucket
	// SlidingLog remembers the instant of each of its edge's hits for a window,
	// and counts those of others as SubWindows does.
	SlidingLog
	// FirstHit is a fixed window that begins with the first hit after the end
	// of the last one.
	FirstHit
	// Concurrency counts slots that are held: SubWindows with the oldest in
	// full, whose window is the longest that a slot is held (its lease), so
	// that the slots of a dead holder come back. To release a slot is to refund
	// it into the slice in which it was acquired.
	Concurrency
)

var algorithmNames = map[string]Algorithm{
	"fixed_window":   FixedWindow,
	"sliding_window": SlidingWindow,
	"sub_windows":    SubWindows,
	"token_bucket":   TokenBucket,
	"leaky_bucket":   LeakyBucket,
	"sliding_log":    SlidingLog,
	"concurrency":    Concurrency,
}

func (a Algorithm) String() string {
	if a == FirstHit { // in rules it is a fixed_window with another align
		return "first_hit"
	}
	return nameOf(algorithmNames, a)
}

// Oldest says how SubWindows counts the slice that only partly overlaps the
// window.
type Oldest uint8

const (
	// OldestLinear counts the slice by the part of it that overlaps.
	OldestLinear Oldest = iota + 1
	// OldestFull counts the whole slice: never over the limit in any window,
	// at the price of up to one slice in N of the rate.
	OldestFull
)

var oldestNames = map[string]Oldest{"linear": OldestLinear, "full": OldestFull}

func (o Oldest) String() string { return nameOf(oldestNames, o) }

// Rounding says what becomes of a fraction of a hit in what is used.
type Rounding uint8

const (
	RoundDown Rounding = iota + 1 // 6.5 used counts as 6
	RoundNone                     // 6.5 used leaves no room for 1 more in 7
	RoundUp                       // 6.5 used counts as 7
)

var roundingNames = map[string]Rounding{"down": RoundDown, "none": RoundNone, "up": RoundUp}

func (r Rounding) String() string { return nameOf(roundingNames, r) }

// Scope says whose counts a rate includes.
type Scope uint8

const (
	ScopeEdge   Scope = iota + 1 // this edge alone; nothing is published
	ScopeRegion                  // all edges of the region
	ScopeGlobal                  // all edges of all regions
)

var scopeNames = map[string]Scope{"edge": ScopeEdge, "local": ScopeEdge, "region": ScopeRegion, "global": ScopeGlobal}

func (s Scope) String() string {
	switch s {
	case ScopeEdge:
		return "edge"
	case ScopeRegion:
		return "region"
	default:
		return "global"
	}
}

func nameOf[T ~uint8](names map[string]T, want T) string {
	for name, v := range names {
		if v == want {
			return name
		}
	}
	return fmt.Sprintf("unknown (%d)", want) // %v would call String, and that calls us
}

const (
	// DefaultSlices is the number of sub-windows where a rule names none; 40
	// keeps the estimator's error at 14 wrong verdicts per million
	// (research/accuracy.md §4).
	DefaultSlices = 40
	// MaxSlices bounds what a key can cost in memory and in a fold.
	MaxSlices = 1024
	// MinWidth is the narrowest slice: clocks are corrected to a few
	// milliseconds, so narrower slices would only tell noise apart.
	MinWidth = 25 * time.Millisecond
	// MinWindow and MaxWindow bound a window.
	MinWindow = 25 * time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
)

// Rate is a limit per window with its algorithm, compiled: immutable, shared.
type Rate struct {
	Name        string // "minute"
	Policy      string // "api-per-user.minute", as headers and metrics name it
	Limit       uint64 // cost a window
	Base        uint64 // Limit as the rule says, whoever asks: a tenant or a request may have another
	Ceiling     uint64 // Limit with its soft margin; what is admitted at the most
	Window      time.Duration
	Width       time.Duration // of a slice: Window / Slices
	Slices      int           // slices counted in full, the current one included
	Span        int           // slices that are kept; Slices unless it is a Period or FirstHit
	Hold        time.Duration // the longest that what was folded in a slice may serve: the slice and a second
	Period      Period        // of the calendar; NoPeriod: windows of equal width
	Zone        *time.Location
	Algorithm   Algorithm
	Oldest      Oldest
	Round       Rounding
	Scope       Scope
	Consistency Consistency
	OnPartition Partition     // 0: strict
	Generation  uint64        // changes when what a count means changes; the limit does not
	Surge       float64       // F, of an adaptive rate: so many times the limit may come at once, everywhere; 0: DefaultSurge
	Leeway      float64       // m, likewise: the part of the limit that may be admitted on incomplete knowledge; 0: DefaultLeeway
	StrictWait  time.Duration // of a strict rate: the longest that a request waits for an edge's first rights; 0: it does not
	Lineage     uint64        // Generation but for the width of a bucket's slices, which follows its capacity and refill
	Space       uint8         // tells namespaces apart, some of them: a hash of the name

	// Drain is how a bucket empties; Refill is 0 for what is no bucket. Limit
	// is its capacity, the Floor included, and Window the time in which it
	// drains from full.
	Drain   Drain
	Queue   bool          // a leaky bucket that holds requests back: see Delay
	MaxWait time.Duration // the longest that it does; 0: until it is full
	// MaxDelay is that of the rule: so much later than now a bucket may have room for
	// what it admits.
	MaxDelay time.Duration
	// Lease is how long an acquired slot of a concurrency limit is held at the
	// most; 0 for all other rates.
	Lease time.Duration
	// CountDenied says that a sliding log remembers denied hits too.
	CountDenied bool
	// Memory is how long after the last charge a counter's carry is kept at
	// least. Where a bucket starts with more than its capacity (initial), what
	// it starts with is spent once, and never refilled: Drain.Floor units of
	// the level stay as long as the counter is remembered.
	Memory time.Duration

	// Open is the rate with the ceiling of its elastic margin, to be used in its
	// place while that is open; nil where there is none. It counts in the same
	// counters, and goes on with the same Exact.
	Open *Rate
	// Lent says that it counts what was borrowed beside another rate, and is no limit: see
	// Elastic.
	Lent bool
	// Eager has others hear of each change of it at once from where less than that part of its limit, in
	// percent, is used: 1: from the first unit on. 0: near its limit alone.
	Eager uint64
	// Near is the level from which on a decision is near the limit; 0: never.
	Near uint64
	// PerRequest says that each request counts one, whatever it costs. No
	// multiplier and no margin changes such a rate.
	PerRequest bool
	// Penalty is the longest that its rule keeps out whoever was denied; 0: it has
	// no penalty.
	Penalty  time.Duration
	by       ratio    // what a rule's own limit was multiplied by for a tenant; zero: it is that limit
	asked    bool     // a request asked for this limit
	alone    bool     // it was made for that request, and is not kept for others
	ruled    *Rate    // that the rule says, where it is multiplied; nil: it is that
	epoch    uint32   // that its set was sealed with
	parts    parts    // of the limit: its Ceiling, Near and withheld
	withheld []uint64 // by class
	limits   *limits  // that requests asked for in its place; nil: none are kept

	// A queue may admit up to a level that is no whole number: the Ceiling and
	// spare/Drain.Per, which is spareMicro millionths.
	spare, spareMicro uint64
}

// Level is how much of a rate is used: a whole number of cost units and,
// where part is left over in [0, 1), that there was such a part. (Of a queue a
// part counts only where it leaves no room for it.)
type Level struct {
	Whole uint64
	Part  bool
}

// RoundedUp is the level in whole units.
func (l Level) RoundedUp() uint64 {
	if l.Part {
		return crdt.SatAdd(l.Whole, 1)
	}
	return l.Whole
}

// Carry is what is left of slices that were retired: the level of a bucket at
// a slice boundary. Windows carry nothing.
type Carry = crdt.Carry

// SliceAt is the slice that now, in nanoseconds since the Unix epoch, falls in.
func (r *Rate) SliceAt(now int64) crdt.Slice {
	if r.Period != NoPeriod {
		now = r.Period.start(now, r.Zone)
	}
	return crdt.Slice(floorDiv(now, int64(r.Width)))
}

// StartOf is when slice s starts, in nanoseconds since the Unix epoch.
func (r *Rate) StartOf(s crdt.Slice) int64 {
	if r.Period != NoPeriod {
		return r.Period.start(int64(s+1)*int64(r.Width)-1, r.Zone)
	}
	return int64(s) * int64(r.Width)
}

// EndOf is when slice s ends and the next one starts.
func (r *Rate) EndOf(s crdt.Slice) int64 {
	if r.Period != NoPeriod {
		return r.Period.next(r.StartOf(s), r.Zone)
	}
	return int64(s+1) * int64(r.Width)
}

// beyond is the first slice that is too far ahead of current to count: more
// than a window and a second. A clock was set back since it was charged; else
// whoever was limited then would stay so for as long as the step was.
func (r *Rate) beyond(current crdt.Slice) crdt.Slice {
	window := crdt.Slice(r.Slices)
	if r.Period != NoPeriod {
		window = crdt.Slice(r.Span)
	}
	return current + window + crdt.Slice(time.Second/r.Width) + 1
}

// Reach is the oldest slice that still counts at now; older ones may be
// retired.
func (r *Rate) Reach(now int64) crdt.Slice {
	current := r.SliceAt(now)
	switch r.Algorithm {
	case FixedWindow:
		return current - crdt.Slice(r.Slices) + 1
	case FirstHit: // the window before says where this one began
		return current - 2*crdt.Slice(r.Slices)
	}
	return current - crdt.Slice(r.Slices)
}

// Since is an instant from which on all that was charged counts in full at now, or at the rate of
// a window that slides; it is no bucket. x is as for Lasted.
func (r *Rate) Since(x *Exact, now int64) int64 {
	switch r.Algorithm {
	case FixedWindow:
		return r.StartOf(r.SliceAt(now))
	case FirstHit:
		if x == nil {
			return now
		}
		return now - int64(r.Lasted(x, now))
	}
	return now - int64(r.Window) + 1
}

// Lasted is for how long the window has lasted that counts nothing from before it began;
// zero where windows slide. It is a nanosecond where one begins now, or would. x is what the
// node knows of the key, of rates that are Exact.
func (r *Rate) Lasted(x *Exact, now int64) time.Duration {
	began := now
	switch {
	case r.Algorithm == FixedWindow:
		began = r.StartOf(r.SliceAt(now))
	case r.Algorithm != FirstHit || x.window.stray:
		return 0
	case x.window.open && now < satAdd(x.window.anchor, int64(r.Window)):
		began = x.window.anchor
	}
	return max(1, time.Duration(now-began))
}

// Used is what counts against the limit at now: a pure function of the sums
// of charges and refunds by slice (ascending), whoever made them. A slice
// ahead of now, but for one out of all reach, counts in full at once. It only
// falls while nothing is charged.
func (r *Rate) Used(sums []crdt.Cell, carry Carry, now int64) Level {
	switch {
	case r.Bucket():
		return r.ofMicro(r.Drain.Level(carry, sums, now, r.beyond(r.SliceAt(now))))
	case r.Algorithm == FirstHit:
		var w hitWindow
		w.roll(r, sums, now)
		return w.level(r, sums, now)
	}
	return r.inSlices(sums, now)
}

// inSlices is what counts of a window that looks at slices only.
func (r *Rate) inSlices(sums []crdt.Cell, now int64) Level {
	full, oldest := r.split(sums, r.SliceAt(now))
	if oldest == 0 {
		return Level{Whole: full}
	}
	left := uint64(r.Width) - uint64(now-r.StartOf(r.SliceAt(now)))
	whole, part := scale(oldest, left, uint64(r.Width))
	return Level{Whole: crdt.SatAdd(full, whole), Part: part}
}

// split is the cost of the slices that count in full when current is the
// newest slice, and that of the oldest, which counts by its overlap.
func (r *Rate) split(sums []crdt.Cell, current crdt.Slice) (full, oldest uint64) {
	edge, beyond := current-crdt.Slice(r.Slices), r.beyond(current)
	for i := len(sums) - 1; i >= 0; i-- {
		switch c := sums[i]; {
		case c.Slice >= beyond:
		case c.Slice > edge:
			full = crdt.SatAdd(full, c.Net())
		case c.Slice < edge:
			return full, oldest
		case r.Oldest == OldestFull:
			full = crdt.SatAdd(full, c.Net())
		case r.Algorithm != FixedWindow:
			oldest = c.Net()
		}
	}
	return full, oldest
}

// Rounded is the level as it counts against the limit.
func (r *Rate) Rounded(l Level) uint64 {
	if l.Part && r.Round != RoundDown {
		return crdt.SatAdd(l.Whole, 1)
	}
	return l.Whole
}

// Room is the cost that may still be admitted at the given level.
func (r *Rate) Room(l Level) uint64 { return crdt.SatSub(r.Ceiling, r.Rounded(l)) }

// Narrow is the number and width of slices that a window of per is cut into
// when n are wished for: the largest number not above n whose slices are whole
// milliseconds of at least MinWidth.
func Narrow(per time.Duration, n int) (slices int, width time.Duration) {
	for k := min(n, int(per/MinWidth)); k > 1; k-- {
		if per%(time.Duration(k)*time.Millisecond) == 0 {
			return k, per / time.Duration(k)
		}
	}
	return 1, per
}

// scale is floor(a*num/den) and whether something was left over; num <= den or
// the result must fit, else it saturates.
func scale(a, num, den uint64) (q uint64, part bool) {
	hi, lo := bits.Mul64(a, num)
	if hi >= den {
		return math.MaxUint64, false
	}
	q, rem := bits.Div64(hi, lo, den)
	return q, rem != 0
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
