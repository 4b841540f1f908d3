package deltasync

import (
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// Where the short way reads a list, the long one reads the same, and finds nothing
// wrong; and it reads what nearly all lists are like.
func TestShortReadsWhatListDoes(t *testing.T) {
	r, short := newFrames(9), 0
	for range 200_000 {
		var c cellColumns
		n := 1 + r.IntN(4)
		fill := func(col *column) {
			col.set = true
			for range n + r.IntN(3) - r.IntN(20)/19 {
				col.b = append(col.b, []byte{0, 1, 2, 2, 2, 3, 4, 0x7e, 0x7f, 0x80}[r.IntN(10)])
			}
		}
		fill(&c.charges)
		if r.IntN(4) > 0 {
			fill(&c.slices)
		}
		if r.IntN(10) == 0 {
			fill(&c.refunds)
		}
		prev := []crdt.Slice{0, 1_193_333_333, maxSlice - 2, maxSlice, -maxSlice, -maxSlice + 1}[r.IntN(6)]
		got, want, long := make([]crdt.Cell, n), make([]crdt.Cell, n), c
		if !c.short(got, prev) {
			if c.charges.at+c.slices.at+c.refunds.at > 0 {
				t.Fatalf("%+v: a part was read", c)
			}
			continue
		}
		short++
		if err := long.list(want, prev); err != nil || !slices.Equal(got, want) || long.charges.at != c.charges.at || long.slices.at != c.slices.at {
			t.Fatalf("after %d: short reads %v of %+v, list %v of %+v: %v", prev, got, c, want, long, err)
		}
	}
	if short < 20_000 {
		t.Errorf("%d lists are read the short way, want more", short)
	}
}

// The numbers of a column are the bytes that end one, however many there are.
func TestColumnLen(t *testing.T) {
	r := newFrames(10)
	for range 2000 {
		var c column
		want := 0
		for range r.IntN(40) {
			b := byte(r.Uint32())
			if c.b = append(c.b, b); b < 0x80 {
				want++
			}
		}
		if got := c.len(); got != want {
			t.Fatalf("len of %x = %d, want %d", c.b, got, want)
		}
	}
}
