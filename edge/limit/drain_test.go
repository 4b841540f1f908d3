package limit_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

const micro = 1_000_000

// generatedDrains are drains from slow to fast, some with a floor.
var generatedDrains = []limit.Drain{
	{Refill: 5, Per: time.Second, Width: 50 * time.Millisecond},
	{Refill: 7, Per: 3 * time.Second, Width: 100 * time.Millisecond},
	{Refill: 1, Per: 24 * time.Hour, Width: 6 * time.Hour},
	{Refill: 1000, Per: time.Hour, Width: 25 * time.Millisecond},
	{Refill: 10, Per: 500 * time.Millisecond, Floor: 5, Width: 25 * time.Millisecond},
	{Refill: 999_999_937, Per: 7 * time.Millisecond, Floor: 100, Width: 25 * time.Millisecond},
	{Refill: 5, Per: time.Second, Most: 20, Width: 50 * time.Millisecond},
	{Refill: 1, Per: 24 * time.Hour, Floor: 2, Most: 9, Width: 6 * time.Hour},
}

// uncut are those that know no largest level.
var uncut = slices.DeleteFunc(slices.Clone(generatedDrains), func(d limit.Drain) bool { return d.Most > 0 })

// drained is what drains in a time, in millionths, rounded up.
func drained(d limit.Drain, nanos int64) uint64 {
	x := new(big.Int).Mul(new(big.Int).SetUint64(d.Refill), big.NewInt(micro))
	x.Mul(x, big.NewInt(nanos))
	x.Add(x, big.NewInt(int64(d.Per)-1))
	return x.Quo(x, big.NewInt(int64(d.Per))).Uint64()
}

// sliceBySlice is the recursion as it is defined, one slice after the other.
func sliceBySlice(d limit.Drain, c crdt.Carry, sums []crdt.Cell, from crdt.Slice, now int64, beyond crdt.Slice) uint64 {
	level := c.Level
	cut := func() {
		if d.Most > 0 {
			level = min(level, d.Most*micro)
		}
	}
	cut()
	drain := func(nanos int64) {
		if floor := d.Floor * micro; level > floor {
			level = max(floor, crdt.SatSub(level, drained(d, nanos)))
		}
	}
	s := from
	if !c.Zero() {
		s = c.Boundary
	}
	for ; ; s++ {
		ahead := int64(s) * int64(d.Width) // when s begins
		for _, cell := range sums {
			if cell.Slice == s {
				level += cell.Net() * micro
				cut()
			}
		}
		if ahead+int64(d.Width) > now {
			drain(max(0, now-ahead))
			break
		}
		drain(int64(d.Width))
	}
	for _, cell := range sums {
		if cell.Slice > s && cell.Slice < beyond {
			level += cell.Net() * micro
		}
	}
	cut()
	return level
}

func generatedCells(rng *rand.Rand, from crdt.Slice, n int) []crdt.Cell {
	var cells []crdt.Cell
	s := from
	for range n {
		s += crdt.Slice(1 + rng.IntN(3)*rng.IntN(20))
		c := crdt.Cell{Slice: s, Charges: rng.Uint64N(12)}
		if rng.IntN(4) == 0 {
			c.Refunds = rng.Uint64N(12)
		}
		cells = append(cells, c)
	}
	return cells
}

func TestDrainAgainstSliceBySlice(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		d := generatedDrains[rng.IntN(len(generatedDrains))]
		from := crdt.Slice(rng.IntN(1000) - 500)
		cells := generatedCells(rng, from, rng.IntN(12))
		var c crdt.Carry
		if rng.IntN(2) == 0 {
			c = crdt.Carry{Boundary: from + crdt.Slice(rng.IntN(30)-5), Level: rng.Uint64N(40 * micro)}
		}
		at := from + crdt.Slice(rng.IntN(200))
		now := int64(at)*int64(d.Width) + rng.Int64N(int64(d.Width))
		beyond := at + 1 + crdt.Slice(rng.IntN(40))
		if c.Boundary >= beyond {
			continue
		}
		want := sliceBySlice(d, c, cells, from-5, now, beyond)
		if got := d.Level(c, cells, now, beyond); got != want {
			t.Fatalf("seed %d: Level(%+v, %v, %v, %d, beyond %d) = %d, want %d", seed, d, c, cells, now, beyond, got, want)
		}
		// However the way is cut, it comes out the same.
		cut := from + crdt.Slice(rng.IntN(200))
		whole := d.Advance(c, cells, at)
		if cut < at && d.Advance(d.Advance(c, cells, cut), cells, at) != whole {
			t.Fatalf("seed %d: cut at %d, the carry at %d is %v, want %v", seed, cut, at, d.Advance(d.Advance(c, cells, cut), cells, at), whole)
		}
		if got := d.Level(whole, cells, now, beyond); got != want {
			t.Fatalf("seed %d: Level(%+v, %v, %v, %d, beyond %d) = %d, want %d as from %v", seed, d, whole, cells, now, beyond, got, want, c)
		}
	}
}

// More counts, or a carry that says more, never make a level lower, wherever it is
// cut off; and while nothing comes in it only falls.
func TestLevelRisesWithTheCounts(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 8))
		d := generatedDrains[rng.IntN(len(generatedDrains))]
		from := crdt.Slice(rng.IntN(1000))
		cells := generatedCells(rng, from, 1+rng.IntN(12))
		c := crdt.Carry{Boundary: from, Level: rng.Uint64N(40 * micro)}
		at := from + crdt.Slice(rng.IntN(100))
		now := int64(at)*int64(d.Width) + rng.Int64N(int64(d.Width))
		level := d.Level(c, cells, now, math.MaxInt64)
		if then := d.Level(c, cells, now+rng.Int64N(9*int64(d.Width)), math.MaxInt64); then > level {
			t.Fatalf("seed %d: a level of %d is %d a while later", seed, level, then)
		}
		told := c
		told.Level += rng.Uint64N(1 << rng.IntN(60))
		if more := d.Level(told, cells, now, math.MaxInt64); more < level {
			t.Fatalf("seed %d: by %+v the level is %d, by %+v it was %d", seed, told, more, c, level)
		}
		cells[rng.IntN(len(cells))].Charges += rng.Uint64N(1 << rng.IntN(40))
		if more := d.Level(c, cells, now, math.MaxInt64); more < level {
			t.Fatalf("seed %d: with more counts the level is %d, it was %d", seed, more, level)
		}
	}
}

func TestDrainByItself(t *testing.T) {
	d := limit.Drain{Refill: 5, Per: time.Second, Floor: 3, Width: 50 * time.Millisecond}
	cells := []crdt.Cell{{Slice: 100, Charges: 20}}
	for name, tc := range map[string]struct {
		carry crdt.Carry
		cells []crdt.Cell
		to    crdt.Slice
		want  crdt.Carry
	}{
		"nothing at all":                  {crdt.Carry{}, nil, 100, crdt.Carry{Boundary: 100}},
		"a slice drains a quarter":        {crdt.Carry{}, cells, 101, crdt.Carry{Boundary: 101, Level: 19_750_000}},
		"a long rest leaves the floor":    {crdt.Carry{}, cells, 1 << 60, crdt.Carry{Boundary: 1 << 60, Level: 3_000_000}},
		"below the floor nothing drains":  {crdt.Carry{Boundary: 50, Level: 2_999_999}, nil, 1 << 40, crdt.Carry{Boundary: 1 << 40, Level: 2_999_999}},
		"what the carry stands for":       {crdt.Carry{Boundary: 101, Level: 4 * micro}, cells, 102, crdt.Carry{Boundary: 102, Level: 3_750_000}},
		"a later carry":                   {crdt.Carry{Boundary: 103, Level: 1}, cells, 102, crdt.Carry{Boundary: 103, Level: 1}},
		"refunds count against their own": {crdt.Carry{}, []crdt.Cell{{Slice: 1, Charges: 3, Refunds: 9}, {Slice: 2, Charges: 1}}, 3, crdt.Carry{Boundary: 3, Level: 1 * micro}},
		"a flood saturates":               {crdt.Carry{}, []crdt.Cell{{Slice: 1, Charges: math.MaxUint64}, {Slice: 2, Charges: math.MaxUint64}}, 2, crdt.Carry{Boundary: 2, Level: math.MaxUint64 - 250_000}},
	} {
		if got := d.Advance(tc.carry, tc.cells, tc.to); got != tc.want {
			t.Errorf("%s: Advance = %+v, want %+v", name, got, tc.want)
		}
	}
	if got := d.Level(crdt.Carry{Boundary: 500, Level: 9}, cells, 100*int64(d.Width), 200); got != 20*micro {
		t.Errorf("a carry out of reach: Level = %d, want %d", got, 20*micro)
	}
}

// What a hostile or broken peer may say of a drain makes no panic.
func TestDrainThatMakesNoSense(t *testing.T) {
	for _, d := range []limit.Drain{
		{}, {Refill: 1}, {Refill: 1, Per: 1}, {Refill: 1, Per: -1, Width: 1}, {Refill: math.MaxUint64, Per: 1, Width: time.Second},
		{Refill: 1, Per: 1, Width: -1}, {Refill: 1, Per: math.MaxInt64, Floor: math.MaxUint64, Width: math.MaxInt64}, {Per: 1, Width: 1},
	} {
		cells := []crdt.Cell{{Slice: math.MinInt64, Charges: 1}, {Slice: 5, Charges: math.MaxUint64}, {Slice: math.MaxInt64, Charges: 7}}
		for _, now := range []int64{math.MinInt64, -1, 0, 1 << 40, math.MaxInt64} {
			d.Level(crdt.Carry{Boundary: -7, Level: math.MaxUint64}, cells, now, math.MaxInt64)
			d.Level(crdt.Carry{}, cells, now, 0)
		}
		d.Advance(crdt.Carry{Boundary: math.MinInt64, Level: 1}, cells, math.MaxInt64)
	}
}

// hits of several replicas, with when they were made.
type hit struct {
	at      int64
	replica int
	cost    uint64
}

func generatedHits(rng *rand.Rand, d limit.Drain, from int64, n int) []hit {
	hits := make([]hit, n)
	at := from
	for i := range hits {
		at += rng.Int64N(int64(d.Width)) * int64(rng.IntN(4))
		if rng.IntN(5) == 0 { // the edges of slices
			at += int64(d.Width) - at%int64(d.Width) - int64(rng.IntN(2))
		}
		hits[i] = hit{at, rng.IntN(4), 1 + rng.Uint64N(6)}
	}
	return hits
}

// Property 1: with equal slices and nothing retired, it makes no difference
// which replicas made the hits, nor in which order and how often they were
// heard of.
func TestAnyPartitionHasTheSameLevel(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		d := generatedDrains[rng.IntN(len(generatedDrains))]
		hits := generatedHits(rng, d, rng.Int64N(int64(time.Hour)), 1+rng.IntN(60))
		var own [4]crdt.Vector
		var alone crdt.Vector
		for _, h := range hits {
			cell := crdt.Cell{Slice: crdt.Slice(h.at / int64(d.Width)), Charges: h.cost}
			own[h.replica].Add(cell)
			alone.Add(cell)
		}
		var merged crdt.GCounter
		for range 12 {
			i := rng.IntN(4)
			merged.JoinCells(crdt.Replica{Node: uint64(i)}, own[i].Cells(nil))
		}
		for i := range own {
			merged.JoinCells(crdt.Replica{Node: uint64(i)}, own[i].Cells(nil))
		}
		now := hits[len(hits)-1].at + rng.Int64N(3*int64(d.Width))
		got := d.Level(crdt.Carry{}, merged.Sums().Cells(nil), now, math.MaxInt64)
		if want := d.Level(crdt.Carry{}, alone.Cells(nil), now, math.MaxInt64); got != want {
			t.Fatalf("seed %d: level %d over four replicas, %d over one", seed, got, want)
		}
	}
}

// trueLevel is the exact level at now of hits in order.
func trueLevel(d limit.Drain, hits []hit, now int64) *big.Rat {
	level, at := new(big.Rat), now
	floor := new(big.Rat).SetUint64(d.Floor)
	drain := func(to int64) {
		if level.Cmp(floor) > 0 {
			level.Sub(level, big.NewRat(int64(d.Refill)*(to-at), int64(d.Per)))
			if level.Cmp(floor) < 0 {
				level.Set(floor)
			}
		}
		at = to
	}
	if len(hits) > 0 {
		at = hits[0].at
	}
	for _, h := range hits {
		drain(h.at)
		level.Add(level, new(big.Rat).SetUint64(h.cost))
	}
	drain(now)
	return level
}

// Property 2: with slices retired into a carry, and frames that come late, the
// level is a lower bound of the truth, and short of it by no more than what
// drains in a slice, what came too late, and a millionth for each slice.
func TestLevelIsALowerBound(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		d := uncut[rng.IntN(5)]
		from := rng.Int64N(int64(time.Hour))
		hits := generatedHits(rng, d, from, 1+rng.IntN(80))
		var known crdt.Vector
		var carry crdt.Carry
		late := uint64(0)
		var held []crdt.Cell
		for i, h := range hits {
			cell := crdt.Cell{Slice: crdt.Slice(h.at / int64(d.Width)), Charges: h.cost}
			if rng.IntN(3) == 0 {
				held = append(held, cell) // its frame comes later
			} else {
				known.Add(cell)
			}
			if rng.IntN(6) == 0 {
				to := cell.Slice - crdt.Slice(rng.IntN(8))
				carry = d.Advance(carry, known.Cells(nil), to)
				known.Retire(to)
			}
			if rng.IntN(8) == 0 || i == len(hits)-1 {
				for _, c := range held {
					if !carry.Zero() && c.Slice < carry.Boundary {
						late += c.Charges
					} else {
						known.Add(c)
					}
				}
				held = held[:0]
			}
		}
		now := hits[len(hits)-1].at + rng.Int64N(2*int64(d.Width))
		got := new(big.Rat).SetFrac(new(big.Int).SetUint64(d.Level(carry, known.Cells(nil), now, math.MaxInt64)), big.NewInt(micro))
		want := trueLevel(d, hits, now)
		if got.Cmp(want) > 0 {
			t.Fatalf("seed %d: level %s is above the true one, %s", seed, got.FloatString(6), want.FloatString(6))
		}
		least := new(big.Rat).Sub(want, new(big.Rat).SetUint64(late))
		least.Sub(least, big.NewRat(int64(d.Refill)*int64(d.Width), int64(d.Per)))
		least.Sub(least, big.NewRat((now-from)/int64(d.Width)+2, micro))
		if got.Cmp(least) < 0 {
			t.Fatalf("seed %d: level %s, want at least %s with %d too late", seed, got.FloatString(6), least.FloatString(6), late)
		}
	}
}
