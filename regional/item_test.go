package regional

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

func TestItemLive(t *testing.T) {
	for _, tt := range []struct {
		name        string
		width       time.Duration
		slices      int
		now         time.Duration // since 1970
		first, last crdt.Slice
	}{
		{"minute of 40: kept for 63 s after its end", 1500 * time.Millisecond, 40, 630 * time.Second, 378, 421},
		{"one millisecond earlier the slice before still lives", 1500 * time.Millisecond, 40, 630*time.Second - time.Millisecond, 377, 421},
		{"short windows are kept for a second more", 25 * time.Millisecond, 40, 10 * time.Second, 320, 480},
		{"fixed hour", time.Hour, 1, 100 * time.Hour, 97, 100},
		{"calendar day: slices of 1 ms", time.Millisecond, 86400000, 10 * 24 * time.Hour, 777599000, 864002000},
		{"before 1970", time.Second, 1, -2500 * time.Millisecond, -6, -1},
	} {
		i := Item{Width: tt.width, Slices: tt.slices}
		first, last := i.Live(time.Unix(0, int64(tt.now)))
		if first != tt.first || last != tt.last {
			t.Errorf("%s: Live = %d, %d, want %d, %d", tt.name, first, last, tt.first, tt.last)
		}
		end := time.Duration(first+1) * tt.width
		if end+i.Kept() <= tt.now || end-tt.width+i.Kept() > tt.now {
			t.Errorf("%s: the first live slice ends at %v, %v before now, and is kept for %v", tt.name, end, tt.now-end, i.Kept())
		}
	}
}

func TestItemCheck(t *testing.T) {
	ok := func() *Item {
		return &Item{Width: time.Second, Slices: 60, Vectors: []Vector{
			{Source: FromEdge, Cells: []crdt.Cell{{Slice: -1, Charges: 1}, {Slice: 4, Refunds: 1}}},
			{Source: FromRegion},
		}}
	}
	if err := ok().Check(); err != nil {
		t.Fatalf("Check of a good item: %v", err)
	}
	for _, tt := range []struct {
		name  string
		spoil func(*Item)
		want  string
	}{
		{"no width", func(i *Item) { i.Width = 0 }, "milliseconds"},
		{"negative width", func(i *Item) { i.Width = -time.Second }, "milliseconds"},
		{"broken width", func(i *Item) { i.Width = time.Millisecond + 1 }, "milliseconds"},
		{"no slices", func(i *Item) { i.Slices = 0 }, "window"},
		{"window too long", func(i *Item) { i.Slices = math.MaxInt }, "window"},
		{"slice too long", func(i *Item) { i.Width, i.Slices = math.MaxInt64/time.Millisecond*time.Millisecond, 1 }, "window"},
		{"unknown source", func(i *Item) { i.Vectors[1].Source = 5 }, "vector 1: unknown source 5"},
		{"empty cell", func(i *Item) { i.Vectors[0].Cells[1].Refunds = 0 }, "slice 4 has no count"},
		{"slice twice", func(i *Item) { i.Vectors[0].Cells[1].Slice = -1 }, "does not come after"},
	} {
		i := ok()
		tt.spoil(i)
		if err := i.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check = %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}
