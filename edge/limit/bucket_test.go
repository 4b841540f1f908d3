package limit_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// edge is one edge with one counter, as a ledger keeps it: own cells, what
// others counted, and what it knows exactly.
type edge struct {
	rate        *limit.Rate
	own, others crdt.Vector
	carry       limit.Carry
	exact       limit.Exact
}

func (e *edge) sums() []crdt.Cell {
	both := e.own.Clone()
	for _, c := range e.others.Cells(nil) {
		both.Add(c)
	}
	return both.Cells(nil)
}

func (e *edge) level(now int64) limit.Level {
	return e.rate.Measure(&e.exact, e.others.Cells(nil), e.sums(), e.carry, now)
}

func (e *edge) wait(cost uint64, now int64) time.Duration {
	return e.rate.Wait(&e.exact, e.others.Cells(nil), e.sums(), e.carry, cost, now)
}

func (e *edge) charge(cost uint64, now int64) {
	e.exact.Charge(e.rate, cost, now)
	e.own.Add(crdt.Cell{Slice: e.rate.SliceAt(now), Charges: cost})
}

// hit asks for cost at an instant, and charges it if there is room.
func (e *edge) hit(cost uint64, now int64) bool {
	if e.rate.Room(e.level(now)) < cost {
		return false
	}
	e.charge(cost, now)
	return true
}

func (e *edge) retire(now int64) {
	reach := e.rate.Reach(now)
	if e.rate.Bucket() {
		e.carry = e.rate.Drain.Advance(e.carry, e.sums(), reach)
	}
	e.own.Retire(reach)
	e.others.Retire(reach)
}

// tub is a bucket in rationals.
type tub struct {
	level, floor, brim *big.Rat // brim: the level it admits up to
	perNano            *big.Rat
	at                 int64
}

func newTub(r *limit.Rate, brim uint64) *tub {
	b := &tub{
		level: new(big.Rat), floor: new(big.Rat).SetUint64(r.Drain.Floor), brim: new(big.Rat).SetUint64(brim),
		perNano: big.NewRat(int64(r.Drain.Refill), int64(r.Drain.Per)),
	}
	if r.Queue && r.MaxWait > 0 { // the last unit waits no longer
		wait := new(big.Rat).Mul(b.perNano, big.NewRat(int64(r.MaxWait), 1))
		if wait.Add(wait, big.NewRat(1, 1)); wait.Cmp(b.brim) < 0 {
			b.brim = wait
		}
	}
	return b
}

func (b *tub) drain(now int64) {
	if b.level.Cmp(b.floor) > 0 {
		b.level.Sub(b.level, new(big.Rat).Mul(b.perNano, big.NewRat(now-b.at, 1)))
		if b.level.Cmp(b.floor) < 0 {
			b.level.Set(b.floor)
		}
	}
	b.at = now
}

func (b *tub) hit(cost uint64, now int64) bool {
	b.drain(now)
	after := new(big.Rat).Add(b.level, new(big.Rat).SetUint64(cost))
	if after.Cmp(b.brim) > 0 {
		return false
	}
	b.level = after
	return true
}

// ceilNanos is x, in nanoseconds, rounded up.
func ceilNanos(x *big.Rat) time.Duration {
	q, rem := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rem.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return time.Duration(q.Int64())
}

// wait is how long until cost fits, for one that can.
func (b *tub) wait(cost uint64) time.Duration {
	over := new(big.Rat).Add(b.level, new(big.Rat).SetUint64(cost))
	over.Sub(over, b.brim)
	return ceilNanos(over.Quo(over, b.perNano))
}

func perSecond(units uint64) limit.Flow { return limit.Flow{Units: units, Per: time.Second} }

var bucketSpecs = []limit.RateSpec{
	{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5)},
	{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 7, Per: 3 * time.Second}},
	{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5), Initial: 15},
	{Algorithm: "token_bucket", Capacity: 1, Refill: limit.Flow{Units: 1, Per: 200 * time.Millisecond}},
	{Algorithm: "token_bucket", Capacity: 5000, Refill: limit.Flow{Units: 1_000_003, Per: 7 * time.Minute}},
	{Algorithm: "token_bucket", Capacity: limit.MaxUnits, Refill: limit.Flow{Units: limit.MaxUnits, Per: 300 * 24 * time.Hour}},
	{Algorithm: "leaky_bucket", Capacity: 20, Outflow: limit.Flow{Units: 300, Per: time.Minute}},
	{Algorithm: "leaky_bucket", Capacity: 20, Outflow: perSecond(3), Queue: true},
	{Algorithm: "leaky_bucket", Capacity: 20, Outflow: perSecond(3), Queue: true, MaxWait: 1234567 * time.Microsecond},
	{Algorithm: "leaky_bucket", Capacity: 20, Outflow: perSecond(5), Queue: true, MaxWait: 100 * time.Millisecond},
	{Algorithm: "leaky_bucket", Capacity: 3, Outflow: perSecond(5), Queue: true, MaxWait: 500 * time.Millisecond},
}

// With one node a bucket is exact to the nanosecond: what it admits, how long
// it tells to wait, and how long a queue delays.
func TestBucketAgainstRationals(t *testing.T) {
	for _, spec := range bucketSpecs {
		r := compileRate(t, spec)
		for seed := range uint64(80) {
			rng := rand.New(rand.NewPCG(seed, 5))
			e := &edge{rate: r}
			model := newTub(r, r.Limit)
			now := epoch + rng.Int64N(int64(time.Hour))
			model.at = now
			scale := max(1, r.Limit/10)
			var next time.Duration
			for step := range 120 {
				switch rng.IntN(5) {
				case 0:
					now += rng.Int64N(int64(r.Window))
				case 1: // an edge of a slice, or next to it
					now = max(now, r.EndOf(r.SliceAt(now))+int64(rng.IntN(3)-1))
				case 2: // when it was told, or next to it
					now = max(now, now+int64(next)+int64(rng.IntN(3)-1))
				case 3:
					now += rng.Int64N(int64(r.Width) * 3)
				}
				cost := 1 + rng.Uint64N(scale)
				if rng.IntN(10) == 0 {
					cost = 1 + rng.Uint64N(1000)
				}
				model.drain(now)
				delay := ceilNanos(new(big.Rat).Quo(model.level, model.perNano))
				if got := r.Delay(&e.exact, e.sums(), e.carry, now); r.Queue && got != delay {
					t.Fatalf("%+v seed %d step %d: Delay = %d, want %d", spec, seed, step, got, delay)
				}
				want := model.hit(cost, now)
				next = 0
				if got := e.hit(cost, now); got != want {
					t.Fatalf("%+v seed %d step %d: cost %d admitted %v, want %v at level %s", spec, seed, step, cost, got, want, model.level.FloatString(12))
				}
				if want && r.MaxWait > 0 && delay > r.MaxWait {
					t.Fatalf("%+v seed %d step %d: a delay of %v was admitted", spec, seed, step, delay)
				}
				if room := new(big.Rat).Sub(model.brim, model.floor); !want && new(big.Rat).SetUint64(cost).Cmp(room) <= 0 {
					next = e.wait(cost, now)
					if next != model.wait(cost) {
						t.Fatalf("%+v seed %d step %d: Wait(%d) = %d, want %d", spec, seed, step, cost, next, model.wait(cost))
					}
				}
				if rng.IntN(8) == 0 {
					e.retire(now)
				}
			}
		}
	}
}

// What other edges know by slices only: no more is admitted than a slice's
// drain above the truth, nobody is denied who would pass, and at the end of a
// wait there is room.
func TestBucketOverTwoEdges(t *testing.T) {
	for _, spec := range bucketSpecs[:7] {
		r := compileRate(t, spec)
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 6))
			a, b := &edge{rate: r}, &edge{rate: r}
			model := newTub(r, r.Limit)
			now := epoch + rng.Int64N(int64(time.Hour))
			model.at = now
			slice := new(big.Rat).Mul(model.perNano, big.NewRat(int64(r.Width)+int64(r.Slices), 1))
			most := new(big.Rat).Add(model.brim, slice)
			for step := range 100 {
				now += rng.Int64N(int64(r.Width) * 4)
				e, other := a, b
				if rng.IntN(2) == 0 {
					e, other = b, a
				}
				for _, c := range other.own.Cells(nil) {
					e.others.Join(c)
				}
				cost := 1 + rng.Uint64N(max(1, r.Limit/5))
				model.drain(now)
				fits := new(big.Rat).Add(model.level, new(big.Rat).SetUint64(cost)).Cmp(model.brim) <= 0
				admitted := e.hit(cost, now)
				if fits && !admitted {
					t.Fatalf("%+v seed %d step %d: cost %d denied at a level of %s", spec, seed, step, cost, model.level.FloatString(9))
				}
				if admitted {
					model.level.Add(model.level, new(big.Rat).SetUint64(cost))
					if model.level.Cmp(most) > 0 {
						t.Fatalf("%+v seed %d step %d: level %s, want at most %s", spec, seed, step, model.level.FloatString(9), most.FloatString(9))
					}
				} else if cost <= r.Limit-r.Drain.Floor {
					w := e.wait(cost, now)
					exact := e.exact
					if room := r.Room(r.Measure(&exact, e.others.Cells(nil), e.sums(), e.carry, now+int64(w))); room < cost {
						t.Fatalf("%+v seed %d step %d: after Wait(%d) = %v there is room for %d", spec, seed, step, cost, w, room)
					}
					exact = e.exact
					if room := r.Room(r.Measure(&exact, e.others.Cells(nil), e.sums(), e.carry, now+int64(w)-1)); room >= cost {
						t.Fatalf("%+v seed %d step %d: a nanosecond before Wait(%d) = %v there was room for %d", spec, seed, step, cost, w, room)
					}
				}
				if rng.IntN(8) == 0 {
					a.retire(now)
					b.retire(now)
				}
			}
		}
	}
}

// What a bucket starts with above its capacity is spent once.
func TestInitialIsSpentOnce(t *testing.T) {
	e := &edge{rate: compileRate(t, bucketSpecs[2])}
	if e.rate.Memory < 24*time.Hour {
		t.Errorf("Memory %v, want a day at least", e.rate.Memory)
	}
	spend := func(at time.Duration) (n int) {
		for e.hit(1, epoch+int64(at)) {
			n++
		}
		e.retire(epoch + int64(at))
		return n
	}
	for _, s := range []struct {
		at   time.Duration
		want int
	}{{0, 15}, {time.Second, 5}, {time.Hour, 10}, {23 * time.Hour, 10}} {
		if got := spend(s.at); got != s.want {
			t.Errorf("at %v: %d admitted, want %d", s.at, got, s.want)
		}
	}
	if w := e.wait(11, epoch+int64(23*time.Hour)); w != 2*time.Second {
		t.Errorf("Wait for what never fits again = %v, want the 2s until the bucket is empty", w)
	}
}

// A clock that was set back neither frees nor locks anybody out for longer
// than a window; one that is read out of order by a little frees nothing.
func TestBucketWhenTimeSteps(t *testing.T) {
	r := compileRate(t, bucketSpecs[0])
	fill := func() *edge {
		e := &edge{rate: r}
		for range 10 {
			e.hit(1, epoch)
		}
		return e
	}
	e := fill()
	for i := range 1000 { // two threads, each a little behind the other
		if e.hit(1, epoch+int64(i%2)*int64(time.Millisecond)) {
			t.Fatal("time that stands still freed a unit")
		}
	}
	if !e.hit(1, epoch+int64(200*time.Millisecond)) {
		t.Error("a unit is free after 200ms")
	}
	e = fill()
	back := epoch - int64(time.Hour)
	if e.exact.Charge(r, 0, back); r.Room(e.level(back)) != 0 {
		t.Error("a clock set back freed units")
	}
	if w := e.wait(1, back); w != 200*time.Millisecond {
		t.Errorf("Wait after a clock was set back an hour = %v, want 200ms", w)
	}
	if !e.hit(1, back+int64(200*time.Millisecond)) {
		t.Error("a clock set back locks for longer than a wait")
	}
	if e = fill(); r.Room(e.level(epoch+int64(100*time.Hour))) != 10 {
		t.Error("a clock set forward locks")
	}
	// A thread that is a little behind waits from when the level was.
	if e = fill(); r.Wait(&e.exact, nil, nil, limit.Carry{}, 1, epoch-int64(time.Millisecond)) != 201*time.Millisecond {
		t.Errorf("Wait of a thread 1ms behind = %v, want 201ms", r.Wait(&e.exact, nil, nil, limit.Carry{}, 1, epoch-int64(time.Millisecond)))
	}
	// What is little depends on the window.
	short := compileRate(t, bucketSpecs[3])
	var x limit.Exact
	x.Charge(short, 1, epoch)
	if w := short.Wait(&x, nil, nil, limit.Carry{}, 1, epoch-int64(500*time.Millisecond)); w != 200*time.Millisecond {
		t.Errorf("Wait of a bucket of 200ms, half a second back = %v, want 200ms", w)
	}
}

func TestBucketRefunds(t *testing.T) {
	r := compileRate(t, bucketSpecs[0])
	room := func(e *edge, at time.Duration) uint64 { return r.Room(e.level(epoch + int64(at))) }
	refund := func(e *edge, cost uint64, made, at time.Duration) {
		slice := r.SliceAt(epoch + int64(made))
		e.exact.Refund(r, cost, slice, 0, nil, epoch+int64(at))
		e.own.Add(crdt.Cell{Slice: slice, Refunds: cost})
	}
	e := &edge{rate: r}
	e.hit(10, epoch)
	if refund(e, 4, 0, 0); room(e, 0) != 4 {
		t.Errorf("room after a refund of 4 = %d, want 4", room(e, 0))
	}
	if refund(e, 9, 0, 0); room(e, 0) != 10 {
		t.Errorf("room after all and more was refunded = %d, want 10", room(e, 0))
	}
	var x limit.Exact // by itself: the slices would show it too
	x.Charge(r, 10, epoch)
	full := epoch + int64(2*time.Second) // when the last of it has drained
	x.Charge(r, 5, full)
	if x.Refund(r, 5, r.SliceAt(full)-1, 0, nil, full); r.Measure(&x, nil, nil, limit.Carry{}, full).Whole != 5 {
		t.Errorf("level after a refund from before the bucket was empty = %v, want 5", r.Measure(&x, nil, nil, limit.Carry{}, full))
	}
	if x.Refund(r, 5, r.SliceAt(full), 0, nil, full); r.Measure(&x, nil, nil, limit.Carry{}, full).Whole != 0 {
		t.Errorf("level after a refund from after it = %v, want 0", r.Measure(&x, nil, nil, limit.Carry{}, full))
	}
	e = &edge{rate: r}
	e.hit(10, epoch)
	e.hit(5, epoch+int64(10*time.Second)) // the bucket was empty in between
	if refund(e, 10, 0, 10*time.Second); room(e, 10*time.Second) != 5 {
		t.Errorf("room after a refund of what had drained = %d, want 5", room(e, 10*time.Second))
	}
}

// Charges may be booked together until Lump, and not later.
func TestLump(t *testing.T) {
	for _, spec := range bucketSpecs {
		r := compileRate(t, spec)
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 7))
			var x limit.Exact
			x.Charge(r, 1+rng.Uint64N(r.Limit), epoch)
			from := epoch + rng.Int64N(int64(r.Window)/2)
			until := r.Lump(&x, from)
			if until <= from {
				t.Fatalf("%+v: Lump(%d) = %d", spec, from, until)
			}
			later := until
			measured := func(at ...int64) limit.Level {
				y := x
				for _, at := range at {
					y.Charge(r, 1, at)
				}
				return r.Measure(&y, nil, nil, limit.Carry{}, later)
			}
			in := from + rng.Int64N(until-from)
			if got, want := measured(from, from), measured(in, until-1); got != want {
				t.Fatalf("%+v seed %d: two charges booked at once give %v, want %v", spec, seed, got, want)
			}
			if got, want := measured(from), measured(until-1); got != want {
				t.Fatalf("%+v seed %d: a charge before Lump that is booked earlier gives %v, want %v", spec, seed, got, want)
			}
			if got, want := measured(from), measured(until); got == want && spec.Initial == 0 {
				t.Fatalf("%+v seed %d: a charge at Lump may be booked earlier too: %v", spec, seed, got)
			}
		}
	}
}

// To the nanosecond: ten units are gone between the third and the fourth.
func TestLumpEndsWhenTheBucketIsEmpty(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 3, Per: 1}})
	var x limit.Exact
	if until := r.Lump(&x, epoch); until != epoch+1 {
		t.Errorf("Lump of an empty bucket = %d ns on, want 1", until-epoch)
	}
	if x.Charge(r, 10, epoch); r.Lump(&x, epoch) != epoch+4 {
		t.Errorf("Lump = %d ns on, want 4", r.Lump(&x, epoch)-epoch)
	}
	if x.Charge(r, 2, epoch); r.Lump(&x, epoch) != epoch+5 {
		t.Errorf("Lump of what drains in 4 ns = %d ns on, want 5: at the 4th it makes no difference", r.Lump(&x, epoch)-epoch)
	}
}

// A rate that changed goes on with the level it had, in units.
func TestBucketOfAChangedRate(t *testing.T) {
	slow := compileRate(t, limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}})
	fast := compileRate(t, limit.RateSpec{Algorithm: "token_bucket", Capacity: 15, Refill: limit.Flow{Units: 360, Per: time.Minute}})
	if slow.Generation != fast.Generation {
		t.Error("another capacity and refill begin a new count")
	}
	var x limit.Exact
	x.Charge(slow, 10, epoch)
	if l := fast.Measure(&x, nil, nil, limit.Carry{}, epoch); l.Whole != 10 || l.Part {
		t.Errorf("level after the change = %v, want 10", l)
	}
	if l := fast.Measure(&x, nil, nil, limit.Carry{}, epoch+int64(time.Second)); l.Whole != 4 || l.Part {
		t.Errorf("a second later = %v, want 4", l)
	}
}

// A queue whose longest wait is far beyond what it holds admits all of it, be
// what flows out meanwhile more than 64 bits hold.
func TestQueueOfLongWaits(t *testing.T) {
	for _, outflow := range []limit.Flow{perSecond(5), {Units: limit.MaxUnits, Per: time.Second}, {Units: limit.MaxUnits, Per: 1}} {
		r := compileRate(t, limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 10, Outflow: outflow, Queue: true, MaxWait: limit.MaxWindow})
		if r.Ceiling != 10 {
			t.Errorf("%d in %v: up to %d are admitted, want 10", outflow.Units, outflow.Per, r.Ceiling)
		}
	}
}

// How far a level counts goes with what the bucket holds, for whoever asks: twice that,
// with its widest margin. What is told beyond it is believed to be a full bucket.
func TestLevelsAreCutOff(t *testing.T) {
	compile := func(spec limit.RateSpec, margin limit.MarginSpec) *limit.Set {
		set, problems := limit.Compile(limit.Document{
			Namespace: "test", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}},
			Rules: []limit.RuleSpec{{Name: "rule", TierFrom: "tenant", Rates: []limit.RateSpec{spec}, Margin: margin}},
		})
		if set == nil {
			t.Fatal(problems)
		}
		return set
	}
	bucket := bucketSpecs[0] // of 10
	more := bucketSpecs[2]   // and 5 that it starts with
	elastic := limit.MarginSpec{SoftPercent: 20, Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}}
	for name, tt := range map[string]struct {
		spec       limit.RateSpec
		margin     limit.MarginSpec
		tenant     string
		override   uint64
		most, full uint64
	}{
		"plain":                   {spec: bucket, most: 20, full: 10},
		"more at first":           {spec: more, most: 25, full: 15},
		"a soft margin":           {spec: bucket, margin: limit.MarginSpec{SoftPercent: 20}, most: 24, full: 12},
		"an elastic margin":       {spec: bucket, margin: elastic, most: 30, full: 15},
		"a tenant's":              {spec: bucket, tenant: "gold", most: 200, full: 100},
		"a tenant's, with all":    {spec: more, margin: elastic, tenant: "gold", most: 350, full: 200},
		"one that a request asks": {spec: bucket, override: 40, most: 80, full: 40},
		"a queue that waits":      {spec: bucketSpecs[8], most: 40, full: 4}, // what flows out meanwhile, and one
	} {
		set := compile(tt.spec, tt.margin)
		req := set.Namespace("test").NewRequest()
		req.Set("tenant", tt.tenant)
		r := req.Rules()[0].Rates[0]
		if tt.override > 0 {
			req.Override(r.Policy, tt.override)
			r = req.RateFor(r)
		}
		for _, r := range []*limit.Rate{r, r.Open} {
			if r == nil {
				continue // it has no elastic margin
			}
			flood := []crdt.Cell{{Slice: r.SliceAt(epoch), Charges: 1 << 50}}
			if got := r.Used(flood, limit.Carry{}, r.StartOf(r.SliceAt(epoch))).Whole; got != tt.most {
				t.Errorf("%s: a flood makes a level of %d, want %d", name, got, tt.most)
			}
			for told, want := range map[uint64]uint64{0: 0, tt.full: tt.full, tt.most: tt.most, tt.most + 1: tt.full, 1 << 40: tt.full} {
				if got := r.Believed(limit.Carry{Boundary: 7, Level: told * 1_000_000}).Level; got != want*1_000_000 {
					t.Errorf("%s: of a level of %d, %d millionths are believed, want %d units", name, told, got, want)
				}
			}
		}
		req.Release()
	}
}
