package redisstore

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
)

func TestVectorBytes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cells []crdt.Cell
		want  string
	}{
		{"small", []crdt.Cell{{Slice: 1000, Charges: 1}, {Slice: 1255, Charges: 255}}, "\x11\x10\x00\x01\xff\xff"},
		{"wide offset", []crdt.Cell{{Slice: 1256, Charges: 1}}, "\x12\x10\x01\x00\x01"},
		{"wide charges", []crdt.Cell{{Slice: 1000, Charges: 256}, {Slice: 1001, Charges: 1}}, "\x11\x20\x00\x01\x00\x01\x00\x01"},
		{"refunds", []crdt.Cell{{Slice: 1000, Charges: 1}, {Slice: 1001, Charges: 2, Refunds: 0x10203}}, "\x11\x13\x00\x01\x00\x00\x00\x01\x02\x01\x02\x03"},
		{"refunds only", []crdt.Cell{{Slice: 1000, Refunds: 7}}, "\x11\x11\x00\x00\x07"},
		{"largest", []crdt.Cell{{Slice: 1000, Charges: math.MaxUint64, Refunds: math.MaxUint64}}, "\x11\x88\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
	} {
		got := string(appendVector(nil, 1000, tt.cells))
		if got != tt.want {
			t.Errorf("%s: %x, want %x", tt.name, got, tt.want)
		}
		back, err := appendCells(nil, got, 1000, 1<<20)
		if err != nil || !slices.Equal(back, tt.cells) {
			t.Errorf("%s: read back as %v, %v, want %v", tt.name, back, err, tt.cells)
		}
	}
}

func TestFieldNames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		want := crdt.Replica{Node: r.Uint64(), Incarnation: r.Uint64()}
		for _, source := range []regional.Source{regional.FromEdge, regional.FromRegion, regional.FromPeers, regional.FromHomes} {
			gotSource, got, ok := replicaOf(string(appendField(nil, source, want)))
			if !ok || got != want || gotSource != source {
				t.Fatalf("field of %v, %v read as %v, %v, %v", source, want, gotSource, got, ok)
			}
		}
	}
	for _, name := range []string{"", fieldVersion, "e", "x0123456789abcdef", "e0123456789abcde", "e0123456789abcdef0"} {
		if _, _, ok := replicaOf(name); ok {
			t.Errorf("the field %q was taken for a replica's", name)
		}
	}
}

// A key's groups must be few for every shape, or each merge reads many hashes.
func TestGroupsAreFew(t *testing.T) {
	for _, it := range []regional.Item{
		{Width: 25e6, Slices: 1}, {Width: 25e6, Slices: 40}, {Width: 1e9, Slices: 1}, {Width: 1e9, Slices: 2},
		{Width: 15e8, Slices: 40}, {Width: 60e9, Slices: 1}, {Width: 3600e9, Slices: 24}, {Width: 1e6, Slices: 86_400_000},
	} {
		size := groupSize(&it)
		span := int64(it.Kept()+regional.Ahead)/int64(it.Width) + 2
		if groups := (span-2)/size + 2; groups > 4 {
			t.Errorf("%d slices of %v: up to %d groups of %d are alive, want at most 4", it.Slices, it.Width, groups, size)
		}
	}
}

func FuzzAppendCells(f *testing.F) {
	f.Add("\x11\x10\x00\x01\xff\xff", int64(1000), int64(300))
	f.Add("\x12\x32\x00\x01\x00\x01\x02\x00\x01", int64(-5), int64(40))
	f.Add("\x16\x88", int64(0), int64(0))
	f.Fuzz(func(t *testing.T, src string, first, size int64) {
		first, size = first%(1<<60), size%(1<<48)
		cells, err := appendCells(nil, src, crdt.Slice(first), size)
		if err != nil {
			if len(cells) > 0 {
				t.Fatalf("an error and %d cells", len(cells))
			}
			return
		}
		it := regional.Item{Width: 1e6, Slices: 1, Vectors: []regional.Vector{{Source: regional.FromEdge, Cells: cells}}}
		if err := it.Check(); err != nil {
			t.Fatalf("read %x as a malformed vector: %v", src, err)
		}
		again, err := appendCells(nil, string(appendVector(nil, crdt.Slice(first), cells)), crdt.Slice(first), size)
		if err != nil || !slices.Equal(again, cells) {
			t.Fatalf("%x read as %v, and written again as %v, %v", src, cells, again, err)
		}
	})
}
