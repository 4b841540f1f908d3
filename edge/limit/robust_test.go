package limit_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// pick is one of some values.
func pick[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }

func randomSpec(rng *rand.Rand) limit.RateSpec {
	numbers := func() uint64 {
		return pick(rng, 1, 2, 10, 4096, 1_000_000, limit.MaxUnits, 1<<53, math.MaxUint64, rng.Uint64()>>rng.IntN(64))
	}
	times := func() time.Duration {
		return pick(rng, -1, 1, time.Millisecond, 25*time.Millisecond, time.Second, 7*time.Second, time.Minute, time.Hour, 24*time.Hour,
			limit.MaxWindow, math.MaxInt64, time.Duration(rng.Int64N(int64(time.Hour))).Truncate(time.Millisecond))
	}
	flow := func() limit.Flow { return limit.Flow{Units: numbers(), Per: times()} }
	s := limit.RateSpec{Algorithm: pick(rng, "fixed_window", "sliding_window", "sub_windows", "token_bucket", "leaky_bucket", "sliding_log", "concurrency")}
	switch s.Algorithm {
	case "token_bucket":
		s.Capacity, s.Refill = numbers(), flow()
		if rng.IntN(3) == 0 {
			s.Initial = numbers()
		}
	case "leaky_bucket":
		s.Capacity, s.Outflow, s.Queue = numbers(), flow(), rng.IntN(2) == 0
		if s.Queue && rng.IntN(2) == 0 {
			s.MaxWait = times()
		}
	case "concurrency":
		s.Limit, s.Lease = numbers(), times()
	default:
		s.Limit, s.Per = numbers(), times()
		if s.Algorithm == "fixed_window" && rng.IntN(2) == 0 {
			s.Align = "first_hit"
		}
	}
	return s
}

// Whatever rates compile, they hold what others rely on, and no counts, costs
// and instants make them panic, wait for no time or admit above the ceiling.
func TestWhateverCompilesWorks(t *testing.T) {
	compiled := map[limit.Algorithm]int{}
	for seed := range uint64(6000) {
		rng := rand.New(rand.NewPCG(seed, 13))
		spec := randomSpec(rng)
		set, problems := limit.Compile(limit.Document{
			Namespace: "test", Tenants: map[string]limit.TenantSpec{"t": {Multiply: pick(rng, 0.001, 0.3, 1, 7)}},
			Rules: []limit.RuleSpec{{
				Name: "rule", TierFrom: "tenant", Rates: []limit.RateSpec{spec},
				Margin: limit.MarginSpec{SoftPercent: pick[float64](rng, 0, 10), Elastic: limit.ElasticSpec{UpToPercent: 30, While: "capacity.a < 50%"}},
			}},
		})
		if problems != nil {
			continue
		}
		req := set.Namespace("test").NewRequest()
		req.Set("tenant", pick(rng, "", "t"))
		r := req.Rules()[0].Rates[0]
		compiled[r.Algorithm]++
		if r.Width < limit.MinWidth || r.Width%time.Millisecond != 0 || r.Window != r.Width*time.Duration(r.Slices) || r.Width > limit.MaxWindow/time.Duration(r.Span) ||
			r.Span < r.Slices || r.Span > limit.MaxSlices {
			t.Fatalf("seed %d: %+v compiled to %+v", seed, spec, r)
		}
		if r.Open.Ceiling < r.Ceiling {
			t.Fatalf("seed %d: the margin opens from %d to %d", seed, r.Ceiling, r.Open.Ceiling)
		}
		hammer(t, rng, r, seed)
	}
	for a := limit.FixedWindow; a <= limit.Concurrency; a++ {
		if compiled[a] < 20 {
			t.Errorf("%d rates of %v compiled, want 20 at least", compiled[a], a)
		}
	}
}

func hammer(t *testing.T, rng *rand.Rand, r *limit.Rate, seed uint64) {
	e := &edge{rate: r}
	now := pick(rng, epoch, 0, -epoch, epoch*4)
	for range 30 {
		now += pick(rng, 0, 1, int64(r.Width), int64(r.Window), rng.Int64N(int64(r.Window)), -rng.Int64N(int64(r.Window)), -int64(time.Hour))
		if rng.IntN(4) == 0 {
			e.others.Add(crdt.Cell{Slice: r.SliceAt(now) + crdt.Slice(rng.IntN(9)-4), Charges: rng.Uint64() >> rng.IntN(64), Refunds: rng.Uint64() >> rng.IntN(64)})
		}
		cost := pick(rng, 1, 2, 1<<53, math.MaxUint64, rng.Uint64N(r.Ceiling+1))
		room := r.Room(e.level(now))
		if room > r.Ceiling {
			t.Fatalf("seed %d: room for %d under a ceiling of %d", seed, room, r.Ceiling)
		}
		if cost <= room {
			e.charge(cost, now)
		} else if w := e.wait(cost, now); w < 1 {
			t.Fatalf("seed %d: %+v: denied, and told to wait %v", seed, r, w)
		}
		if d := r.Delay(&e.exact, e.sums(), e.carry, now); d < 0 {
			t.Fatalf("seed %d: %+v: a delay of %v", seed, r, d)
		}
		if rng.IntN(5) == 0 {
			e.exact.Refund(r, cost, r.SliceAt(now)-crdt.Slice(rng.IntN(3)), 0, nil, now)
		}
		if rng.IntN(5) == 0 {
			e.exact.Charge(r, cost, now)
		}
		if r.Exact() && r.Lump(&e.exact, now) <= now && now < math.MaxInt64 {
			t.Fatalf("seed %d: %+v: nothing may be booked at %d", seed, r, now)
		}
		if rng.IntN(6) == 0 {
			e.retire(now)
		}
	}
}

// In steady state nothing is allocated: these run under a lock, with every
// request.
func TestMeasuringAllocatesNothing(t *testing.T) {
	for name, spec := range benchSpecs {
		r := compileRate(t, spec)
		e := &edge{rate: r}
		for i := range int64(100) {
			e.charge(3, epoch+i*int64(r.Width)/2)
			e.others.Add(crdt.Cell{Slice: r.SliceAt(epoch + i*int64(r.Width)/2), Charges: 50})
		}
		now := epoch + 50*int64(r.Width)
		others, sums := e.others.Cells(nil), e.sums()
		if n := testing.AllocsPerRun(100, func() {
			r.Measure(&e.exact, others, sums, limit.Carry{}, now)
			r.Wait(&e.exact, others, sums, limit.Carry{}, 900, now)
			r.Delay(&e.exact, sums, limit.Carry{}, now)
			if r.Exact() {
				r.Lump(&e.exact, now)
				e.exact.Charge(r, 1, now)
				e.exact.Refund(r, 1, r.SliceAt(now), 0, nil, now)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
