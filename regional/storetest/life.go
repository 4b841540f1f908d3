package storetest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
)

// brief is a shape whose counts are kept for 1.1 s after their slice.
func brief(vectors ...regional.Vector) regional.Item {
	return regional.Item{Key: 77, Width: 25 * time.Millisecond, Slices: 4, Vectors: vectors}
}

func testExpiry(s *subject) {
	it := brief()
	now := crdt.Slice(s.Now().UnixNano() / int64(it.Width))
	it.Vectors = []regional.Vector{edge(1, charge(now, 5), charge(now+70, 6))} // in 1.75 s
	s.alive(it, now)
	first := s.merge(it)[0]
	s.same("just merged", s.load(it)[0].Vectors, it.Vectors)

	// The first of the two is gone, the second is not.
	s.Advance(it.Kept() + 2*it.Width)
	s.alive(it, now+70)
	s.same("when the first has expired", s.merge(brief())[0].Vectors, []regional.Vector{edge(1, charge(now+70, 6))})
	s.same("when the first has expired, loaded", s.load(it)[0].Vectors, []regional.Vector{edge(1, charge(now+70, 6))})
	late := brief(edge(2, charge(now, 9)))
	s.merge(late)
	s.same("when a late count came", s.load(it)[0].Vectors, []regional.Vector{edge(1, charge(now+70, 6))})

	s.Advance(71 * it.Width)
	s.ends = time.Time{}
	s.same("when both have expired", s.load(it)[0].Vectors, nil)

	// Born again, it is not mistaken for what it was.
	now = crdt.Slice(s.Now().UnixNano() / int64(it.Width))
	s.alive(it, now)
	s.merge(brief(edge(3, charge(now, 1))))
	again := brief()
	again.Version = first.Version
	s.same("born again", s.merge(again)[0].Vectors, []regional.Vector{edge(3, charge(now, 1))})
}

func testDead(s *subject) {
	shape := brief()
	first, last := shape.Live(s.Now())
	for _, dead := range []crdt.Slice{math.MinInt64, -1 << 62, -1, 0, first - 100, first - 1, last + 400, last + 1000, 1 << 62, math.MaxInt64} {
		it := brief(edge(1, charge(dead, 5)))
		if got := s.merge(it)[0]; got.Version != 0 || len(got.Vectors) > 0 {
			s.Errorf("slice %d, with %d to %d alive: the answer is %v, want nothing stored", dead, first, last, got)
		}
		s.same("a dead slice", s.load(it)[0].Vectors, nil)
	}
	live := crdt.Slice(s.Now().UnixNano() / int64(shape.Width))
	s.alive(shape, live)
	s.merge(brief(edge(1, charge(-1, 1), charge(live, 5), charge(1<<62, 2))))
	s.same("dead slices beside a live one", s.load(brief())[0].Vectors, []regional.Vector{edge(1, charge(live, 5))})
}

func testEpoch(s *subject) {
	epoch := func() uint64 {
		s.Helper()
		e, err := s.Store.Epoch(s.Context())
		if err != nil {
			s.Fatalf("Epoch: %v", err)
		}
		return e
	}
	seen := map[uint64]bool{}
	for range 4 {
		first := epoch()
		if seen[first] {
			s.Errorf("epoch %d came back", first)
		}
		seen[first] = true
		s.merge(item(1, edge(1, charge(s.at(0), 5))))
		s.load(item(1))
		if got := epoch(); got != first {
			s.Errorf("the epoch went from %d to %d without a fault", first, got)
		}
		s.Wipe()
		s.holds(1)
		if got := epoch(); got == first {
			s.Errorf("the epoch is still %d after a wipe", got)
		}
	}
}

func testErrors(s *subject) {
	good := []regional.Item{item(1, edge(1, charge(s.at(0), 5)))}
	_, err := s.Store.Merge(cancelled(), good)
	s.fails("Merge, cancelled", err, context.Canceled)
	_, err = s.Store.Load(cancelled(), good)
	s.fails("Load, cancelled", err, context.Canceled)
	_, err = s.Store.Epoch(cancelled())
	s.fails("Epoch, cancelled", err, context.Canceled)
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	_, err = s.Store.Merge(late, good)
	s.fails("Merge, too late", err, context.DeadlineExceeded)
	s.holds(1)

	for _, bad := range []regional.Item{
		{Key: 1},
		{Key: 1, Width: width},
		{Key: 1, Width: time.Nanosecond, Slices: 1},
		{Key: 1, Width: width, Slices: math.MaxInt},
		item(1, regional.Vector{Cells: []crdt.Cell{charge(s.at(0), 1)}}),
		item(1, edge(1, charge(s.at(0), 0))),
		carried(1, crdt.Carry{Boundary: s.at(0)}),
		item(1, edge(1, charge(s.at(0), 1), charge(s.at(1), 1))),
	} {
		_, err := s.Store.Merge(s.Context(), []regional.Item{good[0], bad})
		s.fails("Merge of a malformed item", err)
		_, err = s.Store.Load(s.Context(), []regional.Item{bad})
		s.fails("Load of a malformed item", err)
	}
	s.holds(1) // a batch that could never be stored is refused before any of it is

	if err := s.Store.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	_, err = s.Store.Merge(s.Context(), good)
	s.fails("Merge, closed", err)
	_, err = s.Store.Load(s.Context(), good)
	s.fails("Load, closed", err)
	_, err = s.Store.Epoch(s.Context())
	s.fails("Epoch, closed", err)
	if errors.Is(err, context.Canceled) {
		s.Error("a closed store blames the caller's context")
	}
}
