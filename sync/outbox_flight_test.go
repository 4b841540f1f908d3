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
	var flying []*Up
	next := func() *Up {
		change(Key(1 + 10*o.seq))
		u := o.Next(head)
		if u != nil {
			flying = append(flying, u)
		}
		return u
	}
	if next() == nil || next() == nil || next() != nil || o.Beat(head) != nil || o.InFlight() != 2 {
		t.Fatalf("%d frames under way, want two and no more", o.InFlight())
	}
	o.Done(flying[0].Seq)
	if next() == nil || next() != nil {
		t.Fatalf("%d frames under way after an answer, want two", o.InFlight())
	}
	o.Lost(flying[1].Seq)
	if next() == nil || next() != nil {
		t.Fatalf("%d frames under way after a loss, want two", o.InFlight())
	}
}
