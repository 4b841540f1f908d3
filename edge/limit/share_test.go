package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

func adaptive(limit uint64, per time.Duration) *Rate {
	slices, width := Narrow(per, DefaultSlices)
	return &Rate{Limit: limit, Ceiling: limit, Window: per, Width: width, Slices: slices, Span: slices,
		Algorithm: SubWindows, Round: RoundDown, Scope: ScopeGlobal, Consistency: Adaptive}
}

// Who is alone in the world has all that is left.
func TestGrantOfTheOnlyEdge(t *testing.T) {
	r := adaptive(100, time.Second)
	for used := range uint64(120) {
		s := Share{Omega: 1, Weight: 1, Mine: float64(used)}
		if g := r.Grant(Level{Whole: used}, &s); g.Cost != r.Room(Level{Whole: used}) {
			t.Fatalf("at %d used it grants %d, want %d", used, g.Cost, r.Room(Level{Whole: used}))
		}
	}
}

// What edges may spend at once, each of them, is no more together than is left, and what is
// lent beyond shares: of a limit that nobody was told a share of, and of one that is asked
// for more than it has. Between these what those who are new have comes to it.
func TestLumpsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 20_000 {
		r := adaptive(20+rnd.Uint64N(2000), time.Duration(1+rnd.IntN(60))*time.Second)
		regions, edges := 1+rnd.IntN(6), 1+rnd.IntN(5)
		used := math.Floor(rnd.Float64() * float64(r.Limit) * 1.2)
		rest, pace := max(0, float64(r.Limit)-used), float64(r.Limit)/r.Window.Seconds()
		known := i%2 == 0
		demand, omegas := 0.0, weights(rnd, regions)
		if known {
			demand = (1 + rnd.Float64()*10) * pace
		}
		whole := 0.0
		for _, omega := range omegas {
			for _, v := range weights(rnd, edges) {
				if !known {
					omega, v = 1/float64(regions), 1/float64(edges)
				}
				s := Share{
					Omega: omega, Weight: v, Edges: float64(regions * edges), Mine: math.Floor(rnd.Float64() * v * omega * rest),
					Demand: demand, Window: demand, Fresh: known, Delay: 150 * time.Millisecond, Report: 110 * time.Millisecond,
				}
				g := r.Grant(Level{Whole: uint64(used + s.Mine)}, &s)
				whole += s.Mine + float64(g.Lump)
				if left := crdt.SatSub(r.Limit, uint64(used+s.Mine)); g.Lump > left {
					t.Fatalf("%d at once of %d that are left: %+v", g.Lump, left, s)
				}
			}
		}
		if lent := 0.05*float64(r.Limit) + 1; whole > rest+lent {
			t.Fatalf("%d regions of %d edges, known %t, may spend %.0f at once of %.0f", regions, edges, known, whole, rest)
		}
	}
}

// While more is asked for than usual, edges that all know the same, whose weights add
// up to one, grant no more together than is left, be it for sure or by chance.
func TestGrantsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		r := adaptive(1+rnd.Uint64N(2000), time.Second)
		regions, edges := 1+rnd.IntN(6), 1+rnd.IntN(5)
		used := rnd.Float64() * float64(r.Limit) * 1.2 // by others' knowledge
		rest := max(0, float64(r.Limit)-used)
		whole := 0.0
		omegas := weights(rnd, regions)
		for _, omega := range omegas {
			unseen := math.Floor(rnd.Float64() * omega * rest)
			for _, v := range weights(rnd, edges) {
				mine := math.Floor(rnd.Float64() * v * (omega*rest - unseen))
				s := Share{Omega: omega, Weight: v, Unseen: unseen, Mine: mine, Delay: 150 * time.Millisecond, Report: 110 * time.Millisecond}
				s.Own.Fast = 1000 // a surge: many requests for each part of a unit
				g := r.Grant(Level{Whole: uint64(used + unseen + mine)}, &s)
				if g.Free {
					t.Fatalf("a limit of %d a second is called far off: %+v", r.Limit, s)
				}
				whole += mine + float64(g.Cost)
				if g.Cost == 0 {
					whole += g.Chance(1, 0) * (s.Own.Fast*s.Report.Seconds() - mine)
				}
			}
			whole += unseen
		}
		if whole > rest+1.01 { // what is used is rounded down
			t.Fatalf("%d regions of %d edges grant %.1f of %.1f", regions, edges, whole, rest)
		}
	}
}

func weights(rnd *rand.Rand, n int) []float64 {
	w, sum := make([]float64, n), 0.0
	for i := range w {
		w[i] = rnd.ExpFloat64()
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// A part of a unit is given by chance, as often as it is there for the taking.
func TestGrantByChance(t *testing.T) {
	r := adaptive(10, time.Second)
	s := Share{Omega: 0.1, Weight: 0.5, Report: 100 * time.Millisecond, Delay: 150 * time.Millisecond}
	if g := r.Grant(Level{}, &s); g.Cost != 0 || g.Chance(1, 0) != 1 {
		t.Errorf("half a unit for a rare request: %+v, want it by chance 1", g)
	}
	if g, heavy := r.Grant(Level{}, &s), 0.5/5; math.Abs(g.Chance(5, 0)-heavy) > 0.01 {
		t.Errorf("half a unit for half of the limit: a chance of %v, want %v", g.Chance(5, 0), heavy)
	}
	if g := adaptive(4, time.Second).Grant(Level{}, &s); g.Cost != 0 || g.Chance(1, 0) != 1 {
		t.Errorf("a fifth of a unit of a small limit: %+v, want it by chance 1 for a request of 1, than which none is lighter", g)
	}
	s.Own.Fast, s.Own.Mid = 50, 50                                          // five requests in the time that it takes to hear of others
	if g := r.Grant(Level{}, &s); math.Abs(g.Chance(1, 0)-0.525/5) > 0.01 { // with a twentieth of the limit on top
		t.Errorf("half a unit for five requests: %+v, want each to have a tenth", g)
	}
}

// The further the limit is off, the less others matter: while even a surge everywhere
// could not use up what is left before the news of it comes, no share is asked about.
func TestGrantFarFromTheLimit(t *testing.T) {
	s := Share{Omega: 0.2, Weight: 0.5, Delay: 140 * time.Millisecond}
	long := adaptive(1000, time.Minute)
	if g := long.Grant(Level{Whole: 900}, &s); g.Cost != 100 || !g.Free {
		t.Errorf("1000 a minute, 900 used: %+v, want all that is left", g)
	}
	ten := adaptive(1000, 10*time.Second)
	if g := ten.Grant(Level{Whole: 500}, &s); !g.Free || g.Cost < 400 || g.Cost > 430 { // left - (10 * 100/s * 0.14 s - 50) + 1
		t.Errorf("1000 in ten seconds, 500 used: %+v, want some 411", g)
	}
	short := adaptive(100, time.Second)
	if g := short.Grant(Level{Whole: 10}, &s); g.Free {
		t.Errorf("100 a second, 10 used: %+v, want a share", g)
	}
}

// Whom nobody answers keeps to its part of the whole limit, and counts itself alone.
func TestGrantAlone(t *testing.T) {
	r := adaptive(100, time.Second)
	for mine := range 30 {
		s := Share{Omega: 0.2, Weight: 0.5, Mine: float64(mine), Alone: true}
		want := uint64(max(0, 10-mine))
		if g := r.Grant(Level{Whole: 95}, &s); g.Cost != want {
			t.Fatalf("with %d spent it grants %d, want %d", mine, g.Cost, want)
		}
	}
}

// Parts of the limit that are kept for regions which are cut off are nobody's here.
func TestGrantLess(t *testing.T) {
	r := adaptive(100, time.Second)
	s := Share{Omega: 1, Weight: 1, Less: 30}
	if g := r.Grant(Level{}, &s); g.Cost != 70 {
		t.Errorf("it grants %d, want 70", g.Cost)
	}
}

// Whatever the others tell, a grant is a number, and never more than the limit.
func TestGrantOfNonsense(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	odd := []float64{0, 1, 1 << 64, 1e-300, -1, 7}
	pick := func() float64 { return odd[rnd.IntN(len(odd))] }
	for range 100_000 {
		r := adaptive(1+rnd.Uint64N(1000), time.Second)
		s := Share{
			Omega: min(1, max(0, pick())), Weight: min(1, max(0, pick())), Unseen: max(0, pick()), Mine: max(0, pick()), Less: max(0, pick()),
			Demand: max(0, pick()), Window: max(0, pick()), Hidden: max(0, pick()), Delay: time.Duration(rnd.Int64N(int64(time.Minute))),
			Report: time.Second, Fresh: rnd.IntN(2) == 0, Alone: rnd.IntN(8) == 0,
		}
		s.Own.Fast, s.Own.Mid = max(0, pick()), max(0, pick())
		g := r.Grant(Level{Whole: rnd.Uint64N(2000)}, &s)
		if p := g.Chance(rnd.Uint64N(2000), rnd.Uint64N(9)); !(p >= 0 && p <= 1) {
			t.Fatalf("a chance of %v: %+v", p, s)
		}
		if most := float64(r.Limit) + s.Unseen + s.Mine + 2; float64(g.Cost) > most {
			t.Fatalf("%d granted of a limit of %d: %+v", g.Cost, r.Limit, s)
		}
	}
}

// Who expects no more than twice the limit at once may admit most of it before the
// others hear of that; a wider leeway does the same by so much.
func TestGrantByDials(t *testing.T) {
	s := Share{Omega: 0.2, Weight: 0.5, Delay: 140 * time.Millisecond}
	r := adaptive(100, time.Second)
	if g := r.Grant(Level{}, &s); g.Free || g.Cost > 15 {
		t.Errorf("by default: %+v, want a share", g)
	}
	r.Surge = 2
	if g := r.Grant(Level{}, &s); !g.Free || g.Cost != 78 { // 100 - (2 * 100/s * 0.14 s - 5) + 1
		t.Errorf("with a surge of 2: %+v, want 78 at once", g)
	}
	r.Leeway = 0.1
	if g := r.Grant(Level{}, &s); !g.Free || g.Cost != 83 {
		t.Errorf("with a leeway of a tenth: %+v, want 83 at once", g)
	}
}

// The more is asked for the less is lent beyond an edge's share: up to three times the
// limit the elastic margin is whole, at thirty times a tenth of it.
func TestCrowdsAreLentLess(t *testing.T) {
	r := adaptive(1000, time.Second)
	lent := func(times float64) uint64 {
		s := Share{Omega: 1, Weight: 0.5, Demand: times * 1000, Window: times * 1000, Fresh: true, Delay: time.Second}
		return r.Grant(Level{Whole: 600}, &s).Cost - 200 // its half of what is left
	}
	for _, tt := range []struct {
		times float64
		want  uint64
	}{{2, 25}, {3, 25}, {6, 12}, {30, 2}} {
		if got := lent(tt.times); got != tt.want {
			t.Errorf("asked for %v times the limit: %d lent, want %d", tt.times, got, tt.want)
		}
	}
}

// No more is lent beyond a share than comes free of the limit until news comes: in
// longer windows less than the elastic margin.
func TestNoMoreIsLentThanComesFreeMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		per  time.Duration
		want uint64
	}{{time.Second, 5}, {10 * time.Second, 2}} { // tenths of 5 % of 1000, and of what comes free in 0.2 s
		pace := 1000 / tt.per.Seconds()
		s := Share{Omega: 1, Weight: 0.1, Demand: 2 * pace, Window: 2 * pace, Fresh: true, Delay: 200 * time.Millisecond}
		g := adaptive(1000, tt.per).Grant(Level{Whole: 960}, &s)
		if share := uint64(4); g.Free || g.Cost-share != tt.want {
			t.Errorf("1000 in %v: %+v, want a share of %d and %d lent", tt.per, g, share, tt.want)
		}
	}
}
