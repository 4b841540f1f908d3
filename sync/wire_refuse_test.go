package deltasync

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func clearField(m pb, names ...protoreflect.Name) {
	for _, name := range names {
		m.Clear(m.field(name))
	}
}

func (m pb) at(name protoreflect.Name, i int) pb {
	return pb{m.Get(m.field(name)).List().Get(i).Message()}
}

// TestRefused: each rule of frame.proto that a frame breaks is refused, with
// the name of the field, and leaves the receiver's struct alone.
func TestRefused(t *testing.T) {
	section := func(m pb) pb { return m.at("sections", 0) }
	cells := func(m pb) pb { return section(m).child("cells") }
	for _, c := range []struct {
		name  string
		frame protoreflect.Name
		spoil func(m pb)
		want  string
	}{
		{"no version", "Up", func(m pb) { clearField(m, "version") }, "version: missing"},
		{"no kind", "Up", func(m pb) { clearField(m, "kind") }, "kind: 0 is unknown"},
		{"unknown kind", "Up", func(m pb) { m.set("kind", 3) }, "kind: 3"},
		{"no lanes", "Up", func(m pb) { clearField(m, "lanes") }, "lanes: 0"},
		{"too many lanes", "Up", func(m pb) { m.set("lanes", uint32(65)) }, "lanes: 65"},
		{"lane not below lanes", "Up", func(m pb) { m.set("lane", uint32(8)) }, "lane: 8"},
		{"huge lane", "Up", func(m pb) { m.set("lane", uint32(1<<31)) }, "lane: 2147483648"},
		{"huge incarnation", "Up", func(m pb) { m.set("incarnation", uint64(1)<<44) }, "incarnation: "},
		{"region no token", "Up", func(m pb) { m.set("region", "EU") }, `region: name "EU"`},
		{"long pop", "Up", func(m pb) { m.set("pop", strings.Repeat("a", 33)) }, "pop: 33 bytes"},
		{"name with a dot", "Up", func(m pb) { m.set("name", "a.b") }, "name: "},
		{"no shape", "Up", func(m pb) { clearField(section(m), "shape") }, "sections[0].shape.width: 0s"},
		{"narrow slices", "Up", func(m pb) { section(m).child("shape").set("width", uint64(999_999)) }, "sections[0].shape.width: "},
		{"wide slices", "Up", func(m pb) { section(m).child("shape").set("width", uint64(367*24*time.Hour)) }, "sections[0].shape.width: "},
		{"negative width", "Up", func(m pb) { section(m).child("shape").set("width", uint64(1)<<63) }, "sections[0].shape.width: "},
		{"wide window", "Up", func(m pb) { section(m).child("shape").set("width", uint64(10*24*time.Hour)) }, "sections[0].shape.width: "},
		{"no slices", "Up", func(m pb) { clearField(section(m).child("shape"), "slices") }, "sections[0].shape.slices: 0"},
		{"many slices", "Up", func(m pb) { section(m).child("shape").set("slices", uint32(1025)) }, "sections[0].shape.slices: 1025"},
		{"large life", "Up", func(m pb) { section(m).set("life", uint32(1)<<31) }, "sections[0].life: "},
		{"absurd base", "Up", func(m pb) { section(m).set("base", int64(1)<<53+1) }, "sections[0].base: "},
		{"key of zero", "Up", func(m pb) { setColumnAt(section(m), "keys", 1, uint64(0)) }, "sections[0].keys: 0"},
		{"short flags", "Up", func(m pb) { shorten(section(m), "flags") }, "sections[0].flags: 2 of them for 3 keys"},
		{"short counts", "Up", func(m pb) { shorten(cells(m), "counts") }, "sections[0].cells.counts: 2 lists of cells for 3 keys"},
		{"no counts", "Up", func(m pb) {
			clearField(section(m), "flags")
			shorten(section(m), "keys")
			clearField(cells(m), "counts")
		}, "sections[0].cells.counts: 3 lists"},
		{"short slices", "Up", func(m pb) { shorten(cells(m), "slices") }, "sections[0].cells.slices: 2 of them for 3 charges"},
		{"short charges", "Up", func(m pb) { shorten(cells(m), "charges") }, "sections[0].cells.slices: 3 of them for 2 charges"},
		{"no charges", "Up", func(m pb) { clearField(cells(m), "charges") }, "sections[0].cells.slices: 3 of them for 0 charges"},
		{"short refunds", "Up", func(m pb) { shorten(cells(m), "refunds") }, "sections[0].cells.refunds: 2 of them for 3 charges"},
		{"counts above the cells", "Up", func(m pb) { setColumnAt(cells(m), "counts", 1, uint32(1)) }, "sections[0].cells.counts: more cells than the 3 charges"},
		{"counts below the cells", "Up", func(m pb) { setColumnAt(cells(m), "counts", 0, uint32(1)) }, "sections[0].cells.counts: fewer cells than the 3 charges"},
		{"huge count", "Up", func(m pb) { setColumnAt(cells(m), "counts", 0, uint32(1<<32-1)) }, "sections[0].cells.counts: 4294967295 cells"},
		{"slices repeat", "Up", func(m pb) { setColumnAt(cells(m), "slices", 1, int64(0)) }, "sections[0].cells.slices: 1193333333 after 1193333333"},
		{"slices fall", "Up", func(m pb) { setColumnAt(cells(m), "slices", 1, int64(-1)) }, "sections[0].cells.slices: "},
		{"slice out of range", "Up", func(m pb) { setColumnAt(cells(m), "slices", 0, int64(1)<<53) }, "sections[0].cells.slices: "},
		{"slice wraps", "Up", func(m pb) { setColumnAt(cells(m), "slices", 1, int64(-1)<<63) }, "sections[0].cells.slices: "},
		{"cell without counts", "Up", func(m pb) { setColumnAt(cells(m), "charges", 0, uint64(0)) }, "sections[0].cells.charges: "},
		{"refill without a time", "Up", func(m pb) { clearField(m.at("sections", 2).child("shape"), "refill_per") }, "sections[2].shape.refill_per: 0s for a refill of 5"},
		{"time without a refill", "Up", func(m pb) { clearField(m.at("sections", 2).child("shape"), "refill") }, "sections[2].shape.refill_per: 1s for a refill of 0"},
		{"huge refill", "Up", func(m pb) { m.at("sections", 2).child("shape").set("refill", uint64(1)<<53+1) }, "sections[2].shape.refill: "},
		{"slow refill", "Up", func(m pb) { m.at("sections", 2).child("shape").set("refill_per", uint64(367*24*time.Hour)) }, "sections[2].shape.refill_per: "},
		{"huge floor", "Up", func(m pb) { m.at("sections", 2).child("shape").set("floor", uint64(1)<<53+1) }, "sections[2].shape.floor: "},
		{"floor of a window", "Up", func(m pb) { section(m).child("shape").set("floor", uint64(1)) }, "sections[0].shape.floor: 1"},
		{"short carry slices", "Up", func(m pb) { shorten(m.at("sections", 2), "carry_slices") }, "sections[2].carry_slices: 2 of them for 3 keys"},
		{"short carry levels", "Up", func(m pb) { shorten(m.at("sections", 2), "carry_levels") }, "sections[2].carry_levels: 2 of them for 3 keys"},
		{"no carry levels", "Up", func(m pb) { clearField(m.at("sections", 2), "carry_levels") }, "sections[2].carry_levels: key 0 has a boundary and no level"},
		{"carry without a level", "Up", func(m pb) { setColumnAt(m.at("sections", 2), "carry_levels", 2, uint64(0)) }, "sections[2].carry_levels: key 2 has"},
		{"carry out of range", "Up", func(m pb) { setColumnAt(m.at("sections", 2), "carry_slices", 0, int64(1)<<53) }, "sections[2].carry_slices: "},
		{"carry wraps", "Up", func(m pb) { setColumnAt(m.at("sections", 2), "carry_slices", 0, int64(-1)<<63) }, "sections[2].carry_slices: a distance of"},
		{"short until", "Up", func(m pb) { shorten(m.at("sections", 2), "until") }, "sections[2].until: 2 of them for 3 keys"},
		{"until beyond int64", "Up", func(m pb) { setColumnAt(m.at("sections", 2), "until", 0, uint64(1)<<63) }, "sections[2].until: 9223372036854775808, want at most"},
		{"second section", "Up", func(m pb) { m.at("sections", 1).child("shape").set("slices", uint32(0)) }, "sections[1].shape.slices: 0"},

		{"no status", "Down", func(m pb) { clearField(m, "status") }, "status: missing"},
		{"huge status", "Down", func(m pb) { m.set("status", 256) }, "status: 256"},
		{"huge pace", "Down", func(m pb) { m.set("pace", uint64(time.Hour)+1) }, "pace: "},
		{"huge live edges", "Down", func(m pb) { m.set("live_edges", uint32(1)<<31+1) }, "live_edges: "},
		{"huge live regions", "Down", func(m pb) { m.set("live_regions", uint32(1)<<31) }, "live_regions: "},
		{"region no token", "Down", func(m pb) { m.set("region", "-") }, "region: "},
		{"no peers", "Down", func(m pb) { clearField(m.child("totals"), "peers") }, "totals.others.counts: 5 lists of cells for 0 keys"},
		{"other lengths", "Down", func(m pb) { shorten(m.child("totals").child("others"), "counts") }, "totals.others.counts: 4 lists"},
		{"fewer carries", "Down", func(m pb) { shorten(m.child("totals"), "carry_levels") }, "totals.carry_levels: 4 of them for 5 keys"},
		{"fewer penalties", "Down", func(m pb) { shorten(m.child("totals"), "until") }, "totals.until: 4 of them for 5 keys"},
		{"until beyond int64", "Down", func(m pb) { setColumnAt(m.child("totals"), "until", 1, uint64(1<<64-1)) }, "totals.until: 18446744073709551615"},
		{"others without counts", "Down", func(m pb) { setColumnAt(m.child("totals").child("others"), "charges", 0, uint64(0)) }, "totals.others.charges: "},

		{"refused out of order", "Down", func(m pb) { setColumnAt(m, "refused", 1, uint32(200)) }, "refused: 200 after 200"},
		{"refused twice", "Down", func(m pb) { setColumnAt(m, "refused", 1, uint32(0)) }, "refused: 0 after 0"},
		{"refused beyond all keys", "Down", func(m pb) { setColumnAt(m, "refused", 2, uint32(maxKeys)) }, "refused: delta 8192"},
		{"refused far beyond", "Down", func(m pb) { setColumnAt(m, "refused", 2, uint32(1<<32-1)) }, "refused: delta 8192"},
		{"too many refused", "Down", func(m pb) {
			list := m.Mutable(m.field("refused")).List()
			for range maxKeys {
				list.Append(protoreflect.ValueOfUint32(1))
			}
		}, "refused: 8195 of them"},

		{"demand that is no number", "Up", func(m pb) { setColumn(m.at("sections", 0), "demand_fast", []float32{1, float32(math.NaN()), 0}, false) }, "sections[0].demand_fast: NaN"},
		{"demand below zero", "Up", func(m pb) { setColumn(m.at("sections", 0), "demand_mid", []float32{-1, 0, 0}, false) }, "sections[0].demand_mid: -1"},
		{"demand without end", "Up", func(m pb) {
			setColumn(m.at("sections", 0), "demand_slow", []float32{0, 0, float32(math.Inf(1))}, false)
		}, "sections[0].demand_slow: +Inf"},
		{"fewer demands", "Up", func(m pb) { setColumn(m.at("sections", 0), "demand_window", []float32{1, 2}, false) }, "sections[0].demand_window: 8 bytes for 3 keys"},
		{"weight that is no number", "Down", func(m pb) { setColumn(m.child("totals"), "omega", []float32{float32(math.NaN()), 0, 0, 0, 0}, false) }, "totals.omega: NaN"},
		{"fewer unseen", "Down", func(m pb) { setColumn(m.child("totals"), "unseen", []uint64{1, 2}, false) }, "totals.unseen: 2 of them for 5 keys"},
		{"more kept", "Down", func(m pb) { setColumn(m.child("totals"), "kept", []uint64{1, 2, 3, 4, 5, 6}, false) }, "totals.kept: 6 of them for 5 keys"},
		{"huge way", "Down", func(m pb) { m.set("between", uint64(time.Hour)+1) }, "between: "},
		{"fewer sums", "Hot", func(m pb) { setColumn(m.at("sections", 0).child("totals"), "demand_sum", []float32{1}, false) }, "sections[0].totals.demand_sum: 4 bytes for 2 keys"},

		{"lane", "Hot", func(m pb) { m.set("lane", uint32(64)) }, "lane: 64"},
		{"keys", "Hot", func(m pb) { setColumnAt(m.at("sections", 0), "keys", 0, uint64(0)) }, "sections[0].keys: 0"},
		{"fewer keys", "Hot", func(m pb) { shorten(m.at("sections", 0), "keys") }, "sections[0].totals.others.counts: 2 lists"},
		{"until beyond int64", "Hot", func(m pb) { setColumnAt(m.at("sections", 1).child("totals"), "until", 0, uint64(1)<<63) }, "sections[1].totals.until: "},
		{"no shape", "Hot", func(m pb) { clearField(m.at("sections", 0), "shape") }, "sections[0].shape.width: 0s"},

		{"no name", "Live", func(m pb) { clearField(m, "name") }, "name: missing"},
		{"name no token", "Live", func(m pb) { m.set("name", "a.b") }, "name: "},
		{"no lanes", "Live", func(m pb) { clearField(m, "lanes") }, "lanes: 0"},
		{"lane out of lanes", "Snap", func(m pb) { m.set("lane", uint32(8)) }, "lane: 8"},
		{"no lanes", "Snap", func(m pb) { clearField(m, "lanes") }, "lanes: 0"},
		{"region no token", "Snap", func(m pb) { m.set("region", ".") }, "region: "},
		{"lane out of lanes", "Claims", func(m pb) { m.set("lane", uint32(8)) }, "lane: 8"},
		{"pop no token", "Claims", func(m pb) { m.set("pop", "A") }, "pop: "},
		{"key of zero", "Claims", func(m pb) { clearField(m.at("claims", 1), "key") }, "claims[1].key: keys: 0"},
		{"no holder", "Claims", func(m pb) { clearField(m.at("claims", 1), "holder") }, "claims[1].holder: missing"},
		{"lasts no time", "Claims", func(m pb) { clearField(m.at("claims", 0), "lasts") }, "claims[0].lasts: 0s"},
		{"lasts too long", "Claims", func(m pb) { m.at("claims", 0).set("lasts", uint64(1)<<62) }, "claims[0].lasts: "},
		{"more returned than granted", "Claims", func(m pb) { m.at("claims", 0).set("returned", uint64(401)) }, "claims[0].returned: 401"},
		{"no status", "Grants", func(m pb) { clearField(m, "status") }, "status: missing"},
		{"long lease", "Grants", func(m pb) { m.set("lease", uint64(2*time.Hour)) }, "lease: "},
		{"key of zero", "Grants", func(m pb) { clearField(m.at("grants", 0), "key") }, "grants[0].key: keys: 0"},
		{"no holder", "Grants", func(m pb) { clearField(m.at("grants", 0), "holder") }, "grants[0].holder: missing"},
		{"home no token", "Grants", func(m pb) { m.at("grants", 1).set("home", "a.b") }, "grants[1].home: "},
		{"ends of nothing", "Claims", func(m pb) { clearField(m.at("claims", 0).at("ends", 0), "cost") }, "claims[0].ends[0].cost: 0"},
		{"ends of more than it has", "Claims", func(m pb) { m.at("claims", 0).at("ends", 1).set("cost", uint64(51)) }, "claims[0].ends[1].cost: 51"},
		{"ends of less than it has", "Claims", func(m pb) { m.at("claims", 0).at("ends", 1).set("cost", uint64(49)) }, "claims[0].ends: 1 of"},
		{"an end past all", "Claims", func(m pb) { m.at("claims", 0).at("ends", 0).set("in", uint64(60e9+1)) }, "claims[0].ends[0].in: "},
		{"negative lasts", "Claims", func(m pb) { m.at("claims", 0).set("lasts", uint64(1)<<63) }, "claims[0].lasts: "},
		{"huge status", "Grants", func(m pb) { m.set("status", 256) }, "status: 256"},
		{"lane of no lane", "Grants", func(m pb) { m.set("lane", uint32(64)) }, "lane: 64"},
		{"negative lease", "Grants", func(m pb) { m.set("lease", uint64(1)<<63) }, "lease: "},
		{"huge flags", "Grants", func(m pb) { m.at("grants", 0).set("flags", uint32(256)) }, "grants[0].flags: 256"},
		{"too many lanes", "Live", func(m pb) { m.set("lanes", uint32(65)) }, "lanes: 65"},
	} {
		t.Run(string(c.frame)+"/"+c.name, func(t *testing.T) {
			i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == c.frame })
			k := kinds[i]
			msg := k.spec(t, goldens[k.name])
			c.spoil(pb{msg})
			got := k.zero()
			err := got.UnmarshalBinary(marshal(t, msg))
			if !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("UnmarshalBinary = %v, want ErrFrame with %q", err, c.want)
			}
			if !reflect.DeepEqual(got, k.zero()) {
				t.Errorf("a refused frame left %+v", got)
			}
		})
	}
}

func shorten(m pb, name protoreflect.Name) {
	list := m.Mutable(m.field(name)).List()
	list.Truncate(list.Len() - 1)
}

func setColumnAt(m pb, name protoreflect.Name, i int, v any) {
	m.Mutable(m.field(name)).List().Set(i, protoreflect.ValueOf(v))
}

// TestSpelling is what a protobuf library would not write.
func TestSpelling(t *testing.T) {
	up := encode(t, goldens["Up"])
	field := func(num protowire.Number, typ protowire.Type, content ...byte) []byte {
		return append(protowire.AppendTag(nil, num, typ), content...)
	}
	inSection := func(b []byte) []byte {
		return protowire.AppendBytes(field(upSections, protowire.BytesType), b)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string // "": accepted
	}{
		{"nothing", nil, "version: missing"},
		{"version of zero", []byte{8, 0}, "version: missing"},
		{"version not first", append(field(upKind, protowire.VarintType, 1), up...), "version: missing"},
		{"version as text", append(field(upVersion, protowire.BytesType, 0), up...), "version: wrong wire type"},
		{"unknown fields", slices.Concat(up, field(900, protowire.VarintType, 5), field(901, protowire.BytesType, 1, 7), field(902, protowire.Fixed32Type, 1, 2, 3, 4), field(903, protowire.Fixed64Type, 1, 2, 3, 4, 5, 6, 7, 8)), ""},
		{"group", slices.Concat(up, field(900, protowire.StartGroupType), field(900, protowire.EndGroupType)), "field 900: truncated"},
		{"field of zero", append(slices.Clone(up), 0, 0), "truncated"},
		{"cut", up[:len(up)-1], "field 22: truncated"},
		{"cut in a section", up[:len(up)-44], "field 12: truncated"},
		{"heard without an end", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 8, 1, 2, 3, 4, 5, 6, 7, 8), field(sectionHeard, protowire.BytesType, 2, 1, 0x80)))...), "sections[3].heard: truncated"},
		{"heard of more keys", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 8, 1, 2, 3, 4, 5, 6, 7, 8), field(sectionHeard, protowire.BytesType, 2, 1, 1)))...), "sections[3].heard: 2 of them for 1 keys"},
		{"heard out of range", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 8, 1, 2, 3, 4, 5, 6, 7, 8), field(sectionHeard, protowire.BytesType, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)))...), "sections[3].heard: a distance"},
		{"cut in the head", up[:9], "field 4: truncated"},
		{"kind as text", append(slices.Clone(up), field(upKind, protowire.BytesType, 0)...), "kind: wrong wire type"},
		{"node as varint", append(slices.Clone(up), field(upNode, protowire.VarintType, 0)...), "node: wrong wire type"},
		{"section as varint", append(slices.Clone(up), field(upSections, protowire.VarintType, 0)...), "sections"},
		{"keys not packed", append(slices.Clone(up), inSection(field(sectionKeys, protowire.Fixed64Type, 1, 2, 3, 4, 5, 6, 7, 8))...), "sections[3].keys: wrong wire type"},
		{"half a key", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 4, 1, 2, 3, 4)))...), "sections[3].keys: 4 bytes"},
		{"keys twice", append(slices.Clone(up), inSection(slices.Concat(field(sectionKeys, protowire.BytesType, 0), field(sectionKeys, protowire.BytesType, 0)))...), "sections[3].keys: stands twice"},
		{"flags without an end", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 8, 1, 2, 3, 4, 5, 6, 7, 8), field(sectionFlags, protowire.BytesType, 2, 1, 0x80)))...), "sections[3].flags: truncated"},
		{"overlong flags", append(slices.Clone(up), inSection(slices.Concat(shapeBytes(t), field(sectionKeys, protowire.BytesType, 8, 1, 2, 3, 4, 5, 6, 7, 8), field(sectionFlags, protowire.BytesType, 11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1)))...), "sections[3].flags: truncated"},
		{"empty section", append(slices.Clone(up), inSection(shapeBytes(t))...), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := new(Up).UnmarshalBinary(c.b)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("UnmarshalBinary = %v, want no error", err)
			case c.want != "" && (!errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("UnmarshalBinary = %v, want ErrFrame with %q", err, c.want)
			}
		})
	}
}

func shapeBytes(t testing.TB) []byte {
	t.Helper()
	var w writer
	if err := w.shape(sectionShape, minute); err != nil {
		t.Fatal(err)
	}
	return w.b
}

func TestVersions(t *testing.T) {
	for _, k := range kinds {
		b := encode(t, goldens[k.name])
		newer := slices.Concat([]byte{8, Version + 1}, []byte("whatever that one will look like"))
		err := k.zero().UnmarshalBinary(newer)
		var v *VersionError
		if !errors.As(err, &v) || *v != (VersionError{Got: Version + 1, Max: Version}) {
			t.Errorf("%s of version %d: %v, want a VersionError", k.name, Version+1, err)
		}
		if errors.Is(err, ErrFrame) {
			t.Errorf("%s of a newer version counts as a bad frame", k.name)
		}
		for v := uint64(speaks.oldest); v <= Version; v++ {
			if err := k.zero().UnmarshalBinary(slices.Concat([]byte{8, byte(v)}, b[2:])); err != nil {
				t.Errorf("%s of version %d: %v", k.name, v, err)
			}
		}
	}
	if got, want := (&VersionError{Got: 3, Max: 5}).Error(), "upgrade the sender"; !strings.Contains(got, want) {
		t.Errorf("error for an old version = %q, want %q in it", got, want)
	}
}

// TestNotEncoded: what would be refused is not sent.
func TestNotEncoded(t *testing.T) {
	one := func(s Shape, d Delta) *Up {
		return &Up{Kind: KindEdge, Lanes: 1, Sections: []Section{{Shape: s, Deltas: []Delta{d}}}}
	}
	good := Delta{Key: 1, Cells: cell(1, 1)}
	many := make([]crdt.Cell, maxCells+1)
	for i := range many {
		many[i] = crdt.Cell{Slice: crdt.Slice(i), Charges: 1}
	}
	hot := func(k HotKey) *Hot { return &Hot{Sections: []HotSection{{Shape: minute, Keys: []HotKey{k}}}} }
	for _, c := range []struct {
		f    frame
		want string
	}{
		{&Up{Lanes: 1}, "kind"},
		{&Up{Kind: KindEdge}, "lanes"},
		{&Up{Kind: KindEdge, Lanes: 2, Lane: -1}, "lane"},
		{&Up{Kind: KindEdge, Lanes: 1, Region: "Ä"}, "region"},
		{&Up{Kind: KindEdge, Lanes: 1, Incarnation: 1 << 44}, "incarnation"},
		{one(Shape{}, good), "sections[0].shape.width"},
		{one(Shape{Width: time.Second, Slices: 0}, good), "sections[0].shape.slices"},
		{one(minute, Delta{}), "sections[0].keys"},
		{one(minute, Delta{Key: 1, Cells: many}), "sections[0].cells.counts"},
		{one(minute, Delta{Key: 1, Cells: cell(1, 0)}), "sections[0].cells.charges"},
		{one(minute, Delta{Key: 1, Cells: append(cell(2, 1), cell(2, 1)...)}), "sections[0].cells.slices"},
		{one(minute, Delta{Key: 1, Cells: cell(maxSlice+1, 1)}), "sections[0].cells.slices"},
		{one(bucket, Delta{Key: 1, Carry: crdt.Carry{Boundary: maxSlice + 1, Level: 1}}), "sections[0].carry_slices"},
		{one(minute, Delta{Key: 1, Until: -1}), "sections[0].until"},
		{one(minute, Delta{Key: 1, Heard: maxSlice + 1}), "heard"},
		{&Down{Status: StatusOK, Totals: []Totals{{Until: math.MinInt64}}}, "totals.until"},
		{one(Shape{Width: time.Second, Slices: 1, Refill: 1}, good), "sections[0].shape.refill_per"},
		{&Down{Status: StatusOK, Totals: []Totals{{Carry: crdt.Carry{Boundary: -maxSlice - 1, Level: 1}}}}, "totals.carry_slices"},
		{&Up{Kind: KindEdge, Lanes: 1, Sections: []Section{{Shape: minute, Life: MaxLife + 1}}}, "sections[0].life"},
		{&Down{}, "status"},
		{&Down{Status: StatusOK, Pace: -1}, "pace"},
		{&Down{Status: StatusOK, LiveEdges: -1}, "live_edges"},
		{&Down{Status: StatusOK, Totals: []Totals{{Peers: cell(1, 0)}}}, "totals.peers.charges"},
		{&Down{Status: StatusOK, Totals: make([]Totals, maxKeys+1)}, "totals"},
		{&Down{Status: StatusClock, Refused: []uint32{1, 1}}, "refused"},
		{&Down{Status: StatusClock, Refused: []uint32{maxKeys}}, "refused"},
		{&Hot{Lane: MaxLanes}, "lane"},
		{hot(HotKey{}), "sections[0].keys"},
		{hot(HotKey{Key: 1, Totals: Totals{Others: cell(1, 0)}}), "sections[0].totals.others.charges"},
	} {
		b, err := c.f.AppendBinary([]byte("kept"))
		if !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("AppendBinary(%T) = %v, want ErrFrame with %q", c.f, err, c.want)
		}
		if !bytes.Equal(b, []byte("kept")) {
			t.Errorf("AppendBinary(%T) left %d bytes behind an error", c.f, len(b))
		}
	}
}

// TestClaimsFit: as many claims, and grants, as there may be fit in a frame, whatever
// they say; one more is refused.
func TestClaimsFit(t *testing.T) {
	long := strings.Repeat("z", MaxToken)
	c := &Claims{Region: long, Lane: MaxLanes - 1, Lanes: MaxLanes, From: long, Pop: long, Name: long, SentAt: -1}
	g := &Grants{Region: long, Lane: MaxLanes - 1, Status: math.MaxUint8, Echo: -1, Lease: MaxLease, Log: math.MaxUint64}
	for range MaxClaims {
		c.Claims = append(c.Claims, Claim{Key: math.MaxUint64, Holder: math.MaxUint64, Limit: math.MaxUint64, Lasts: maxLasts, Granted: math.MaxUint64, Want: math.MaxUint64, Regional: true, Bound: math.MaxUint64, Ends: []End{{math.MaxUint64, maxLasts}}})
		g.Grants = append(g.Grants, Grant{Key: math.MaxUint64, Holder: math.MaxUint64, Granted: math.MaxUint64, Target: math.MaxUint64, Echo: -1, Flags: allGrantFlags, Home: long})
	}
	for _, k := range []struct {
		f, into frame
		list    protoreflect.Name
		msg     proto.Message
	}{{c, new(Claims), "claims", specClaims(t, c)}, {g, new(Grants), "grants", specGrants(t, g)}} {
		b := encode(t, k.f)
		t.Logf("%d of the largest %s: %d bytes", MaxClaims, k.list, len(b))
		if err := k.into.UnmarshalBinary(b); err != nil {
			t.Errorf("%s: %v", k.list, err)
		}
		m := pb{k.msg.ProtoReflect()}
		list := m.Mutable(m.field(k.list)).List()
		list.Append(list.Get(0))
		if err := k.into.UnmarshalBinary(marshal(t, k.msg)); !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), "more than 512") {
			t.Errorf("one more of the %s: %v, want ErrFrame", k.list, err)
		}
	}
	c.Claims, g.Grants = append(c.Claims, c.Claims[0]), append(g.Grants, g.Grants[0])
	for _, f := range []frame{c, g} {
		if _, err := f.AppendBinary(nil); !errors.Is(err, ErrFrame) {
			t.Errorf("%T: one more is encoded: %v, want ErrFrame", f, err)
		}
	}
}

// TestUnknownGrantFlags: flags of later builds are passed over.
func TestUnknownGrantFlags(t *testing.T) {
	msg := specGrants(t, goldens["Grants"].(*Grants))
	pb{msg}.at("grants", 0).set("flags", uint32(0xf8|GrantRecall))
	var g Grants
	if err := g.UnmarshalBinary(marshal(t, msg)); err != nil || g.Grants[0].Flags != GrantRecall {
		t.Errorf("flags %b, %v, want those that are known, %b", g.Grants[0].Flags, err, GrantRecall)
	}
}

func TestTooLarge(t *testing.T) {
	u := busyUp(MaxFrame / 8)
	if b, err := u.AppendBinary(nil); !errors.Is(err, ErrTooLarge) || len(b) != 0 {
		t.Errorf("AppendBinary of %d keys = %d bytes, %v, want ErrTooLarge", MaxFrame/8, len(b), err)
	}
	for _, k := range kinds {
		b := encode(t, goldens[k.name])
		// An unknown field fills the frame up to its limit, and beyond.
		pad := func(n int) []byte {
			return protowire.AppendBytes(protowire.AppendTag(slices.Clone(b), 900, protowire.BytesType), make([]byte, n-len(b)-5))
		}
		if err := k.zero().UnmarshalBinary(pad(MaxFrame)); err != nil {
			t.Errorf("%s of %d bytes: %v", k.name, MaxFrame, err)
		}
		if err := k.zero().UnmarshalBinary(pad(MaxFrame + 1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s of %d bytes: %v, want ErrTooLarge", k.name, MaxFrame+1, err)
		}
	}
}
