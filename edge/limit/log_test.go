package limit_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// diary is a sliding log as it is defined: all hits, kept for ever.
type diary struct {
	window time.Duration
	hits   []hit
}

func (d *diary) used(now int64) (n uint64) {
	for _, h := range d.hits {
		if h.at > now-int64(d.window) {
			n += h.cost
		}
	}
	return n
}

// wait looks at each instant at which a hit leaves.
func (d *diary) wait(most uint64, now int64) time.Duration {
	if d.used(now) <= most {
		return 0
	}
	for _, h := range d.hits {
		if at := h.at + int64(d.window); at > now && d.used(at) <= most {
			return time.Duration(at - now)
		}
	}
	return -1
}

func TestLogAgainstDiary(t *testing.T) {
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 8))
		spec := limit.RateSpec{Algorithm: "sliding_log", Limit: 1 + rng.Uint64N(40), Per: time.Duration(1+rng.IntN(50)) * 100 * time.Millisecond, CountDenied: rng.IntN(2) == 0}
		r := compileRate(t, spec)
		e, model := &edge{rate: r}, &diary{window: r.Window}
		now := epoch + rng.Int64N(int64(time.Hour))
		var next time.Duration
		for step := range 200 {
			switch rng.IntN(5) {
			case 0:
				now += rng.Int64N(int64(r.Window))
			case 1, 2:
				now += rng.Int64N(int64(r.Window)) / int64(r.Limit)
			case 3:
				now = max(now, now+int64(next)+int64(rng.IntN(3)-1))
			}
			cost := 1 + rng.Uint64N(3)
			fits := model.used(now)+cost <= r.Limit
			if got := e.hit(cost, now); got != fits {
				t.Fatalf("seed %d step %d: %+v admitted %v, want %v: %d used of %d", seed, step, spec, got, fits, model.used(now), r.Limit)
			}
			next = 0
			if !fits && spec.CountDenied {
				e.exact.Charge(r, cost, now)
			}
			if fits || spec.CountDenied {
				model.hits = append(model.hits, hit{at: now, cost: cost})
			}
			if ask := 1 + rng.Uint64N(3); ask <= r.Limit {
				next = model.wait(r.Limit-ask, now)
				if got := e.wait(ask, now); got != max(next, 1) {
					t.Fatalf("seed %d step %d: %+v Wait(%d) = %v, want %v", seed, step, spec, ask, got, next)
				}
			}
			e.retire(now)
		}
	}
}

// What others counted comes by slices, as a sub-window's count does.
func TestLogBesideOthers(t *testing.T) {
	for seed := range uint64(1500) {
		rng := rand.New(rand.NewPCG(seed, 9))
		r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 5 + rng.Uint64N(60), Per: 4 * time.Second})
		e, model := &edge{rate: r}, &diary{window: r.Window}
		now := epoch + rng.Int64N(int64(time.Hour))
		for range rng.IntN(30) {
			now += rng.Int64N(int64(r.Width) * 3)
			e.others.Add(crdt.Cell{Slice: r.SliceAt(now), Charges: rng.Uint64N(4)})
			if rng.IntN(2) == 0 && model.used(now) < r.Limit {
				e.charge(1, now)
				model.hits = append(model.hits, hit{at: now, cost: 1})
			}
		}
		level := func(now int64) uint64 {
			both := exactUsed(r, e.others.Cells(nil), now)
			return exactRounded(r, both.Add(both, new(big.Rat).SetUint64(model.used(now))))
		}
		if got, want := r.Rounded(e.level(now)), level(now); got != want {
			t.Fatalf("seed %d: used %d, want %d", seed, got, want)
		}
		cost := 1 + rng.Uint64N(r.Limit)
		if crdt.SatAdd(level(now), cost) <= r.Limit {
			continue
		}
		w := int64(e.wait(cost, now))
		if got := level(now + w); got+cost > r.Limit {
			t.Fatalf("seed %d: after Wait(%d) = %d %d are used of %d", seed, cost, w, got, r.Limit)
		}
		if got := level(now + w - 1); got+cost <= r.Limit {
			t.Fatalf("seed %d: a nanosecond before Wait(%d) = %d there was room: %d of %d", seed, cost, w, got, r.Limit)
		}
	}
}

// "10 a minute and no more than 2 in any 3 s": no three within three seconds,
// wherever they are looked for.
func TestTwoLogsExample(t *testing.T) {
	minute := &edge{rate: compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 10, Per: time.Minute})}
	three := &edge{rate: compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 2, Per: 3 * time.Second})}
	var admitted []time.Duration
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		now := epoch + int64(at)
		if minute.rate.Room(minute.level(now)) > 0 && three.rate.Room(three.level(now)) > 0 {
			minute.charge(1, now)
			three.charge(1, now)
			admitted = append(admitted, at)
		}
	}
	if len(admitted) != 10 {
		t.Errorf("%d admitted in a minute, want 10", len(admitted))
	}
	for i := 2; i < len(admitted); i++ {
		if admitted[i]-admitted[i-2] < 3*time.Second {
			t.Errorf("three within 3s: %v", admitted[i-2:i+1])
		}
	}
}

// However many are denied and logged, what is remembered stays small, and
// nobody gets in before the newest have left.
func TestLogOfDeniedIsBounded(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 100, Per: time.Minute, CountDenied: true})
	var x limit.Exact
	now := epoch
	allocs := testing.AllocsPerRun(5000, func() {
		now += int64(time.Millisecond)
		x.Charge(r, 1+uint64(now)%3, now)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a denied hit", allocs)
	}
	if w := r.Wait(&x, nil, nil, limit.Carry{}, 1, now); w < 59*time.Second {
		t.Errorf("Wait = %v, want about a minute", w)
	}
	if l := r.Measure(&x, nil, nil, limit.Carry{}, now); l.Whole < 100 || l.Whole > 103 {
		t.Errorf("level %v, want the limit or little more", l)
	}
	for range 300 { // a flood of large ones
		x.Charge(r, 1<<63, now)
		now++
	}
	if l := r.Measure(&x, nil, nil, limit.Carry{}, now+int64(time.Minute)); l.Whole != 0 {
		t.Errorf("level after a minute = %v, want none", l)
	}
}

// What was refunded is not remembered, and only as many denied hits as fill the
// limit.
func TestLogForgets(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 100, Per: time.Hour, CountDenied: true})
	var x limit.Exact
	now := epoch
	give := func() {
		now++
		x.Charge(r, 1, now)
		x.Refund(r, 1, r.SliceAt(now), 0, nil, now)
	}
	for range 10 {
		give()
	}
	many := func() {
		for range 5000 {
			give()
		}
	}
	if n := testing.AllocsPerRun(1, many); n != 0 {
		t.Errorf("%v allocations for 5000 hits that are refunded", n)
	}
	for range 300 {
		now++
		x.Charge(r, 1, now)
	}
	if l := r.Measure(&x, nil, nil, limit.Carry{}, now); l.Whole != 100 {
		t.Errorf("level after 300 denied = %v, want the limit", l)
	}
}

func TestLogRefunds(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 10, Per: 40 * time.Second})
	var x limit.Exact
	for at := range 10 {
		x.Charge(r, 1, epoch+int64(at)*int64(time.Second)/2)
	}
	now := epoch + int64(5*time.Second)
	x.Refund(r, 5, r.SliceAt(epoch+int64(2*time.Second)), 0, nil, now) // two were made in that second
	if l := r.Measure(&x, nil, nil, limit.Carry{}, now); l.Whole != 8 {
		t.Errorf("level after a refund = %v, want 8", l)
	}
	x.Refund(r, 1, r.SliceAt(epoch+int64(20*time.Second)), 0, nil, now)
	if l := r.Measure(&x, nil, nil, limit.Carry{}, epoch+int64(41*time.Second)); l.Whole != 5 {
		t.Errorf("level when the first second has left = %v, want 5", l)
	}
}

func TestLogWhenTimeSteps(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 5, Per: time.Minute})
	var x limit.Exact
	for i := range 5 {
		x.Charge(r, 1, epoch+int64(i)*int64(time.Second))
	}
	back := epoch - int64(time.Hour)
	if l := r.Measure(&x, nil, nil, limit.Carry{}, back); l.Whole != 5 {
		t.Errorf("level after a clock was set back = %v, want 5", l)
	}
	if w := r.Wait(&x, nil, nil, limit.Carry{}, 1, back); w != time.Minute {
		t.Errorf("Wait after a clock was set back = %v, want the window", w)
	}
	x.Reset()
	if l := r.Measure(&x, nil, nil, limit.Carry{}, back); l.Whole != 0 {
		t.Errorf("level after Reset = %v, want none", l)
	}
}

// What a clock was ahead of when it was set back is its slice's yet, also once that has come.
func TestLogKnowsWhoseWasMoved(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "sliding_log", Limit: 20, Per: 40 * time.Second})
	at := func(s int64) int64 { return epoch + s*int64(time.Second) }
	first, later := r.SliceAt(at(0)), r.SliceAt(at(12))
	for _, now := range []int64{at(5), at(20)} {
		var x limit.Exact
		x.Charge(r, 2, at(0))
		x.Charge(r, 5, at(12))
		r.Measure(&x, nil, nil, limit.Carry{}, at(5))
		r.Measure(&x, nil, nil, limit.Carry{}, now)
		if a, b := x.Counting(r, first, 2, true), x.Counting(r, later, 5, true); a != 2 || b != 5 {
			t.Errorf("at %v: %d and %d count of two slices, want 2 and 5", time.Duration(now-epoch), a, b)
		}
		if left := x.Refund(r, 3, later, 0, nil, now); left != 0 {
			t.Errorf("at %v: %d of 3 are found nowhere", time.Duration(now-epoch), left)
		}
		if l := r.Measure(&x, nil, nil, limit.Carry{}, at(41)); l.Whole != 2 {
			t.Errorf("at %v: %d count once the first have left, want 2", time.Duration(now-epoch), l.Whole)
		}
	}
}
