package deltasync

import "testing"

// An outbox has two frames under way, unless it is told otherwise: a third waits until
// one is answered or lost, however much there is to tell.
func TestTwoFramesInFlight(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	change := func(key Key) {
		for i := range Key(3) {
			mustPut(t, o, minute, 1, Delta{Key: key + i, Cells: cell(1, 1)})
		}
	}
	next := func() *Up { // each time with something new to tell
		change(Key(1 + 10*o.seq))
		return o.Next(head)
	}
	first, second := next(), next()
	if first == nil || second == nil || next() != nil || o.Beat(head) != nil || o.InFlight() != 2 {
		t.Fatalf("%d frames under way, want two and no more", o.InFlight())
	}
	o.Done(first.Seq)
	third := next()
	if third == nil || next() != nil {
		t.Fatalf("%d frames under way after an answer, want two", o.InFlight())
	}
	o.Lost(second.Seq)
	fourth := next()
	if fourth == nil || next() != nil {
		t.Fatalf("%d frames under way after a loss, want two", o.InFlight())
	}
}
