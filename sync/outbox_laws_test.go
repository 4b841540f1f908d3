package deltasync

import (
	"reflect"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/alone"
)

// TestOutboxLaws drives an outbox at random and checks that every count that
// it took was acknowledged, or is held at no smaller value; that it stays
// within its bounds; and that it does the same again, given the same.
func TestOutboxLaws(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(15) {
		one, two := outboxRun(t, seed), outboxRun(t, seed)
		if !reflect.DeepEqual(one, two) {
			t.Fatalf("seed %d: two runs sent different frames", seed)
		}
	}
}

type counterID struct {
	generation uint64
	life       uint32
	key        Key
}

type counters map[counterID]*crdt.Vector

func (c counters) join(s Section) {
	for _, d := range s.Deltas {
		id := counterID{s.Shape.Generation, s.Life, d.Key}
		if c[id] == nil {
			c[id] = &crdt.Vector{}
		}
		for _, cell := range d.Cells {
			c[id].Join(cell)
		}
	}
}

func outboxRun(t *testing.T, seed uint64) (sent [][]byte) {
	const maxDeltas, maxInFlight = 200, 3
	r := newFrames(seed)
	o := NewOutbox(OutboxConfig{MaxDeltas: maxDeltas, MaxInFlight: maxInFlight, MaxFrame: minFrame})
	taken, acked := counters{}, counters{}
	var flying []uint64
	done := func(seq uint64) {
		u := o.Done(seq)
		for _, s := range u.Sections {
			acked.join(s)
		}
		if r.IntN(4) > 0 {
			o.Reuse(u)
		}
	}
	step := func(n int) {
		switch {
		case n < 60:
			s := Section{Shape: minute, Life: r.Uint32N(2)}
			s.Shape.Generation = r.Uint64N(3)
			d := Delta{Key: Key(1 + r.IntN(100)), Flags: Flags(r.IntN(8)), Cells: r.cells(crdt.Slice(r.IntN(4)))}
			put := o.Put
			if r.IntN(2) > 0 {
				put = func(shape Shape, life uint32, d Delta) bool { return o.Tell(&shape, life, &d) }
			}
			if put(s.Shape, s.Life, d) {
				s.Deltas = []Delta{d}
				taken.join(s)
			}
		case n < 62:
			o.Hold()
		case n < 64:
			o.HearAll()
		case n < 80:
			if u := o.Next(head); u != nil {
				sent = append(sent, encode(t, u))
				flying = append(flying, u.Seq)
			}
		case len(flying) > 0:
			i := r.IntN(len(flying))
			seq := flying[i]
			flying = slices.Delete(flying, i, i+1)
			if n < 90 {
				o.Lost(seq)
				break
			}
			done(seq)
		}
	}
	for range 2000 {
		step(r.IntN(100))
		if n := o.Pending() + o.inFlight; n > maxDeltas+maxInFlight || o.InFlight() > maxInFlight || o.InFlight() != len(flying) {
			t.Fatalf("seed %d: %d deltas and %d frames held, want at most %d and %d", seed, n, o.InFlight(), maxDeltas, maxInFlight)
		}
	}
	held := counters{}
	for id, v := range acked {
		held[id] = &crdt.Vector{}
		held[id].Merge(v)
	}
	frames := o.flights
	if o.begun != nil {
		frames = append(frames, &flight{Up: o.begun.frame})
	}
	for _, u := range frames {
		for _, s := range u.Sections {
			held.join(s)
		}
	}
	for _, p := range o.entries.places {
		e := p.entry
		if e == nil {
			continue
		}
		held.join(Section{Shape: e.section.shape, Life: e.section.life, Deltas: []Delta{{Key: e.key, Cells: e.cells.appendTo(nil)}}})
	}
	for id, v := range taken {
		for _, c := range v.Cells(nil) {
			if got := held[id].Get(c.Slice); got != c {
				t.Fatalf("seed %d: counter %v: took %v, holds %v", seed, id, c, got)
			}
		}
	}
	// Once nothing is lost any more, all of it arrives.
	for o.Pending()+o.InFlight() > 0 {
		if u := o.Next(head); u != nil {
			flying = append(flying, u.Seq)
		}
		done(flying[0])
		flying = flying[1:]
	}
	if o.taken() != 0 || len(o.sections) != 0 {
		t.Fatalf("seed %d: empty, it has %d places taken and %d sections", seed, o.taken(), len(o.sections))
	}
	for id, v := range taken {
		for _, c := range v.Cells(nil) {
			if got := acked[id].Get(c.Slice); got != c {
				t.Fatalf("seed %d: counter %v: took %v, delivered %v", seed, id, c, got)
			}
		}
	}
	return sent
}

func BenchmarkOutbox(b *testing.B) {
	const keys = 10_000
	o := NewOutbox(OutboxConfig{})
	b.ReportAllocs()
	for b.Loop() {
		for k := range Key(keys) {
			o.Put(minute, 1, Delta{Key: k + 1, Cells: cell(crdt.Slice(k%2), uint64(k)+1)})
		}
		for {
			u := o.Next(head)
			if u == nil {
				break
			}
			o.Done(u.Seq)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
}
