package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

func testMaximum(s *subject) {
	s.merge(item(1, edge(7, charge(s.at(3), 5), charge(s.at(1), 9))))
	s.merge(item(1, edge(7, charge(s.at(3), 4), charge(s.at(2), 1), charge(s.at(1), 10))))
	s.holds(1, edge(7, charge(s.at(3), 5), charge(s.at(2), 1), charge(s.at(1), 10)))
	s.merge(item(1, edge(7, charge(s.at(39), 2)))) // in front of all others
	s.holds(1, edge(7, charge(s.at(39), 2), charge(s.at(3), 5), charge(s.at(2), 1), charge(s.at(1), 10)))
}

func testIdempotent(s *subject) {
	v := edge(7, charge(s.at(5), 3), crdt.Cell{Slice: s.at(0), Charges: 300, Refunds: 2})
	first := s.merge(item(1, v))[0].Version
	for range 3 {
		if got := s.merge(item(1, v))[0].Version; got != first {
			s.Errorf("merged again, the version went from %d to %d, want no change", first, got)
		}
	}
	s.holds(1, v)
}

func testOrder(s *subject) {
	r := rand.New(rand.NewPCG(1, 2))
	var steps []regional.Vector
	for i := range 40 {
		steps = append(steps, edge(uint64(i%3), crdt.Cell{Slice: s.at(r.IntN(pieces)), Charges: 1 + r.Uint64N(1000), Refunds: r.Uint64N(3)}))
	}
	for key := range deltasync.Key(5) {
		for _, i := range r.Perm(len(steps)) {
			s.merge(item(key, steps[i]))
		}
	}
	want := s.load(item(0))[0].Vectors
	for key := range deltasync.Key(5) {
		s.holds(key, want...)
	}
}

// Doubles, which Lua counts with, are exact to 2^53; signed integers to 2^63.
func testExact(s *subject) {
	values := []uint64{
		1, 255, 256, 65535, 65536, 1<<24 - 1, 1 << 24, math.MaxUint32, 1 << 32, 1<<40 + 1, 1 << 48,
		1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<56 - 1, 1 << 56, math.MaxInt64, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64,
	}
	for i, v := range values {
		key := deltasync.Key(i)
		cell := crdt.Cell{Slice: s.at(4), Charges: v, Refunds: v - 1}
		s.merge(item(key, edge(1, cell)))
		s.holds(key, edge(1, cell))
		// One less, and one less in the top byte with more below it, change nothing.
		for _, less := range []uint64{v - 1, v &^ (0xff << 56), v >> 1, v >> 8} {
			if less > 0 {
				s.merge(item(key, edge(1, charge(s.at(4), less))))
			}
		}
		s.holds(key, edge(1, cell))
	}
	for i := range values[1:] {
		key := deltasync.Key(1000)
		s.merge(item(key, edge(1, charge(s.at(2), values[i]))))
		s.holds(key, edge(1, charge(s.at(2), values[i])))
	}
}

func testRefunds(s *subject) {
	s.merge(item(1, edge(7, crdt.Cell{Slice: s.at(3), Refunds: 4})))
	s.merge(item(1, edge(7, crdt.Cell{Slice: s.at(3), Charges: 9, Refunds: 3})))
	s.merge(item(1, edge(7, crdt.Cell{Slice: s.at(2), Charges: 1})))
	s.holds(1, edge(7, crdt.Cell{Slice: s.at(3), Charges: 9, Refunds: 4}, charge(s.at(2), 1)))
	s.merge(item(1, edge(7, crdt.Cell{Slice: s.at(2), Refunds: math.MaxUint64})))
	s.holds(1, edge(7, crdt.Cell{Slice: s.at(3), Charges: 9, Refunds: 4}, crdt.Cell{Slice: s.at(2), Charges: 1, Refunds: math.MaxUint64}))
}

func testSources(s *subject) {
	r := crdt.Replica{Node: math.MaxUint64, Incarnation: 0x0a0d00ff_7f80c3a9} // bytes that text would not survive
	vs := []regional.Vector{
		{Source: regional.FromEdge, Replica: r, Cells: []crdt.Cell{charge(s.at(1), 1)}},
		{Source: regional.FromRegion, Replica: r, Cells: []crdt.Cell{charge(s.at(1), 2)}},
		{Source: regional.FromEdge, Replica: crdt.Replica{Node: r.Node, Incarnation: r.Incarnation + 1}, Cells: []crdt.Cell{charge(s.at(1), 3)}},
		{Source: regional.FromEdge, Replica: crdt.Replica{Node: r.Incarnation, Incarnation: r.Node}, Cells: []crdt.Cell{charge(s.at(1), 4)}},
		region(0, charge(s.at(1), 5)),
		{Source: regional.FromPeers, Cells: []crdt.Cell{charge(s.at(2), 8), charge(s.at(1), 6)}},
		{Source: regional.FromHomes, Cells: []crdt.Cell{charge(s.at(2), 9), charge(s.at(1), 7)}},
	}
	s.merge(item(1, vs...))
	s.holds(1, vs...)
	s.holds(2)
}

func testBatchAlone(s *subject) {
	mk := func() []regional.Item {
		return []regional.Item{item(1, edge(1, charge(s.at(2), 5), charge(s.at(1), 6)), region(2, charge(s.at(0), 7))), item(2)}
	}
	batch := mk()
	s.merge(batch...)
	if !reflect.DeepEqual(batch, mk()) {
		s.Errorf("Merge changed its batch to %v", batch)
	}
	batch[0].Vectors[0].Cells[0].Charges = 99
	batch[0].Vectors[1] = regional.Vector{}
	s.holds(1, mk()[0].Vectors...)

	// Nor does an answer share memory with the store or with another answer.
	got := s.load(item(1))[0].Vectors
	for i := range got {
		if got[i].Cells[0].Charges == 12345 {
			s.Error("an answer's vectors share memory")
		}
		got[i].Cells[0].Charges = 1
		_ = append(got[i].Cells, charge(0, 12345))
	}
	s.holds(1, mk()[0].Vectors...)
}

// Whatever the store cuts time into, a window reaches over the cut.
func testSpans(s *subject) {
	for n, shape := range []regional.Item{
		{Width: 25 * time.Millisecond, Slices: 40},
		{Width: time.Second, Slices: 1},
		{Width: time.Second, Slices: 2},
		{Width: width, Slices: pieces},
		{Width: time.Minute, Slices: 1},
		{Width: time.Hour, Slices: 24},
		{Width: time.Millisecond, Slices: 86_400_000}, // a calendar day
	} {
		shape.Key = deltasync.Key(100 + n)
		_, last := shape.Live(s.Now())
		back := min(crdt.Slice(shape.Slices), 400) // not so far that the oldest expire meanwhile
		if shape.Slices > 400 {
			back = crdt.Slice(shape.Slices)
		}
		v := edge(1)
		for i := range min(back, 40) {
			v.Cells = append(v.Cells, crdt.Cell{Slice: last - back + 1 + i*back/min(back, 40), Charges: 1 + uint64(i), Refunds: uint64(i) % 2})
		}
		shape.Vectors = []regional.Vector{v}
		s.merge(shape)
		half := shape
		half.Vectors = []regional.Vector{edge(1, v.Cells[len(v.Cells)/2:]...), region(2, v.Cells[0])}
		s.merge(half)
		s.same(shape.Width.String(), s.load(shape)[0].Vectors, append(shape.Vectors, half.Vectors[1]))
	}
}

func testKeyTwice(s *subject) {
	s.merge(item(2, edge(1, charge(s.at(2), 5)), edge(1, charge(s.at(1), 6)), edge(1, charge(s.at(2), 4))))
	s.holds(2, edge(1, charge(s.at(2), 5), charge(s.at(1), 6)))
	s.merge(item(1, edge(1, charge(s.at(1), 5))), item(1, edge(1, charge(s.at(1), 4), charge(s.at(0), 1))), item(1, edge(2, charge(s.at(1), 9))))
	s.holds(1, edge(1, charge(s.at(1), 5), charge(s.at(0), 1)), edge(2, charge(s.at(1), 9)))
}

// A key has one width of slices, as it is made of that. Of one that a node tells with
// another all the same, counts of one width are neither told nor lost with the other's.
func testShapes(s *subject) {
	a, b := item(1, edge(1, charge(s.at(1), 5))), item(1, edge(1))
	b.Width, b.Slices = width/2, 2*pieces // the same window, so the same cuts
	now := crdt.Slice(s.Now().UnixNano() / int64(b.Width))
	b.Vectors[0].Cells = []crdt.Cell{charge(now-pieces, 7), charge(now, 8)}
	s.merge(a, b)
	s.merge(a)
	for _, it := range []regional.Item{a, b} {
		s.same(fmt.Sprintf("slices of %v", it.Width), s.load(it)[0].Vectors, it.Vectors)
	}
}

func testLargeBatch(s *subject) {
	const n = 10_000
	batch := make([]regional.Item, n)
	for i := range batch {
		key := deltasync.Key(rand.NewPCG(uint64(i), 0).Uint64())
		batch[i] = item(key, edge(uint64(i), charge(s.at(1), uint64(i)+1)), region(3, charge(s.at(0), 5)))
	}
	s.merge(batch...)
	for i, got := range s.load(batch...) {
		s.same(fmt.Sprintf("key %d of %d", i, n), got.Vectors, batch[i].Vectors)
	}
}

func testEmptyBatch(s *subject) {
	s.merge()
	s.load()
	got := s.merge(item(1), item(2, edge(1)))
	for i, a := range got {
		if a.Version != 0 || len(a.Vectors) > 0 {
			s.Errorf("answer %d to an item without a cell: %v, want nothing stored", i, a)
		}
	}
	s.holds(1)
	s.holds(2)
}

func testLoad(s *subject) {
	v := edge(1, charge(s.at(1), 5))
	version := s.merge(item(1, v))[0].Version
	ask := item(1, edge(1, charge(s.at(1), 6), charge(s.at(0), 6))) // vectors are ignored
	ask.Version = version                                           // and so is the version
	got := s.load(item(2), ask)
	if got[0].Version != 0 || len(got[0].Vectors) > 0 {
		s.Errorf("Load of a key never merged = %v, want nothing", got[0])
	}
	s.same("loaded", got[1].Vectors, []regional.Vector{v})
	if got[1].Version != version {
		s.Errorf("Load says version %d, Merge said %d", got[1].Version, version)
	}
	after := item(1)
	after.Version = version
	if got := s.merge(after)[0]; got.Version != version || len(got.Vectors) > 0 {
		s.Errorf("after Load, Merge of nothing = %v, want version %d and no vectors", got, version)
	}
	if !slices.Equal(ask.Vectors[0].Cells, []crdt.Cell{charge(s.at(1), 6), charge(s.at(0), 6)}) {
		s.Errorf("Load changed what it was asked with: %v", ask.Vectors)
	}
}
