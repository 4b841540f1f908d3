package measure

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Bounds are how well what edges told of their error bounds held.
type Bounds struct {
	// Windows are those of a key and a rate that end with a slice in which the key was
	// asked for. The truth of one is the most that the exact log had above the limit
	// at any request of that slice; what was told is the largest bound that any edge
	// told with these.
	Windows Tally
	// Checks are the same requests one by one: the window that ends with each, and the
	// bound that its own edge told.
	Checks Tally
}

// Tally counts windows.
type Tally struct {
	All       int
	Over      int       // those with a truth above zero
	Uncovered int       // those whose truth was above error_bound
	Surged    int       // above error_bound_surge
	Ratios    []float64 // error_bound by the truth, of those over
}

func (t *Tally) count(over uint64, b limit.Bound) {
	t.All++
	if over > b.Now {
		t.Uncovered++
	}
	if over > b.Surge {
		t.Surged++
	}
	if over > 0 {
		t.Over++
		t.Ratios = append(t.Ratios, float64(b.Now)/float64(over))
	}
}

// Add adds the windows of another run.
func (t *Tally) Add(o *Tally) {
	t.All, t.Over, t.Uncovered, t.Surged = t.All+o.All, t.Over+o.Over, t.Uncovered+o.Uncovered, t.Surged+o.Surged
	t.Ratios = append(t.Ratios, o.Ratios...)
}

// Median is that of the ratios; 0 where nothing was over.
func (t *Tally) Median() float64 {
	if len(t.Ratios) == 0 {
		return 0
	}
	slices.Sort(t.Ratios)
	return t.Ratios[len(t.Ratios)/2]
}

// told is what an edge told with a request.
type told struct {
	rate  *limit.Rate // that decided
	bound limit.Bound
}

// place is a limit of a key.
type place struct {
	user *user
	log  int
}

// slice is the last slice of a window that has not ended.
type slice struct {
	number int64
	over   uint64
	bound  limit.Bound
}

// RunBounds is Run, with all edges asked for their bounds.
func RunBounds(o Options) (f Figures, b Bounds, err error) {
	open := map[place]*slice{}
	var order []*slice // so that a run repeats itself
	o.told = func(u *user, at time.Duration, t told) {
		i := slices.IndexFunc(u.admitted.logs, func(l log) bool { return t.rate != nil && l.limit == t.rate.Limit })
		if i < 0 || !t.bound.Known {
			return
		}
		over := u.admitted.logs[i].above(at)
		b.Checks.count(over, t.bound)
		s := open[place{u, i}]
		number := int64(at / t.rate.Width)
		if s == nil {
			s = &slice{number: number}
			open[place{u, i}] = s
			order = append(order, s)
		}
		if s.number != number {
			b.Windows.count(s.over, s.bound)
			*s = slice{number: number}
		}
		s.over = max(s.over, over)
		s.bound.Now, s.bound.Surge = max(s.bound.Now, t.bound.Now), max(s.bound.Surge, t.bound.Surge)
	}
	f, err = Run(o)
	for _, s := range order {
		b.Windows.count(s.over, s.bound)
	}
	return f, b, err
}

// above is the cost above the limit in the window that ends now, or of a bucket now.
func (l *log) above(now time.Duration) (cost uint64) {
	then := log{kind: l.kind, limit: l.limit, window: l.window, bucket: l.bucket}
	then.turn(now)
	for i := len(l.of) - 1; i >= 0 && !l.left(l.of[i].at, now); i-- {
		then.sum += l.of[i].cost
	}
	_, cost = then.excess()
	return cost
}
