package deltasync

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// What comes first goes before all that is urgent, into room that others leave,
// and nobody else hears of it.
func TestFirstGoesFirst(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxDeltas: 16, ReserveOneIn: 8, MaxInFlight: 1})
	put := func(key Key, flags Flags) bool {
		return o.Put(minute, 0, Delta{Key: key, Flags: flags, Cells: []crdt.Cell{{Slice: 5, Charges: 1}}})
	}
	for key := Key(1); key <= 14; key++ {
		if !put(key, FlagUrgent) {
			t.Fatalf("key %d of 14 found no room", key)
		}
	}
	switch {
	case put(15, FlagUrgent):
		t.Fatal("an urgent one took the room that is kept")
	case !o.Full() || o.Crammed():
		t.Fatalf("full: %v, crammed: %v; want the one and not the other", o.Full(), o.Crammed())
	case !put(20, FlagUrgent|FlagFirst) || !put(21, FlagFirst):
		t.Fatal("there is no room for what comes first")
	case !o.Crammed() || put(22, FlagFirst):
		t.Fatal("there is room for a third in that of two")
	case !put(9, FlagFirst):
		t.Fatal("one that waits already is refused")
	}
	up := o.Next(head)
	deltas := up.Sections[0].Deltas
	for i, want := range []Key{20, 21, 9, 1} {
		if deltas[i].Key != want {
			t.Errorf("delta %d is of key %d, want %d", i, deltas[i].Key, want)
		}
	}
	for _, d := range deltas {
		if d.Flags&FlagFirst != 0 {
			t.Errorf("the frame says that key %d came first", d.Key)
		}
	}
	o.Lost(up.Seq)
	if got := o.HeldCounts(); got != 16 {
		t.Errorf("%d deltas after the frame was lost, want 16", got)
	}
}
