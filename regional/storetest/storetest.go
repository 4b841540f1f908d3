// Package storetest is the suite that every regional.Store passes: what the
// contract promises, against a dumb model, from one goroutine and from many.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Subject is an empty store and the hands that the suite needs on it. The suite
// closes it.
type Subject struct {
	Store regional.Store
	// Now is the store's clock.
	Now func() time.Time
	// Advance returns when the store's clock is d further: by moving it, or by
	// waiting.
	Advance func(d time.Duration)
	// Wipe makes the store lose every count, as a fault would.
	Wipe func()
}

// Run runs the suite; open is called once for each test.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, tt := range []struct {
		name string
		run  func(*subject)
	}{
		{"merge takes the maximum of each cell", testMaximum},
		{"merge is idempotent", testIdempotent},
		{"merge does not depend on order", testOrder},
		{"merge is exact to the last bit", testExact},
		{"merge keeps refunds beside charges", testRefunds},
		{"merge keeps sources and replicas apart", testSources},
		{"merge leaves the batch alone", testBatchAlone},
		{"carries join by boundary", testCarries},
		{"carries are told like vectors", testCarryVersions},
		{"what rests joins by level and by boundary", testRests},
		{"carries expire, and come neither late nor early", patient(testCarryExpiry)},
		{"penalties join by the later", testPenalties},
		{"penalties are told like vectors", testPenaltyVersions},
		{"penalties last as long as they say", patient(testPenaltyExpiry)},
		{"a window spans groups", testSpans},
		{"a key twice in a batch", testKeyTwice},
		{"shapes do not mix", testShapes},
		{"large batch", testLargeBatch},
		{"empty batch", testEmptyBatch},
		{"load", testLoad},
		{"version: two writers see each other", testTwoWriters},
		{"version: unchanged brings no vectors", testUnchanged},
		{"version: foreign and wrong ones bring all", testWrongVersion},
		{"version: none survives a wipe", testVersionAfterWipe},
		{"counts expire", patient(testExpiry)},
		{"late and early cells leave nothing behind", patient(testDead)},
		{"hot keys are listed", testHot},
		{"hot keys: errors", testHotErrors},
		{"epoch changes with a wipe, and only then", testEpoch},
		{"errors wrap ErrStore", testErrors},
		{"many writers end where the model ends", patient(testConcurrent)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Store.Close(); err != nil && !errors.Is(err, regional.ErrStore) {
					t.Errorf("Close: %v", err)
				}
			})
			tt.run(&subject{Subject: s, T: t})
		})
	}
}

// subject adds the words in which the tests are written.
type subject struct {
	*testing.T
	Subject
	start sync.Once
	base  crdt.Slice
	ends  time.Time // see alive
}

// alive notes what a test is about to expect, as long as it may: until a slice
// expires.
func (s *subject) alive(it regional.Item, slice crdt.Slice) {
	s.ends = time.Unix(0, int64(slice+1)*int64(it.Width)).Add(it.Kept())
}

// tooLate is why a try of a patient test says nothing.
type tooLate string

// patient is a test of what expires within a second or two. A machine under load
// may pause for longer, or take as long to connect; then what was expected is
// rightly gone, and the test begins again.
func patient(test func(*subject)) func(*subject) {
	try := func(s *subject) (late tooLate) {
		defer func() {
			switch p := recover().(type) {
			case nil: // also when the test ends by Fatal
			case tooLate:
				late = p
			default:
				panic(p)
			}
		}()
		s.ends, s.start = time.Time{}, sync.Once{}
		test(s)
		return ""
	}
	return func(s *subject) {
		for range 4 {
			late := try(s)
			if late == "" {
				return
			}
			s.Logf("too late to tell: %s", string(late))
			s.Wipe()
		}
		if late := try(s); late != "" {
			s.Fatalf("five times too late to tell: %s", string(late))
		}
	}
}

// wrong ends the test, or the try of a patient one if what is missed may have
// expired by now.
func (s *subject) wrong(format string, args ...any) {
	s.Helper()
	if !s.ends.IsZero() && !s.Now().Before(s.ends) {
		panic(tooLate(fmt.Sprintf(format, args...)))
	}
	s.Fatalf(format, args...)
}

// The shape that tests use unless they are about shapes: a minute of 40 slices.
const (
	width  = 1500 * time.Millisecond
	pieces = 40
)

// at is the slice i before the newest at the start of the test; the last 40 live
// for 4 s and more, longer than a test runs, unless it is patient.
func (s *subject) at(i int) crdt.Slice {
	s.start.Do(func() { s.base = crdt.Slice(s.Now().UnixNano() / int64(width)) })
	return s.base - crdt.Slice(i)
}

func item(key deltasync.Key, vectors ...regional.Vector) regional.Item {
	return regional.Item{Key: key, Width: width, Slices: pieces, Vectors: vectors}
}

func edge(node uint64, cells ...crdt.Cell) regional.Vector {
	return regional.Vector{Source: regional.FromEdge, Replica: crdt.Replica{Node: node, Incarnation: 1}, Cells: cells}
}

func region(node uint64, cells ...crdt.Cell) regional.Vector {
	return regional.Vector{Source: regional.FromRegion, Replica: crdt.Replica{Node: node}, Cells: cells}
}

func charge(s crdt.Slice, n uint64) crdt.Cell { return crdt.Cell{Slice: s, Charges: n} }

// merge merges a batch and checks what every answer must have.
func (s *subject) merge(batch ...regional.Item) []regional.Item {
	s.Helper()
	out, err := s.Store.Merge(s.Context(), batch)
	return s.answers("Merge", batch, out, err)
}

func (s *subject) load(keys ...regional.Item) []regional.Item {
	s.Helper()
	out, err := s.Store.Load(s.Context(), keys)
	return s.answers("Load", keys, out, err)
}

func (s *subject) answers(verb string, in, out []regional.Item, err error) []regional.Item {
	s.Helper()
	if err := aligned(in, out, err); err != nil {
		s.Fatalf("%s: %v", verb, err)
	}
	return out
}

// aligned says what is wrong with an answer as a whole.
func aligned(in, out []regional.Item, err error) error {
	if err != nil {
		return err
	}
	if len(out) != len(in) {
		return fmt.Errorf("%d answers to %d keys", len(out), len(in))
	}
	for i := range out {
		if out[i].Key != in[i].Key || out[i].Width != in[i].Width || out[i].Slices != in[i].Slices || out[i].Floor != in[i].Floor {
			return fmt.Errorf("answer %d is about %016x, %d slices of %v, want %016x, %d of %v", i,
				uint64(out[i].Key), out[i].Slices, out[i].Width, uint64(in[i].Key), in[i].Slices, in[i].Width)
		}
		if err := out[i].Check(); err != nil {
			return fmt.Errorf("answer %d is malformed: %w", i, err)
		}
		if (len(out[i].Vectors)+len(out[i].Carries) > 0 || !out[i].Rest.Zero() || out[i].Until != 0) && out[i].Version == 0 {
			return fmt.Errorf("answer %d has vectors, carries or a penalty and no version", i)
		}
	}
	return nil
}

// holds checks that the store holds exactly these vectors of a key.
func (s *subject) holds(key deltasync.Key, want ...regional.Vector) {
	s.Helper()
	s.same(fmt.Sprintf("key %d", key), s.load(item(key))[0].Vectors, want)
}

func (s *subject) same(what string, got, want []regional.Vector) {
	s.Helper()
	if err := differ(got, want); err != nil {
		s.wrong("%s: %v", what, err)
	}
}

// differ returns the first difference between vectors in any order.
func differ(got, want []regional.Vector) error {
	got, want = sorted(got), sorted(want)
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Source != w.Source || g.Replica != w.Replica {
			return fmt.Errorf("vector %d is of source %d, replica %v, want %d, %v", i, g.Source, g.Replica, w.Source, w.Replica)
		}
		for j := range min(len(g.Cells), len(w.Cells)) {
			if g.Cells[j] != w.Cells[j] {
				return fmt.Errorf("source %d, replica %v: cell %d is %v, want %v", g.Source, g.Replica, j, g.Cells[j], w.Cells[j])
			}
		}
		if len(g.Cells) != len(w.Cells) {
			return fmt.Errorf("source %d, replica %v: %d cells, want %d", g.Source, g.Replica, len(g.Cells), len(w.Cells))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d vectors, want %d", len(got), len(want))
	}
	return nil
}

func sorted(vs []regional.Vector) []regional.Vector {
	return slices.SortedFunc(slices.Values(vs), func(a, b regional.Vector) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), a.Replica.Compare(b.Replica))
	})
}

// fails checks that err is what the contract wants of errors.
func (s *subject) fails(what string, err error, also ...error) {
	s.Helper()
	for _, want := range append(also, regional.ErrStore) {
		if !errors.Is(err, want) {
			s.Errorf("%s: the error is %v, want one that wraps %q", what, err, want)
		}
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
