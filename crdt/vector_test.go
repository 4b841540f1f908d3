package crdt_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// model is the dumb twin of a Vector.
type model map[crdt.Slice]crdt.Cell

func (m model) add(c crdt.Cell) {
	old := m[c.Slice]
	old.Slice = c.Slice
	m.put(old.Plus(c))
}

func (m model) join(c crdt.Cell) {
	old := m[c.Slice]
	old.Slice = c.Slice
	m.put(old.Join(c))
}

func (m model) put(c crdt.Cell) {
	if !c.Zero() {
		m[c.Slice] = c
	}
}

func (m model) retire(before crdt.Slice) int {
	n := len(m)
	maps.DeleteFunc(m, func(s crdt.Slice, _ crdt.Cell) bool { return s < before })
	return n - len(m)
}

func (m model) cells() []crdt.Cell {
	out := make([]crdt.Cell, 0, len(m))
	for _, s := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[s])
	}
	return out
}

// regime says from where generated slices and counts are drawn. Each border at
// which a Vector widens is inside one.
type regime struct {
	name   string
	low    crdt.Slice
	span   uint64
	counts []uint64
}

var regimes = []regime{
	{"bytes", -3, 12, []uint64{0, 1, 2, 254, 255, 256}},
	{"shorts", 1000, 300, []uint64{0, 1, 255, 256, 65535, 65536}},
	{"words", 1 << 33, 70000, []uint64{0, 3, 65536, 1<<32 - 1, 1 << 32}},
	{"longs", -1 << 20, 1 << 33, []uint64{0, 7, 1 << 32, 1<<53 + 1, math.MaxUint64 - 1, math.MaxUint64}},
	{"extreme", -1 << 62, 1<<63 + 1, []uint64{0, 1, 1 << 40, math.MaxUint64}},
	{"whole", math.MinInt64, math.MaxUint64, []uint64{0, 1, math.MaxUint64}},
}

func (g regime) slice(r *rand.Rand) crdt.Slice {
	switch r.IntN(8) {
	case 0:
		return g.low
	case 1:
		return crdt.Slice(uint64(g.low) + g.span - 1)
	case 2: // near the start, so that cells meet
		return g.low + crdt.Slice(r.Uint64N(min(g.span, 8)))
	}
	return crdt.Slice(uint64(g.low) + r.Uint64N(g.span))
}

func (g regime) cell(r *rand.Rand) crdt.Cell {
	pick := func() uint64 { return g.counts[r.IntN(len(g.counts))] }
	c := crdt.Cell{Slice: g.slice(r), Charges: pick()}
	if r.IntN(4) == 0 {
		c.Refunds = pick()
	}
	return c
}

// eachSeed runs check in every regime with many seeds. A failure's name is
// what -run takes to replay it.
func eachSeed(t *testing.T, seeds uint64, check func(t *testing.T, g regime, r *rand.Rand)) {
	for _, g := range regimes {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", g.name, seed), func(t *testing.T) {
				check(t, g, rand.New(rand.NewPCG(seed, uint64(len(g.name)))))
			})
		}
	}
}

func TestVectorAgainstMap(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		var v crdt.Vector
		m := model{}
		for step := range 300 {
			c := g.cell(r)
			op := ""
			switch k := r.IntN(20); {
			case k < 9:
				op = fmt.Sprintf("Add(%v)", c)
				v.Add(c)
				m.add(c)
			case k < 18:
				op = fmt.Sprintf("Join(%v)", c)
				old := m[c.Slice]
				rise := v.Join(c)
				m.join(c)
				if want := m[c.Slice].Less(old); rise.Charges != want.Charges || rise.Refunds != want.Refunds || rise.Slice != c.Slice {
					t.Fatalf("step %d: %s = %v, want the rise of slice %d from %v to %v", step, op, rise, c.Slice, old, m[c.Slice])
				}
			case k < 19:
				op = fmt.Sprintf("Retire(%d)", c.Slice)
				if got, want := v.Retire(c.Slice), m.retire(c.Slice); got != want {
					t.Fatalf("step %d: %s = %d, want %d", step, op, got, want)
				}
			default:
				if r.IntN(10) > 0 {
					continue
				}
				op = "Reset"
				v.Reset()
				clear(m)
			}
			compare(t, fmt.Sprintf("step %d: %s", step, op), &v, m, c.Slice)
		}
	})
}

// A vector that has a cell in every slice is laid out another way than one with
// gaps, and becomes that when one comes.
func TestVectorWithoutGapsAgainstMap(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			var v crdt.Vector
			m := model{}
			last := crdt.Slice(r.Int64N(1<<40) - 1<<39)
			for step := range 400 {
				c := crdt.Cell{Slice: last - crdt.Slice(r.IntN(6)), Charges: 1 + r.Uint64N(250)}
				switch r.IntN(60) {
				case 0:
					c.Refunds = r.Uint64N(1 << 9)
				case 1:
					c.Charges = 1 << r.IntN(40)
				case 2: // a gap, or in front of all
					c.Slice += crdt.Slice(r.IntN(20) - 10)
				case 3:
					v.Reset()
					clear(m)
				}
				if r.IntN(3) == 0 {
					c.Slice = last + 1
				}
				if r.IntN(3) == 0 {
					told := []crdt.Cell{c}
					for range r.IntN(4) {
						c.Slice, c.Charges = c.Slice+crdt.Slice(1+r.IntN(30)/29), r.Uint64N(20)
						if r.IntN(20) == 0 {
							c.Refunds = r.Uint64N(20)
						}
						told = append(told, c)
					}
					was := maps.Clone(m)
					for _, c := range told {
						m.join(c)
					}
					if got, want := v.JoinAll(told), !maps.Equal(was, m); got != want {
						t.Fatalf("step %d: JoinAll(%v) = %v, want %v", step, told, got, want)
					}
				} else {
					v.Add(c)
					m.add(c)
				}
				last = max(last, c.Slice)
				if r.IntN(4) == 0 {
					before := last - crdt.Slice(r.IntN(12))
					if got, want := v.Retire(before), m.retire(before); got != want {
						t.Fatalf("step %d: Retire(%d) = %d, want %d", step, before, got, want)
					}
				}
				compare(t, fmt.Sprintf("step %d: Add(%v)", step, c), &v, m, c.Slice)
			}
		})
	}
}

// compare checks every reader of v against the model, around slice s.
func compare(t *testing.T, what string, v *crdt.Vector, m model, s crdt.Slice) {
	t.Helper()
	want := m.cells()
	if got := v.Cells(nil); !slices.Equal(got, want) {
		t.Fatalf("%s: Cells = %v, want %v", what, got, want)
	}
	if v.Len() != len(want) {
		t.Fatalf("%s: Len = %d, want %d", what, v.Len(), len(want))
	}
	for _, q := range []crdt.Slice{s - 1, s, s + 1} {
		w := m[q]
		w.Slice = q
		if got := v.Get(q); got != w {
			t.Fatalf("%s: Get(%d) = %v, want %v", what, q, got, w)
		}
	}
	i, _ := slices.BinarySearchFunc(want, s, func(c crdt.Cell, s crdt.Slice) int {
		if c.Slice < s {
			return -1
		}
		return 1
	})
	if got := v.From(s, nil); !slices.Equal(got, want[i:]) {
		t.Fatalf("%s: From(%d) = %v, want %v", what, s, got, want[i:])
	}
	first, ok := v.First()
	if ok != (len(want) > 0) || ok && first != want[0].Slice {
		t.Fatalf("%s: First = %d, %v, want the first of %v", what, first, ok, want)
	}
	last, ok := v.Last()
	if ok != (len(want) > 0) || ok && last != want[len(want)-1].Slice {
		t.Fatalf("%s: Last = %d, %v, want the last of %v", what, last, ok, want)
	}
}

func TestVectorWidens(t *testing.T) {
	for _, tt := range []struct {
		border uint64
		width  int // bytes of a count at the border, and of one above it
		above  int
	}{
		{math.MaxUint8, 1, 2},
		{math.MaxUint16, 2, 4},
		{math.MaxUint32, 4, 8},
	} {
		for _, kind := range []string{"charges", "refunds", "offset"} {
			t.Run(fmt.Sprintf("%s above %d", kind, tt.border), func(t *testing.T) {
				var v crdt.Vector
				m := model{}
				both := func(c crdt.Cell) { v.Join(c); m.join(c) }
				both(crdt.Cell{Slice: 5, Charges: 1})
				for _, x := range []uint64{tt.border, tt.border + 1} {
					switch kind {
					case "charges":
						both(crdt.Cell{Slice: 6, Charges: x})
					case "refunds":
						both(crdt.Cell{Slice: 6, Charges: 1, Refunds: x})
					case "offset":
						both(crdt.Cell{Slice: 5 + crdt.Slice(x), Charges: 1})
					}
					compare(t, fmt.Sprint("at ", x), &v, m, 6)
				}
				if want := v.Len() * (tt.width + 1); v.Bytes() < want {
					t.Errorf("Bytes = %d, want at least %d", v.Bytes(), want)
				}
			})
		}
	}
}

func TestVectorSmallCountsStaySmall(t *testing.T) {
	var v crdt.Vector
	for s := range crdt.Slice(40) {
		v.Add(crdt.Cell{Slice: 1e12 + s, Charges: 200})
	}
	if v.Bytes() < 40 || v.Bytes() > 48 {
		t.Errorf("Bytes of 40 small counts = %d, want 40 and what the allocator rounds it up to", v.Bytes())
	}
	v.Add(crdt.Cell{Slice: 1e12 + 41, Charges: 200})
	if v.Bytes() < 82 || v.Bytes() > 128 {
		t.Errorf("Bytes of 41 small counts with a gap = %d, want 82 and what the allocator rounds it up to", v.Bytes())
	}
}

func TestVectorMergeLeavesItsArgumentAlone(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, g regime, r *rand.Rand) {
		var a, b crdt.Vector
		m, n := model{}, model{}
		for range 20 {
			c, d := g.cell(r), g.cell(r)
			a.Join(c)
			m.join(c)
			b.Join(d)
			n.join(d)
		}
		before := m.cells()
		for _, c := range n {
			m.join(c)
		}
		wantChange := !slices.Equal(before, m.cells())
		if got := a.Merge(&b); got != wantChange {
			t.Fatalf("Merge = %v, want %v", got, wantChange)
		}
		compare(t, "merged", &a, m, g.low)
		compare(t, "argument", &b, n, g.low)
		a.Add(g.cell(r))
		a.Retire(g.slice(r))
		compare(t, "argument after the result changed", &b, n, g.low)
		if a.Merge(&crdt.Vector{}) || (&crdt.Vector{}).Merge(&crdt.Vector{}) {
			t.Error("Merge of an empty vector said that something changed")
		}
	})
}

func TestVectorCloneSharesNothing(t *testing.T) {
	var v crdt.Vector
	for s := range crdt.Slice(10) {
		v.Add(crdt.Cell{Slice: s, Charges: 9})
	}
	c := v.Clone()
	v.Add(crdt.Cell{Slice: 3, Charges: 1})
	v.Retire(2)
	if got := c.Get(3).Charges; got != 9 || c.Len() != 10 {
		t.Errorf("clone has %d cells, slice 3 = %d; want 10 and 9", c.Len(), got)
	}
}

func TestMovingVectorAllocatesNothing(t *testing.T) {
	var v crdt.Vector
	now := crdt.Slice(1e9)
	move := func() {
		for i := range uint64(40) {
			v.Add(crdt.Cell{Slice: now, Charges: 100 + i%3, Refunds: i % 2})
		}
		v.Retire(now - 39)
		now++
	}
	for range 100 {
		move()
	}
	if got := testing.AllocsPerRun(1000, move); got != 0 {
		t.Errorf("a vector that moves with its window allocates %v times a slice, want 0", got)
	}
}

// A fixed window is a vector of one cell, which Retire empties each time.
func TestVectorEmptiedEachWindowAllocatesNothing(t *testing.T) {
	var v crdt.Vector
	now := crdt.Slice(0)
	move := func() {
		now++
		v.Retire(now)
		v.Add(crdt.Cell{Slice: now, Charges: 200})
		v.Add(crdt.Cell{Slice: now, Charges: 1 << 20, Refunds: 300})
	}
	for range 10 {
		move()
	}
	if got := testing.AllocsPerRun(1000, move); got != 0 {
		t.Errorf("a vector of one cell allocates %v times a window, want 0", got)
	}
}

// A vector that fills up to a window takes little more than its cells do.
func TestVectorTakesLittleMoreThanItsCells(t *testing.T) {
	for _, cells := range []int{1, 2, 40, 61, 1024} {
		var v crdt.Vector
		for i := range cells {
			v.Add(crdt.Cell{Slice: crdt.Slice(i), Charges: 1})
		}
		each := 2 // an offset and a count of a byte
		if cells > 256 {
			each = 3
		}
		if most := cells*each*5/4 + 16; v.Bytes() > most {
			t.Errorf("%d cells of %d bytes take %d, want %d at most", cells, each, v.Bytes(), most)
		}
	}
}

// A vector that starts in memory it was given stays there as long as it fits, and
// never writes beyond; what it holds is the same.
func TestVectorStartsInRoom(t *testing.T) {
	var place struct{ room, behind [8]byte }
	var v, plain crdt.Vector
	v.StartIn(place.room[:])
	for i := range 40 {
		if i == 8 && string(place.room[:]) != "\x01\x02\x03\x04\x05\x06\x07\x08" {
			t.Errorf("after 8 cells the room holds % x", place.room)
		}
		c := crdt.Cell{Slice: crdt.Slice(100 + i), Charges: uint64(i + 1)}
		v.Add(c)
		plain.Add(c)
	}
	if got, want := v.Cells(nil), plain.Cells(nil); !slices.Equal(got, want) {
		t.Errorf("%v in room, %v without", got, want)
	}
	if place.behind != [8]byte{} {
		t.Errorf("% x was written behind the room", place.behind)
	}
}
