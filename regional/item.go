package regional

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Ahead is how far after the store's clock a slice may begin and still be
// stored: twice what aggregators accept, whose clocks are not quite alike. Beyond it a broken clock would fill the store with counts that take
// as long to expire as it is wrong.
const Ahead = 2 * time.Second

// maxKept bounds how long an item's counts are kept, in nanoseconds (36 years),
// so that sums with a time of day stay inside an int64.
const maxKept = 1 << 60

// Kept is how long after the end of its slice a count is kept: a window and
// max(1 s, two slices).
func (i *Item) Kept() time.Duration {
	return time.Duration(i.Slices)*i.Width + max(time.Second, 2*i.Width)
}

// Live is the first and the last slice whose counts a Store keeps at now.
func (i *Item) Live(now time.Time) (first, last crdt.Slice) {
	t := now.UnixNano()
	return floorDiv(t-int64(i.Kept()), i.Width), floorDiv(t+int64(Ahead), i.Width)
}

// RestKept is how long a Store keeps what rests of a bucket, after its boundary:
// a day, as edges do, and an hour in which it need not be written again.
const RestKept = restFor + restAgain

// Rests is the first and the last boundary of what rests that a Store keeps at
// now.
func (i *Item) Rests(now time.Time) (first, last crdt.Slice) {
	t := now.UnixNano()
	return max(0, floorDiv(t-int64(RestKept), i.Width)), floorDiv(t+int64(Ahead), i.Width)
}

// Boundary is the last slice, not after s, at whose beginning carries are taken
// for the store: the slices are the same for all aggregators and two in a
// window, so that a store holds few for a key.
func (i *Item) Boundary(s crdt.Slice) crdt.Slice {
	every := crdt.Slice(max(1, i.Slices/2))
	return s - ((s%every)+every)%every
}

// Check says what is wrong with an item that is to be merged or loaded; it is
// the caller's mistake. Stores call it before they touch anything.
func (i *Item) Check() error {
	if i.Width <= 0 || i.Width%time.Millisecond != 0 {
		return fmt.Errorf("key %016x: slice width %v is not a whole number of milliseconds above 0", uint64(i.Key), i.Width)
	}
	if i.Width > maxKept/4 || i.Slices <= 0 || int64(i.Slices) > maxKept/2/int64(i.Width) {
		return fmt.Errorf("key %016x: %d slices of %v is not a window of 1 ms to 18 years", uint64(i.Key), i.Slices, i.Width)
	}
	if n := max(len(i.Note), len(i.Former)); n > MaxNote {
		return fmt.Errorf("key %016x: a note of %d bytes, want at most %d", uint64(i.Key), n, MaxNote)
	}
	for n := range i.Vectors {
		v := &i.Vectors[n]
		if v.Source < FromEdge || v.Source > FromHomes {
			return fmt.Errorf("key %016x, vector %d: unknown source %d", uint64(i.Key), n, v.Source)
		}
		for m, c := range v.Cells {
			if c.Zero() {
				return fmt.Errorf("key %016x, vector %d: slice %d has no count", uint64(i.Key), n, c.Slice)
			}
			if m > 0 && v.Cells[m-1].Slice >= c.Slice {
				return fmt.Errorf("key %016x, vector %d: slice %d does not come after %d", uint64(i.Key), n, c.Slice, v.Cells[m-1].Slice)
			}
		}
	}
	for n, c := range i.Carries {
		if c.Level == 0 {
			return fmt.Errorf("key %016x, carry %d: at slice %d has no level", uint64(i.Key), n, c.Boundary)
		}
	}
	return nil
}

func floorDiv(t int64, width time.Duration) crdt.Slice {
	q := t / int64(width)
	if t%int64(width) < 0 {
		q--
	}
	return crdt.Slice(q)
}
