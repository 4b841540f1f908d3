package measure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Algorithms are those that limits of scenarios may have, by their names in rules. (Not
// concurrency: its slots are given back, and nobody in a scenario does that. Not first_hit,
// whose windows begin as an edge sees fit.)
var Algorithms = []string{"sub_windows", "sliding_window", "sliding_log", "fixed_window", "token_bucket", "leaky_bucket"}

// KnowsAlgorithm says that a scenario's limit may have the algorithm: an error tells why
// not.
func KnowsAlgorithm(name string) error {
	if !slices.Contains(Algorithms, name) {
		return fmt.Errorf("%q: want one of %s", name, strings.Join(Algorithms, ", "))
	}
	return nil
}

// shaped gives a rate its algorithm; "" is what rules have without a word. A bucket holds
// the limit, and what drains in a window.
func shaped(r limit.RateSpec, algorithm string) limit.RateSpec {
	r.Algorithm = algorithm
	flow := limit.Flow{Units: r.Limit, Per: r.Per}
	switch algorithm {
	case "token_bucket":
		r.Refill = flow
	case "leaky_bucket":
		r.Outflow = flow
	default:
		return r
	}
	r.Name, r.Capacity, r.Limit, r.Per = limit.WindowName(r.Per), r.Limit, 0, 0
	return r
}

// kind is what an exact log says is used of a limit. Two windows that are interpolated, and
// slices, are held to the window that slides, which they estimate.
type kind uint8

const (
	sliding kind = iota // what was admitted in the last window
	aligned             // what was admitted since the window began, by the true time
	leaking             // the level of a bucket, exact to the nanosecond
)

func kindOf(r limit.RateSpec) kind {
	switch {
	case r.Algorithm == "fixed_window":
		return aligned
	case r.Capacity > 0:
		return leaking
	}
	return sliding
}

// bucket is a level, and when it was that.
type bucket struct {
	level float64
	at    time.Duration
}

// rounded is more than the level of a bucket can be off by, and less than a request.
const rounded = 1e-6

func newLog(r limit.RateSpec) log {
	return log{kind: kindOf(r), limit: max(r.Limit, r.Capacity), window: cmp.Or(r.Per, r.Refill.Per, r.Outflow.Per)}
}

// left says that what was admitted at a time counts no more.
func (l *log) left(at, now time.Duration) bool {
	if l.kind == aligned {
		label := func(at time.Duration) int64 { return start.Add(at).UnixNano() / int64(l.window) }
		return label(at) < label(now)
	}
	return at <= now-l.window
}

// turn brings the log to now.
func (l *log) turn(now time.Duration) {
	if l.kind == leaking {
		drained := float64(now-l.bucket.at) / float64(l.window) * float64(l.limit)
		l.bucket = bucket{max(0, l.bucket.level-max(0, drained)), max(l.bucket.at, now)}
		return
	}
	n := 0
	for n < len(l.of) && l.left(l.of[n].at, now) {
		l.sum -= l.of[n].cost
		n++
	}
	l.of = l.of[n:]
}

// fits says that a cost would not exceed the limit, at the time that the log was brought to.
func (l *log) fits(cost uint64) bool {
	if l.kind == leaking {
		return l.bucket.level+float64(cost) <= float64(l.limit)+rounded
	}
	return l.sum+cost <= l.limit
}

func (l *log) add(now time.Duration, cost uint64) {
	if l.kind == leaking {
		l.bucket.level += float64(cost)
		return
	}
	l.of = append(l.of, admission{now, cost})
	l.sum += cost
}

// excess is what is used above the limit: as a part of it, and as a cost, rounded up.
func (l *log) excess() (part float64, cost uint64) {
	over := float64(l.sum) - float64(l.limit)
	if l.kind == leaking {
		over = l.bucket.level - float64(l.limit)
	}
	if over <= rounded {
		return 0, 0
	}
	return over / float64(l.limit), uint64(math.Ceil(over - rounded))
}
