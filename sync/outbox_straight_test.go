package deltasync

import (
	"bytes"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// What goes straight into a frame makes the frame that it would have waited for.
func TestStraightIsAsIfItHadWaited(t *testing.T) {
	ranked := []Flags{FlagFirst | FlagUrgent, FlagUrgent, FlagRegular, FlagRegular | FlagRefresh, 0}
	r := newFrames(11)
	for run := range 300 {
		straight, waits := NewOutbox(OutboxConfig{}), NewOutbox(OutboxConfig{})
		n := r.IntN(60)
		for i := range n {
			shape := minute
			if r.IntN(3) == 0 {
				shape = bucket
			}
			d := Delta{
				Key: Key(i + 1), Flags: ranked[i*len(ranked)/n] | FlagTouch, Heard: crdt.Slice(r.IntN(3)),
				Cells: r.cells(crdt.Slice(r.IntN(4))), Until: int64(r.IntN(2)), Carry: crdt.Carry{Boundary: 5, Level: r.Uint64N(2)},
			}
			if r.IntN(3) == 0 {
				d.Demand = &Demand{Fast: 1, Mid: float32(r.IntN(2)), Window: r.Float32()}
			}
			if got, want := straight.Tell(&shape, uint32(r.IntN(2)), &d), true; got != want {
				t.Fatalf("run %d: Tell(%+v) = %v, want %v", run, d, got, want)
			}
			straight.HearAll()
			d.Heard = 0
			mustPut(t, waits, shape, straight.last.life, d)
		}
		for _, o := range []*Outbox{straight, waits} {
			if o.Pending() != n || o.Held() != n || o.First() != waits.First() || o.Urgent() != waits.Urgent() || o.HeldCounts() != waits.HeldCounts() {
				t.Fatalf("run %d: %d wait of %d held, first %v, urgent %v, with counts %d", run, o.Pending(), o.Held(), o.First(), o.Urgent(), o.HeldCounts())
			}
		}
		if got, want := straight.taken(), waits.taken(); got < n || got > want+want/8 {
			t.Fatalf("run %d: %d places are taken, want about %d", run, got, want)
		}
		if straight.entries.taken > 0 {
			t.Fatalf("run %d: %d deltas wait in a queue, want none", run, straight.entries.taken)
		}
		got, want := straight.Next(head), waits.Next(head)
		if (got == nil) != (n == 0) || got != nil && !bytes.Equal(encode(t, got), encode(t, want)) {
			t.Fatalf("run %d: Next = %+v, want %+v", run, got, want)
		}
		if straight.taken() != waits.taken() || straight.Pending() != 0 {
			t.Fatalf("run %d: under way it takes %d places, want %d, and %d wait", run, straight.taken(), waits.taken(), straight.Pending())
		}
	}
}

// What is told of a key while less waits to be told of it goes with that, and not
// before: no later frame tells less.
func TestStraightNeverOvertakesItself(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxFrame: minFrame})
	key := Key(0)
	for o.entries.taken == 0 { // the last of them finds no room in the frame
		key++
		o.Tell(&minute, 1, &Delta{Key: key, Flags: FlagUrgent, Cells: cell(5, 1)})
	}
	if !o.Tell(&minute, 1, &Delta{Key: key, Flags: FlagRegular, Cells: cell(5, 2)}) {
		t.Fatal("no room")
	}
	told := uint64(0)
	for o.Pending() > 0 {
		u := o.Next(head)
		u.each(func(_ *Section, d *Delta) {
			if d.Key != key {
				return
			}
			if n := d.Cells[0].Charges; n < told {
				t.Errorf("%d charges are told after %d", n, told)
			}
			told = d.Cells[0].Charges
		})
		o.Done(u.Seq)
	}
	if told != 2 {
		t.Errorf("%d charges are told at last, want 2", told)
	}
}

// Each rank has its part of a frame, also of what goes straight into it, and no
// frame is too large.
func TestStraightLeavesOthersTheirPart(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxFrame: minFrame, MaxInFlight: 1})
	key := Key(0)
	for _, flags := range []Flags{FlagFirst, FlagUrgent, FlagRegular, 0} {
		for range 200 {
			key++
			if !o.Tell(&minute, 1, &Delta{Key: key, Flags: flags, Cells: cell(5, 1)}) {
				t.Fatalf("key %d found no room", key)
			}
		}
	}
	var order [4][]Key
	for first := true; o.Pending() > 0; first = false {
		u := o.Next(head)
		if n := len(encode(t, u)); n > minFrame {
			t.Fatalf("a frame of %d bytes, want %d at most", n, minFrame)
		}
		for _, k := range keysOf(u) {
			rank := int(k-1) / 200
			order[rank] = append(order[rank], k)
		}
		for rank := range order {
			if first && len(order[rank]) < 4 {
				t.Errorf("of rank %d the first frame has %v, want more", rank, order[rank])
			}
		}
		o.Done(u.Seq)
	}
	for rank, keys := range order {
		if len(keys) != 200 || !slices.IsSorted(keys) {
			t.Errorf("of rank %d the frames have %v, want all in their order", rank, keys)
		}
	}
}

// An outbox takes no more of what goes straight than of what waits, and who comes
// while others wait is behind them.
func TestStraightIsBounded(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxDeltas: 16, ReserveOneIn: 8})
	taken := func(flags Flags) (n int) {
		for key := range Key(40) {
			if o.Tell(&minute, 1, &Delta{Key: key + Key(flags)<<10 + 1, Flags: flags, Cells: cell(5, 1)}) {
				n++
			}
		}
		return n
	}
	if rest, first := taken(FlagUrgent), taken(FlagFirst); rest != 14 || first != 2 {
		t.Errorf("%d and %d that are first are taken, want 14 and 2", rest, first)
	}

	o = NewOutbox(OutboxConfig{MaxFrame: minFrame})
	mustPut(t, o, minute, 1, Delta{Key: 99, Flags: FlagUrgent, Cells: cell(5, 1)})
	taken(0)
	if got := keysOf(o.Next(head))[0]; got != 99 {
		t.Errorf("key %d goes first, want the urgent one that waited", got)
	}

	for bits := range 60 { // whatever room is left by one that does not fit
		o = NewOutbox(OutboxConfig{MaxFrame: minFrame + bits%16})
		large := Delta{Key: 1, Cells: cell(5, 1<<bits)}
		for ; o.entries.taken == 0; large.Key++ {
			o.Tell(&minute, 1, &large)
		}
		if o.Tell(&minute, 1, &Delta{Key: large.Key, Cells: cell(5, 1)}); o.entries.taken != 2 {
			t.Errorf("a delta went before one of %d bits that waits", bits)
		}
	}

	o = NewOutbox(OutboxConfig{})
	taken(0)
	mustPut(t, o, minute, 1, Delta{Key: 1, Cells: cell(5, 7)})
	if o.Pending() != 40 {
		t.Errorf("%d wait, want 40 as one is told again", o.Pending())
	}

	long := make([]crdt.Cell, 4000) // many windows
	for i := range long {
		long[i] = crdt.Cell{Slice: crdt.Slice(i), Charges: 1}
	}
	o = NewOutbox(OutboxConfig{})
	o.Tell(&minute, 1, &Delta{Key: 1, Cells: long})
	if got := len(o.Next(head).Sections[0].Deltas[0].Cells); got != o.keep(minute) {
		t.Errorf("%d slices are told, want the last %d", got, o.keep(minute))
	}
	day := minute
	day.Slices = maxSlices
	mustPut(t, o, day, 1, Delta{Key: 2, Cells: long})
	if o.Next(head); cap(o.cells) > mostSpare {
		t.Errorf("room for %d cells is kept, want %d at most", cap(o.cells), mostSpare)
	}
}

// What was to go straight and did not waits with its rank, and what is told of it
// then is joined to it. A frame that is lost is joined to it too.
func TestHeldIsQueued(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxInFlight: 1})
	tell := func(key Key, flags Flags, charges uint64) {
		t.Helper()
		if !o.Tell(&minute, 1, &Delta{Key: key, Flags: flags, Cells: cell(5, charges)}) {
			t.Fatalf("key %d found no room", key)
		}
	}
	tell(1, 0, 1)
	one := o.Next(head)
	tell(2, 0, 1)
	if o.begun != nil {
		t.Error("a frame is begun that cannot leave yet")
	}
	o.Done(one.Seq)
	two := o.Next(head)
	o.Done(two.Seq)

	o.cfg.MaxInFlight = 2
	tell(3, 0, 1)
	three := o.Next(head)
	tell(3, 0, 2)
	tell(4, FlagRegular, 1)
	tell(5, FlagFirst, 1)
	o.Lost(three.Seq) // while the next is begun
	if o.Pending() != 3 || o.begun != nil || o.entries.taken != 3 {
		t.Errorf("%d wait, want 3 and none of them in a frame", o.Pending())
	}
	tell(4, 0, 2)
	four := o.Next(head)
	if got, want := keysOf(four), []Key{5, 4, 3}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	for _, d := range four.Sections[0].Deltas[1:] {
		if d.Cells[0].Charges != 2 {
			t.Errorf("told %+v, want the newest count", d)
		}
	}
	if o.Done(four.Seq); o.taken() != 0 || len(o.sections) != 0 {
		t.Errorf("empty, it has %d places taken and %d sections", o.taken(), len(o.sections))
	}
}
