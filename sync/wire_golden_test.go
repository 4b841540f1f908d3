package deltasync

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "write the golden frames anew; read the difference before you commit it")

// goldens are frames with every field of the Go structs set.
var goldens = map[protoreflect.Name]frame{
	"Up": &Up{
		Kind: KindEdge, Region: "eu", Pop: "ams", Name: "edge-1", Node: 0x0102030405060708, Incarnation: 1_790_000_000_000,
		Lane: 3, Lanes: 8, Seq: 300, SentAt: 1_790_000_000_123_456_789, Features: 130, HeardEpoch: 0xe0e1e2e3e4e5e6e7, SecretCheck: 0xc0c1c2c3c4c5c6c7, Hears: 0xd0d1d2d3d4d5d6d7, Silent: 0xf0f1f2f3f4f5f6f7,
		Sections: []Section{
			{Shape: minute, Life: 2, Deltas: []Delta{
				{Key: 0x1112131415161718, Flags: FlagUrgent, Heard: 1_193_333_331, Cells: []crdt.Cell{{Slice: 1_193_333_333, Charges: 7}, {Slice: 1_193_333_334, Charges: 300, Refunds: 1}}},
				{Key: 0x2122232425262728, Flags: FlagTouch},
				{Key: 0x3132333435363738, Flags: FlagRefresh, Cells: []crdt.Cell{{Slice: 1_193_333_332, Charges: 1<<64 - 1}}},
			}},
			{Shape: Shape{Generation: 9, Width: 3600e9, Slices: 1, Regional: true}, Life: 1, Deltas: []Delta{
				{Key: 0x4142434445464748, Heard: 497_221, Cells: []crdt.Cell{{Slice: 497_222, Charges: 1}}},
			}},
			{Shape: bucket, Life: 3, Deltas: []Delta{
				{Key: 0x5152535455565758, Cells: []crdt.Cell{{Slice: 35_800_000_002, Charges: 4}}, Carry: crdt.Carry{Boundary: 35_799_999_962, Level: 9_500_000}},
				{Key: 0x6162636465666768, Heard: 35_800_000_003, Cells: []crdt.Cell{{Slice: 35_800_000_001, Charges: 1}}},
				{Key: 0x7172737475767778, Carry: crdt.Carry{Boundary: 35_799_999_963, Level: 1}, Until: 1_790_000_060_123_456_789},
			}},
		},
	},
	"Down": &Down{
		Status: StatusClock, Region: "eu", Node: 0x0807060504030201, Seq: 300, EchoSentAt: 1_790_000_000_123_456_789,
		ReceivedAt: 1_790_000_000_125_000_000, SentAt: 1_790_000_000_125_100_000, StoreEpoch: 0xe0e1e2e3e4e5e6e7,
		Pace: 1e9, LiveEdges: 40, LiveRegions: 3,
		Totals: []Totals{
			{Others: []crdt.Cell{{Slice: 1_193_333_330, Charges: 12}}, Peers: []crdt.Cell{{Slice: 1_193_333_333, Charges: 5, Refunds: 2}, {Slice: 1_193_333_334, Charges: 1}}},
			{},
			{Peers: []crdt.Cell{{Slice: 1_193_333_332, Charges: 200}}},
			{Others: []crdt.Cell{{Slice: 497_221, Charges: 3}, {Slice: 497_222, Charges: 4}}},
			{Peers: []crdt.Cell{{Slice: 35_800_000_001, Charges: 2}}, Own: []crdt.Cell{{Slice: 35_800_000_001, Charges: 9, Refunds: 1}}, Carry: crdt.Carry{Boundary: 35_799_999_962, Level: 10_000_000}, Until: 1_790_000_060_123_456_789},
		},
		Refused: []uint32{0, 3, 200}, Store: 0xd0d1d2d3d4d5d6d7, Mistake: MistakeLanes, Lanes: 16, Hears: 0xd0d1d2d3d4d5d6d7, Named: 3602,
	},
	"Hot": &Hot{
		Region: "eu", Lane: 3, SentAt: 1_790_000_000_125_100_000, LiveRegions: 3, Next: 1500,
		Sections: []HotSection{{Shape: Shape{Generation: 7, Width: 60e9, Slices: 1, Limit: 100, Regional: true}, Keys: []HotKey{
			{Key: 0x1112131415161718, Totals: Totals{Others: []crdt.Cell{{Slice: 1_193_333_330, Charges: 40}}, Peers: []crdt.Cell{{Slice: 1_193_333_333, Charges: 60}}}},
			{Key: 0x3132333435363738, Totals: Totals{Peers: []crdt.Cell{{Slice: 1_193_333_332, Charges: 90, Refunds: 8}}}},
		}}, {Shape: bucket, Keys: []HotKey{
			{Key: 0x5152535455565758, Totals: Totals{Peers: []crdt.Cell{{Slice: 35_800_000_002, Charges: 4}}, Own: []crdt.Cell{{Slice: 35_800_000_001, Charges: 3}}, Carry: crdt.Carry{Boundary: 35_799_999_962, Level: 9_500_000}}},
			{Key: 0x8182838485868788, Totals: Totals{Until: 1_790_000_060_123_456_789}},
		}}},
	},
	"Live": &Live{
		Region: "eu", Name: "agg-1", Incarnation: 1_790_000_000_000, Lanes: 8, SentAt: 1_790_000_000_125_100_000,
		Leaving: true, LiveEdges: 40, LiveRegions: 3, EvenEdges: 30,
	},
	"Snap": &Snap{Region: "eu", Lane: 3, Lanes: 8, From: 1500},
	"Claims": &Claims{
		Region: "us", Lane: 3, Lanes: 8, From: "eu", Pop: "ams", Name: "edge-1", SentAt: 86_400_123_456_789,
		Claims: []Claim{
			{Key: 0x1112131415161718, Holder: 0xa1a2a3a4a5a6a7a8, Limit: 1000, Lasts: 60e9, Granted: 400, Returned: 150, Want: 300, Regional: true, Bound: 210, Ends: []End{{200, 20e9}, {50, 60e9}}},
			{Key: 0x2122232425262728, Holder: 0xb1b2b3b4b5b6b7b8, Limit: 5, Lasts: 1e9, Granted: 8, Returned: 7, Want: 1, Regional: true, Bound: 1, Ends: []End{{1, 5e8}}},
		},
	},
	"Grants": &Grants{
		Region: "us", Lane: 3, Status: StatusOK, Echo: 86_400_123_456_789, Lease: 15e9, Log: 0xc1c2c3c4c5c6c7c8,
		Grants: []Grant{
			{Key: 0x1112131415161718, Holder: 0xa1a2a3a4a5a6a7a8, Granted: 450, Target: 280, Flags: GrantRecall, Echo: 86_400_000_000_000, Home: "us"},
			{Key: 0x2122232425262728, Holder: 0xb1b2b3b4b5b6b7b8, Granted: 7, Target: 1, Flags: GrantVoid, Echo: 1, Home: "ap"},
		},
	},
}

// complete sets every field of m that is not set, and those below it: what
// frames will look like once all of version 1 is in use. Columns get an element
// for each of the keys around them.
func complete(m pb, keys int) {
	fields := m.Descriptor().Fields()
	if fd := fields.ByName("keys"); fd != nil {
		keys = m.Get(fd).List().Len()
	}
	if m.Descriptor().Name() == "Totals" {
		peers := m.child("peers")
		if n := peers.Get(peers.field("counts")).List().Len(); n > 0 {
			keys = n
		}
		// Any block of cells for as many keys will do.
		for _, name := range []protoreflect.Name{"seen"} {
			m.Set(m.field(name), protoreflect.ValueOfMessage(peers.Message))
		}
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsList() && fd.Message() != nil:
			list := m.Mutable(fd).List()
			if list.Len() == 0 {
				list.AppendMutable()
			}
			for j := range list.Len() {
				complete(pb{list.Get(j).Message()}, keys)
			}
		case fd.Message() != nil && fd.Message().Name() == "Cells":
			// Complete as they are: zeros are left out by rule.
		case fd.Message() != nil:
			complete(pb{m.Mutable(fd).Message()}, keys)
		case m.Has(fd):
		case fd.Name() == "limit", fd.Name() == "regional", fd.Name() == "flags",
			fd.Name() == "refill", fd.Name() == "refill_per", fd.Name() == "floor",
			fd.Name() == "carry_slices", fd.Name() == "carry_levels", fd.Name() == "until":
			// Zero in one section of a frame, set in another.
		case fd.IsList():
			list := m.Mutable(fd).List()
			for j := range keys {
				list.Append(sample(fd, j))
			}
		default:
			m.Set(fd, sample(fd, 0))
		}
	}
}

// sample is a value for a field, telling by its number.
func sample(fd protoreflect.FieldDescriptor, i int) protoreflect.Value {
	n := uint64(fd.Number())*10 + uint64(i)
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(-int64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) / 256)
	}
	panic(fmt.Sprintf("no sample for %s, a %s", fd.FullName(), fd.Kind()))
}

// sampled is a copy of a frame with what complete sets in fields that are in use
// and that goldens lack: the demand, the shares, and that a shape is eager.
func sampled(t *testing.T, f frame) frame {
	t.Helper()
	of := func(num, i int) float32 { return float32(num*10+i) / 256 }
	share := func(i int) *Share {
		return &Share{Omega: of(8, i), Sum: of(10, i), Window: of(11, i), Demand: of(18, i), Unseen: uint64(170 + i), Kept: uint64(190 + i), Doubt: uint64(200 + i), Spent: uint64(210 + i)}
	}
	b := encode(t, f)
	switch f.(type) {
	case *Up:
		u := new(Up)
		if err := u.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		for i, s := range u.Sections {
			u.Sections[i].Shape.Eager = 1
			for j := range s.Deltas {
				s.Deltas[j].Demand = &Demand{Fast: of(10, j), Mid: of(11, j), Slow: of(12, j), Window: of(13, j), Kept: of(17, j), Since: of(18, j), KeptSpent: of(19, j)}
			}
		}
		return u
	case *Down:
		d := new(Down)
		if err := d.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		for i := range d.Totals {
			d.Totals[i].Share = share(i)
		}
		d.Between, d.Regions = 210, 220
		return d
	case *Hot:
		h := new(Hot)
		if err := h.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		for i, s := range h.Sections {
			h.Sections[i].Shape.Eager = 1
			for j := range s.Keys {
				s.Keys[j].Share = share(j)
			}
		}
		return h
	}
	return f
}

// golden returns the frame in testdata, after writing it if -update says so.
func golden(t *testing.T, name string, md protoreflect.MessageDescriptor, comment string, frame []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		var text bytes.Buffer
		fmt.Fprintf(&text, "# %s\n# Version 1, by frame.proto. Written by: go test ./sync -run Golden -update\n", comment)
		describe(&text, md, frame, "")
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return readGolden(t, path)
}

func readGolden(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it by: go test ./sync -run Golden -update", err)
	}
	var frame []byte
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line, "#")
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		frame = append(frame, b...)
	}
	return frame
}

// describe writes a message as hex, a line a field, with the fields' names.
func describe(w *bytes.Buffer, md protoreflect.MessageDescriptor, b []byte, indent string) {
	for len(b) > 0 {
		num, typ, head := protowire.ConsumeTag(b)
		fd := md.Fields().ByNumber(num)
		n := head + protowire.ConsumeFieldValue(num, typ, b[head:])
		if fd.Message() != nil {
			payload, _ := protowire.ConsumeBytes(b[head:])
			fmt.Fprintf(w, "%s% x # %s\n", indent, b[:n-len(payload)], fd.Name())
			describe(w, fd.Message(), payload, indent+"  ")
		} else {
			fmt.Fprintf(w, "%s% x # %s\n", indent, b[:n], fd.Name())
		}
		b = b[n:]
	}
}

// TestGolden: the frames that older builds wrote, and those that later ones
// will write, read the same for ever.
func TestGolden(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k.name), func(t *testing.T) {
			want := goldens[k.name]
			msg := k.spec(t, want)
			file := strings.ToLower(string(k.name))

			now := encode(t, want)
			if b := golden(t, file+".golden", msg.Descriptor(), string(k.name)+", as it is written now.", now); !bytes.Equal(b, now) {
				t.Errorf("AppendBinary = %x, testdata has %x", now, b)
			}

			complete(pb{msg}, 0)
			full := golden(t, file+"_full.golden", msg.Descriptor(), string(k.name)+" with every field set, those not yet used included.", marshal(t, msg))
			got := k.zero()
			if err := got.UnmarshalBinary(full); err != nil {
				t.Fatalf("UnmarshalBinary: %v", err)
			}
			if want := sampled(t, want); !reflect.DeepEqual(got, want) {
				t.Errorf("read %+v, want %+v", got, want)
			}
			read := newMessage(t, k.name)
			if err := proto.Unmarshal(full, read); err != nil {
				t.Fatal(err)
			}
			if u := unknown(read); len(u) > 0 {
				t.Errorf("%v hold fields that frame.proto does not name", u)
			}
			set := map[protoreflect.FullName]bool{}
			collect(read, set)
			for name := range allFields(read.Descriptor(), map[protoreflect.FullName]bool{}) {
				if !set[name] {
					t.Errorf("%s is not set in %s_full.golden", name, file)
				}
			}
		})
	}
}

// TestGoldenOld: frames of builds that knew neither buckets, Refused, Store,
// penalties, snapshots nor mistakes, nor asked for features, nor said what they
// had heard, or what of their rights was bound.
func TestGoldenOld(t *testing.T) {
	up, down, hot := *goldens["Up"].(*Up), *goldens["Down"].(*Down), *goldens["Hot"].(*Hot)
	up.Sections, hot.Sections, hot.Next = slices.Clone(up.Sections[:2]), hot.Sections[:1], 0
	up.Features, up.HeardEpoch, up.Sections[0].Deltas = 0, 0, slices.Clone(up.Sections[0].Deltas)
	up.Sections[1].Deltas = slices.Clone(up.Sections[1].Deltas)
	up.Sections[0].Deltas[0].Heard, up.Sections[1].Deltas[0].Heard = 0, 0
	down.Totals, down.Refused, down.Store, down.Hears, down.Named = down.Totals[:4], nil, 0, 0, 0
	up.SecretCheck, up.Hears, up.Silent, down.Mistake, down.Lanes = 0, 0, 0, 0, 0
	claims := *goldens["Claims"].(*Claims)
	claims.Claims = slices.Clone(claims.Claims)
	for i := range claims.Claims {
		claims.Claims[i].Bound, claims.Claims[i].Ends = 0, nil
	}
	claims.Claims[1].Granted = 7
	for i, want := range map[int]frame{0: &up, 1: &down, 2: &hot, 5: &claims} {
		got := kinds[i].zero()
		path := filepath.Join("testdata", strings.ToLower(string(kinds[i].name))+"_old.golden")
		if err := got.UnmarshalBinary(readGolden(t, path)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read %+v, want %+v", path, got, want)
		}
	}
}

// collect notes the fields that are set in m and below.
func collect(m protoreflect.Message, set map[protoreflect.FullName]bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		set[fd.FullName()] = true
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				collect(v.List().Get(i).Message(), set)
			}
		default:
			collect(v.Message(), set)
		}
		return true
	})
}

func allFields(md protoreflect.MessageDescriptor, all map[protoreflect.FullName]bool) map[protoreflect.FullName]bool {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		all[fd.FullName()] = true
		if fd.Message() != nil {
			allFields(fd.Message(), all)
		}
	}
	return all
}
