package deltasync

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/alone"
)

// A Reader reads what UnmarshalBinary does, whatever it read before: also replies
// that are larger than what it keeps, and after one that cannot be read.
func TestReaderReadsWhatUnmarshalDoes(t *testing.T) {
	alone.Mark(t)
	r, reader := newFrames(3), new(Reader)
	for i := range 3000 {
		down := r.down()
		if i%100 == 0 {
			down = busyDown(mostTotals/2 + i)
			down.Cut()
		}
		data := encode(t, down)
		if i%10 == 3 {
			cut := data[:r.IntN(len(data))]
			var want Down
			if _, err := reader.Down(cut); (err == nil) != (want.UnmarshalBinary(cut) == nil) {
				t.Fatalf("frame %d, cut: %v", i, err)
			}
		}
		var want Down
		if err := want.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		got, err := reader.Down(data)
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Fatalf("frame %d: Down = %+v, %v, want %+v", i, got, err, &want)
		}
		if cap(reader.totals) > mostTotals || cap(reader.cells) > mostCells {
			t.Fatalf("frame %d: it keeps room for %d totals and %d cells", i, cap(reader.totals), cap(reader.cells))
		}
	}
}

// Once it has read a reply, a Reader has room for the next.
func TestReaderKeepsItsRoom(t *testing.T) {
	data, reader := encode(t, busyDown(300)), new(Reader)
	read := func() {
		if _, err := reader.Down(data); err != nil {
			t.Fatal(err)
		}
	}
	read()
	read()
	// What is left is the region's name, and a word for each of the functions that it
	// is read by.
	if n := testing.AllocsPerRun(20, read); n > 12 {
		t.Errorf("%v allocations a reply, want a few", n)
	}
}

// A frame whose memory is used again makes room for the next, and for no frame
// that is under way.
func TestReuse(t *testing.T) {
	alone.Mark(t)
	const keys = 500
	o := NewOutbox(OutboxConfig{MaxInFlight: 3})
	next := func(charges uint64) *Up {
		cells := []crdt.Cell{{Slice: 5, Charges: charges}, {Slice: 6, Charges: charges}}
		for k := range Key(keys) {
			mustPut(t, o, minute, 1, Delta{Key: k + 1, Cells: cells})
		}
		return o.Next(head)
	}
	one, two := next(1), next(2)
	was := encode(t, two)
	o.Reuse(o.Done(one.Seq))
	three := next(3)
	if got := encode(t, two); !reflect.DeepEqual(got, was) {
		t.Error("a frame under way changed")
	}
	if deltas(three) != keys || three.Sections[0].Deltas[keys-1].Cells[1].Charges != 3 {
		t.Errorf("the next frame is %+v", three)
	}
	if made := testing.AllocsPerRun(20, func() {
		for len(o.flights) > 0 {
			o.Reuse(o.Done(o.flights[0].Seq))
		}
		next(4)
	}); made > 12 {
		t.Errorf("%v allocations a frame, want a few", made)
	}
	for _, d := range o.spare.deltas[:cap(o.spare.deltas)] {
		if d.Cells != nil {
			t.Fatal("spare deltas keep the cells of others")
		}
	}
	huge := &Up{Sections: []Section{{Deltas: make([]Delta, mostSpare+1)}}, cells: make([]crdt.Cell, mostSpare+1)}
	o.spare = spareRoom{}
	if o.Reuse(huge); o.spare.deltas != nil || o.spare.cells != nil {
		t.Error("the memory of a large frame is kept")
	}
	for _, places := range []int{16, 1 << 12, 1 << 16} {
		small := NewOutbox(OutboxConfig{MaxDeltas: places})
		for n := range 2 * mostSpare {
			small.Reuse(&Up{Sections: []Section{{Deltas: make([]Delta, n)}}, cells: make([]crdt.Cell, n)})
		}
		took := cap(small.spare.deltas)*int(unsafe.Sizeof(Delta{})) + cap(small.spare.cells)*int(unsafe.Sizeof(crdt.Cell{}))
		if most := max(places*DeltaBytes/39, 8<<10); took > most || took < most/5 {
			t.Errorf("an outbox of %d places keeps %d bytes, want %d at most", places, took, most)
		}
	}
}
