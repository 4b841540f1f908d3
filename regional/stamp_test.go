package regional

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

var (
	wide   = deltasync.Shape{Width: 1500 * time.Millisecond, Slices: 40, Limit: 100} // a minute: its grace is 3 s
	narrow = deltasync.Shape{Width: 50 * time.Millisecond, Slices: 40, Limit: 100}   // two seconds: its grace is 200 ms
)

const everything = crdt.Slice(math.MinInt64)

// at is an instant of the tests, in ns, and so long after.
func at(d time.Duration) int64 {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() + int64(d)
}

// Whoever asked in a slice is told those since, and the ones before it that clocks, frames
// and grace make up for: all where something late came in since, and where the slice says
// nothing.
func TestSinceWhen(t *testing.T) {
	current, never := sliceAt(wide, at(0)), time.Duration(math.MinInt64)
	from := func(heard crdt.Slice) crdt.Slice { // 2 s for clocks and frames, 3 of grace
		return sliceAt(wide, int64(heard)*int64(wide.Width)-int64(5*time.Second))
	}
	asked := time.Duration(int64(current)*int64(wide.Width)-at(0)) - 2*time.Second
	for name, tt := range map[string]struct {
		heard crdt.Slice
		late  time.Duration // never: nothing was
		past  *past
		want  crdt.Slice
	}{
		"nothing heard":           {0, never, nil, everything},
		"heard just now":          {current, never, nil, from(current)},
		"by a clock ahead":        {current + 1, never, nil, from(current + 1)},
		"too far ahead":           {current + 2, never, nil, everything},
		"a window ago":            {current - 40, never, nil, from(current - 40)},
		"longer ago":              {current - 41, never, nil, everything},
		"a bucket":                {current, never, new(past), everything},
		"late before it was told": {current, asked - time.Millisecond, nil, from(current)},
		"late just then":          {current, asked, nil, everything},
	} {
		c := &counter{shape: wide, past: tt.past}
		if tt.late != never {
			c.late = stampOf(at(tt.late))
		}
		if got := c.since(tt.heard, at(0)); got != tt.want {
			t.Errorf("%s: told from slice %d on, want %d", name, got, tt.want)
		}
	}
	c := &counter{shape: narrow}
	heard := sliceAt(narrow, at(0))
	if got, want := c.since(heard, at(0)), heard-44; got != want { // 2.2 s
		t.Errorf("of a short window: told from slice %d on, want %d", got, want)
	}
}

// A push tells all once a second, or four times a window, and as soon as something late
// came in; else what changed since it did.
func TestPushFromWhen(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		shape deltasync.Shape
		told  time.Duration // all was told
		late  time.Duration
		past  *past
		want  time.Duration // before the instant; 0: all
	}{
		"just now":                   {wide, 0, -time.Minute, nil, 4 * time.Second},
		"less than a second ago":     {wide, -time.Second + ms, -time.Minute, nil, 4 * time.Second},
		"a second ago":               {wide, -time.Second, -time.Minute, nil, 0},
		"by a clock that was ahead":  {wide, ms, -time.Minute, nil, 0},
		"a bucket":                   {wide, 0, -time.Minute, new(past), 0},
		"late before that":           {wide, 0, -time.Second - ms, nil, 4 * time.Second},
		"late since":                 {wide, 0, -time.Second, nil, 0},
		"a short window":             {narrow, -500*ms + ms, -time.Minute, nil, 700 * ms},
		"a quarter of it ago":        {narrow, -500 * ms, -time.Minute, nil, 0},
		"late in the quarter before": {narrow, 0, -501 * ms, nil, 700 * ms},
	} {
		c := &counter{shape: tt.shape, past: tt.past, allTold: stampOf(at(tt.told)), late: stampOf(at(tt.late))}
		want := everything
		if tt.want > 0 {
			want = sliceAt(tt.shape, at(-tt.want))
		}
		if got := c.pushFrom(at(0)); got != want {
			t.Errorf("all told %s: pushed from slice %d on, want %d", name, got, want)
		}
		if told := c.allTold == stampOf(at(0)); tt.past == nil && told != (tt.want == 0 || tt.told == 0) {
			t.Errorf("all told %s: noted as told now: %v", name, told)
		}
	}
	if c := (&counter{shape: wide}); c.pushFrom(at(0)) != everything || c.pushFrom(at(0)) == everything {
		t.Error("a key that was never pushed is not told in full at first, and then in part")
	}
}

// What comes in with a write counts from when edges were answered last, unless a clock
// was set back meanwhile.
func TestSinceTheAnswer(t *testing.T) {
	for answered, want := range map[time.Duration]time.Duration{
		-time.Second: 0, time.Second: time.Second, time.Minute - 1: time.Minute - 1, time.Minute: 0,
	} {
		if got := (&lane{answered: at(answered)}).since(at(0)); got != at(want) {
			t.Errorf("answered %v after it began: since %v, want %v", answered, time.Duration(got-at(0)), want)
		}
	}
}

// A stamp is told from never, though its bits come round to 0.
func TestStampsComeRound(t *testing.T) {
	const round = int64(time.Millisecond) << 32
	s := stampOf(round)
	if s == 0 || s.before(round) || !s.before(round+2*int64(time.Millisecond)) {
		t.Errorf("the stamp of its round is %d, before then %v, want it to be of then", s, s.before(round))
	}
	if s := stampOf(round - int64(time.Millisecond)); !s.before(round) || s.before(round-int64(time.Millisecond)) {
		t.Errorf("stamp %d is before its round: %v, and before itself: %v", s, s.before(round), s.before(round-int64(time.Millisecond)))
	}
	if never := stamp(0); !never.before(3*round/4) || !never.before(round/4) {
		t.Error("never is not before everything")
	}
}

// The larger of two vectors is their join, from a slice on.
func TestLargerIsTheJoin(t *testing.T) {
	all := []crdt.Slice{1, 2, 3, 4}
	for i := range 1 << (2 * len(all)) { // which slices either has
		var v [2]crdt.Vector
		for j, slice := range all {
			for k := range v {
				if i>>(2*j+k)&1 != 0 {
					v[k].Join(crdt.Cell{Slice: slice, Charges: uint64(10 + j - 3*k*(j%2)), Refunds: uint64(k)})
				}
			}
		}
		var joined crdt.Vector
		joined.Merge(&v[0])
		joined.Merge(&v[1])
		for _, from := range []crdt.Slice{0, 2, 3, 5} {
			if got, want := slices.Collect(larger(&v[0], &v[1], from)), joined.From(from, nil); !slices.Equal(got, want) {
				t.Fatalf("from %d on, of %+v and %+v: %+v, want %+v", from, v[0].Cells(nil), v[1].Cells(nil), got, want)
			}
		}
		for range larger(&v[0], &v[1], 0) { // and it stops when it is told to
			break
		}
	}
}
