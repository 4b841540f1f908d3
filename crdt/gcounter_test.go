package crdt_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
)

// write is one cell of one replica: what a counter is joined from.
type write struct {
	r crdt.Replica
	c crdt.Cell
}

func writes(g regime, r *rand.Rand, n int) []write {
	out := make([]write, n)
	for i := range out {
		out[i] = write{crdt.Replica{Node: r.Uint64N(3), Incarnation: r.Uint64N(3)}, g.cell(r)}
	}
	return out
}

func counter(ws []write) *crdt.GCounter {
	g := &crdt.GCounter{}
	for _, w := range ws {
		g.Join(w.r, w.c)
	}
	return g
}

func merged(gs ...*crdt.GCounter) *crdt.GCounter {
	out := gs[0].Clone()
	for _, g := range gs[1:] {
		out.Merge(g)
	}
	return out
}

// covers says that a is at least b everywhere.
func covers(a, b *crdt.GCounter) bool { return !a.Clone().Merge(b) }

// checkSums recomputes what g keeps beside its entries.
func checkSums(t *testing.T, what string, g *crdt.GCounter) {
	t.Helper()
	want := model{}
	entries := g.Entries()
	bytes := cap(entries)*int(unsafe.Sizeof(crdt.Entry{})) + g.Sums().Bytes()
	for i := range entries {
		bytes += entries[i].Vector.Bytes()
	}
	if g.Bytes() != bytes {
		t.Fatalf("%s: %d bytes, want %d", what, g.Bytes(), bytes)
	}
	for i := range entries {
		e := &entries[i]
		if i > 0 && entries[i-1].Replica.Compare(e.Replica) >= 0 {
			t.Fatalf("%s: entries %d and %d are out of order", what, i-1, i)
		}
		if e.Vector.Len() == 0 {
			t.Fatalf("%s: replica %v has no cell", what, e.Replica)
		}
		for _, c := range e.Vector.Cells(nil) {
			want.add(c)
		}
	}
	if got := g.Sums().Cells(nil); !slices.Equal(got, want.cells()) {
		t.Fatalf("%s: Sums = %v, want %v", what, got, want.cells())
	}
}

func equal(t *testing.T, what string, a, b *crdt.GCounter) {
	t.Helper()
	checkSums(t, what, a)
	checkSums(t, what, b)
	if !a.Equal(b) || !b.Equal(a) {
		t.Fatalf("%s: %v, want %v", what, a.Entries(), b.Entries())
	}
}

func TestJoinLaws(t *testing.T) {
	eachSeed(t, 30, func(t *testing.T, g regime, r *rand.Rand) {
		a, b, c := counter(writes(g, r, r.IntN(25))), counter(writes(g, r, 12)), counter(writes(g, r, 25))
		equal(t, "commutative", merged(a, b), merged(b, a))
		equal(t, "associative", merged(merged(a, b), c), merged(a, merged(b, c)))
		equal(t, "idempotent", merged(a, a), a)
		equal(t, "idempotent, later", merged(a, b, c, b, a), merged(a, b, c))
		equal(t, "unit", merged(a, &crdt.GCounter{}), a)
		equal(t, "unit, from the left", merged(&crdt.GCounter{}, a), a)
		if ab := merged(a, b); !covers(ab, a) || !covers(ab, b) {
			t.Fatal("the join is not an upper bound of its arguments")
		}
		if ab := merged(a, b); !covers(merged(ab, c), merged(a, c)) {
			t.Fatal("the join is not monotone")
		}
	})
}

func TestJoinIgnoresOrderAndRepeats(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		ws := writes(g, r, 40)
		want := counter(ws)
		again := append(slices.Clone(ws), ws[:20]...)
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		equal(t, "shuffled, half of it twice", counter(again), want)
	})
}

func TestJoinReturnsTheRise(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, g regime, r *rand.Rand) {
		c := &crdt.GCounter{}
		for _, w := range writes(g, r, 60) {
			before := crdt.Cell{Slice: w.c.Slice}
			if v := c.Of(w.r); v != nil {
				before = v.Get(w.c.Slice)
			}
			rise := c.Join(w.r, w.c)
			after := before.Join(w.c)
			if want := after.Less(before); rise != want {
				t.Fatalf("Join(%v, %v) = %v, want %v", w.r, w.c, rise, want)
			}
			if !after.Zero() && c.Of(w.r).Get(w.c.Slice) != after {
				t.Fatalf("after Join(%v, %v) the cell is %v, want %v", w.r, w.c, c.Of(w.r).Get(w.c.Slice), after)
			}
		}
	})
}

// A place finds what there is, wherever it stood before: in a counter that has grown
// or shrunk since, and in another one.
func TestPlacesAreHints(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		var a, b, want crdt.GCounter
		var at crdt.Place
		for i := range 200 {
			w := write{crdt.Replica{Node: r.Uint64N(4), Incarnation: r.Uint64N(12)}, g.cell(r)}
			if rise, plain := a.JoinAt(&at, w.r, w.c), want.Join(w.r, w.c); rise != plain {
				t.Fatalf("JoinAt(%v, %v) = %v, Join = %v", w.r, w.c, rise, plain)
			}
			if i%3 == 0 {
				b.JoinAt(&at, w.r, w.c)
			}
			if i%50 == 49 {
				before := g.slice(r)
				a.Retire(before)
				want.Retire(before)
			}
			for range 3 {
				other := crdt.Replica{Node: r.Uint64N(5), Incarnation: r.Uint64N(13)}
				i := slices.IndexFunc(a.Entries(), func(e crdt.Entry) bool { return e.Replica == other })
				got := a.OfAt(&at, other)
				if i < 0 && got != nil || i >= 0 && got != &a.Entries()[i].Vector {
					t.Fatalf("OfAt(%v) = %v, entry %d of %v", other, got, i, a.Entries())
				}
			}
		}
		equal(t, "joined with a place", &a, &want)
	})
}

func TestJoinCellsSaysWhetherAnyRose(t *testing.T) {
	g := &crdt.GCounter{}
	r := crdt.Replica{Node: 1}
	cells := []crdt.Cell{{Slice: 1, Charges: 5}, {Slice: 2, Charges: 7, Refunds: 1}}
	for i, want := range []bool{true, false} {
		if got := g.JoinCells(r, cells); got != want {
			t.Errorf("time %d: JoinCells = %v, want %v", i+1, got, want)
		}
	}
	if g.JoinCells(crdt.Replica{Node: 2}, []crdt.Cell{{Slice: 1}}) || g.Len() != 1 {
		t.Errorf("a zero cell made a replica: %v", g.Entries())
	}
}

func TestMergeLeavesItsArgumentAlone(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, g regime, r *rand.Rand) {
		a, b := counter(writes(g, r, 20)), counter(writes(g, r, 20))
		kept := b.Clone()
		a.Merge(b)
		equal(t, "argument", b, kept)
		for _, w := range writes(g, r, 20) {
			a.Join(w.r, w.c)
		}
		a.Retire(g.slice(r))
		equal(t, "argument after the result changed", b, kept)
	})
}

func TestDeltaIsSufficientAndMinimal(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		a, b := counter(writes(g, r, 25)), counter(writes(g, r, 25))
		d := a.Delta(b)
		equal(t, "known and the delta", merged(b, d), merged(b, a))
		if !covers(a, d) {
			t.Fatalf("the delta %v holds more than its counter %v", d.Entries(), a.Entries())
		}
		for _, e := range d.Entries() {
			for _, c := range e.Vector.Cells(nil) {
				if v := b.Of(e.Replica); v != nil && v.Get(c.Slice).Join(c) == v.Get(c.Slice) {
					t.Fatalf("the delta sends %v of %v, which is known: %v", c, e.Replica, v.Get(c.Slice))
				}
			}
		}
		if n := a.Delta(a).Len(); n != 0 {
			t.Fatalf("the delta to itself has %d entries, want none", n)
		}
		equal(t, "delta to nothing", a.Delta(&crdt.GCounter{}), a)
	})
}

func TestRetire(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		ws := writes(g, r, 40)
		c, before := counter(ws), g.slice(r)
		var kept []write
		for _, w := range ws {
			if w.c.Slice >= before {
				kept = append(kept, w)
			}
		}
		cells := func(g *crdt.GCounter) (n int) {
			for _, e := range g.Entries() {
				n += e.Vector.Len()
			}
			return n
		}
		had := cells(c)
		if got, want := c.Retire(before), had-cells(counter(kept)); got != want {
			t.Fatalf("Retire(%d) = %d, want %d", before, got, want)
		}
		equal(t, "retired", c, counter(kept))
		if got := c.Retire(before); got != 0 {
			t.Fatalf("Retire(%d) again = %d, want 0", before, got)
		}
		// It commutes with the join, and what was kept goes on counting.
		a, b := counter(ws[:20]), counter(ws[20:])
		both := merged(a, b)
		both.Retire(before)
		a.Retire(before)
		b.Retire(before)
		equal(t, "retire before and after the join", merged(a, b), both)
	})
}

func TestCountsSaturate(t *testing.T) {
	g := &crdt.GCounter{}
	g.Join(crdt.Replica{Node: 1}, crdt.Cell{Slice: 1, Charges: math.MaxUint64 - 1, Refunds: 1})
	g.Join(crdt.Replica{Node: 2}, crdt.Cell{Slice: 1, Charges: 3, Refunds: math.MaxUint64})
	want := crdt.Cell{Slice: 1, Charges: math.MaxUint64, Refunds: math.MaxUint64}
	if got := g.Sums().Get(1); got != want {
		t.Errorf("the sum is %v, want %v", got, want)
	}
	var v crdt.Vector
	v.Add(crdt.Cell{Slice: 1, Charges: math.MaxUint64})
	v.Add(crdt.Cell{Slice: 1, Charges: 1, Refunds: 2})
	if got, want := v.Get(1), (crdt.Cell{Slice: 1, Charges: math.MaxUint64, Refunds: 2}); got != want {
		t.Errorf("after Add the cell is %v, want %v", got, want)
	}
}

func TestCell(t *testing.T) {
	for _, tt := range []struct {
		name             string
		charges, refunds uint64
		net              uint64
	}{
		{"nothing", 0, 0, 0},
		{"charges only", 7, 0, 7},
		{"some given back", 7, 3, 4},
		{"all given back", 7, 7, 0},
		{"more refunds heard than charges", 3, 7, 0},
		{"largest", math.MaxUint64, 0, math.MaxUint64},
	} {
		c := crdt.Cell{Slice: 1, Charges: tt.charges, Refunds: tt.refunds}
		if got := c.Net(); got != tt.net {
			t.Errorf("%s: Net of %v = %d, want %d", tt.name, c, got, tt.net)
		}
		if got := c.Zero(); got != (tt.name == "nothing") {
			t.Errorf("%s: Zero of %v = %v", tt.name, c, got)
		}
	}
	for _, tt := range []struct{ a, b, sum, less uint64 }{
		{0, 0, 0, 0},
		{5, 3, 8, 2},
		{3, 5, 8, 0},
		{math.MaxUint64, 1, math.MaxUint64, math.MaxUint64 - 1},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, 0},
		{math.MaxUint64 - 1, 1, math.MaxUint64, math.MaxUint64 - 2},
	} {
		if got := crdt.SatAdd(tt.a, tt.b); got != tt.sum {
			t.Errorf("SatAdd(%d, %d) = %d, want %d", tt.a, tt.b, got, tt.sum)
		}
		if got := crdt.SatSub(tt.a, tt.b); got != tt.less {
			t.Errorf("SatSub(%d, %d) = %d, want %d", tt.a, tt.b, got, tt.less)
		}
	}
}
