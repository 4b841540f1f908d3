package storetest

import (
	"math"

	"github.com/spillgate/spillgate/regional"
)

// writer is an aggregator: it names the version that it last saw.
type writer struct {
	s       *subject
	version uint64
	node    uint64
	count   uint64
}

func (w *writer) write() regional.Item {
	w.s.Helper()
	w.count++
	it := item(1, edge(w.node, charge(w.s.at(0), w.count)))
	it.Version = w.version
	got := w.s.merge(it)[0]
	w.version = got.Version
	return got
}

func testTwoWriters(s *subject) {
	a, b := &writer{s: s, node: 1}, &writer{s: s, node: 2}
	if got := a.write(); len(got.Vectors) > 0 {
		s.Errorf("the first write of all brought %v, want nothing", got.Vectors)
	}
	s.same("b writes for the first time", b.write().Vectors, []regional.Vector{edge(1, charge(s.at(0), 1)), edge(2, charge(s.at(0), 1))})
	s.same("a writes after b", a.write().Vectors, []regional.Vector{edge(1, charge(s.at(0), 2)), edge(2, charge(s.at(0), 1))})
	s.same("a writes again", a.write().Vectors, nil)
	s.same("b writes after a", b.write().Vectors, []regional.Vector{edge(1, charge(s.at(0), 3)), edge(2, charge(s.at(0), 2))})

	// In another slice, which may stand in another place.
	old := item(1, edge(1, charge(s.at(39), 6)))
	old.Version = a.version
	a.version = s.merge(old)[0].Version
	s.same("b writes after a wrote an old slice", b.write().Vectors,
		[]regional.Vector{edge(1, charge(s.at(39), 6), charge(s.at(0), 3)), edge(2, charge(s.at(0), 3))})
}

func testUnchanged(s *subject) {
	a, b := &writer{s: s, node: 1}, &writer{s: s, node: 2}
	a.write()
	b.write()
	a.write()
	for range 3 {
		before := a.version
		if got := a.write(); len(got.Vectors) > 0 {
			s.Errorf("nobody else wrote, and the answer has %v", got.Vectors)
		}
		if a.version == before {
			s.Error("a write that changed something left the version as it was")
		}
	}
	// A write that changes nothing is not seen by others.
	again := item(1, edge(2, charge(s.at(0), b.count)))
	s.merge(again)
	if got := a.write(); len(got.Vectors) > 0 {
		s.Errorf("somebody wrote what was known, and the answer has %v", got.Vectors)
	}
}

func testWrongVersion(s *subject) {
	a := &writer{s: s, node: 1}
	a.write()
	for _, v := range []uint64{1, a.version - 1, a.version + 1, a.version ^ 1<<52, a.version ^ 1<<63, 1 << 52, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MaxUint64} {
		if v == a.version {
			continue
		}
		it := item(1)
		it.Version = v
		s.same("asked with a wrong version", s.merge(it)[0].Vectors, []regional.Vector{edge(1, charge(s.at(0), 1))})
	}
}

func testVersionAfterWipe(s *subject) {
	seen := map[uint64]bool{}
	for range 8 {
		// As many writes each time: versions that just count would repeat.
		a := &writer{s: s, node: 1}
		for range 5 {
			a.write()
			if seen[a.version] {
				s.Fatalf("version %d was given again after a wipe", a.version)
			}
			seen[a.version] = true
		}
		s.Wipe()
		old := a.version
		s.merge(item(1, edge(2, charge(s.at(0), 8)))) // somebody else comes first
		it := item(1, edge(1, charge(s.at(0), 5)))
		it.Version = old
		got := s.merge(it)[0]
		s.same("after a wipe", got.Vectors, []regional.Vector{edge(1, charge(s.at(0), 5)), edge(2, charge(s.at(0), 8))})
		seen[got.Version] = true
		s.Wipe()
		if got := s.merge(regional.Item{Key: 1, Width: width, Slices: pieces, Version: got.Version})[0]; got.Version != 0 || len(got.Vectors) > 0 {
			s.Errorf("after a wipe and before any write: %v, want version 0 and nothing", got)
		}
	}
}
