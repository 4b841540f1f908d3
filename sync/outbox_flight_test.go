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

// For each patience that the oldest frame waits one more leaves, and no more than
// MostInFlight are under way however long that is.
func TestPatienceLetsOneMoreLeave(t *testing.T) {
	o := NewOutbox(OutboxConfig{Patience: 100})
	next := func(at int64) *Up { // each time with something new to tell
		mustPut(t, o, minute, 1, Delta{Key: Key(1 + o.seq), Cells: cell(1, 1)})
		h := head
		h.SentAt = at
		return o.Next(h)
	}
	oldest := next(1000)
	if oldest == nil || next(1050) == nil || next(1099) != nil {
		t.Fatalf("%d frames under way before the patience is over, want two", o.InFlight())
	}
	if next(1100) == nil || next(1199) != nil {
		t.Fatalf("%d frames under way after one patience, want three", o.InFlight())
	}
	o.Done(oldest.Seq)
	if next(1149) != nil || next(1150) == nil {
		t.Fatalf("%d frames under way once the oldest is answered, want the next to set the time", o.InFlight())
	}
	for next(100_000) != nil {
	}
	if o.InFlight() != MostInFlight {
		t.Fatalf("%d frames under way after a long time, want %d", o.InFlight(), MostInFlight)
	}
	if next(1) != nil {
		t.Fatal("a clock that was set back lets one more leave")
	}
}
