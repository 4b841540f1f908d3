package crdt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

func encode(t testing.TB, g *crdt.GCounter) []byte {
	t.Helper()
	b, err := g.AppendBinary(nil)
	if err != nil {
		t.Fatalf("AppendBinary: %v", err)
	}
	return b
}

func TestCodecRoundTrip(t *testing.T) {
	eachSeed(t, 30, func(t *testing.T, g regime, r *rand.Rand) {
		a := counter(writes(g, r, r.IntN(40)))
		src := encode(t, a)
		kept := bytes.Clone(src)
		b := counter(writes(g, r, 5)) // what it held before must be gone
		if err := b.UnmarshalBinary(src); err != nil {
			t.Fatalf("UnmarshalBinary(%x): %v", src, err)
		}
		equal(t, "round trip", b, a)
		b.Merge(counter(writes(g, r, 20)))
		if !bytes.Equal(src, kept) {
			t.Fatal("the counter shares memory with what it was decoded from")
		}
	})
}

func TestEqualStatesHaveEqualBytes(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, g regime, r *rand.Rand) {
		ws := writes(g, r, 30)
		a := counter(ws)
		r.Shuffle(len(ws), func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
		// A wide past that has gone: the record stays wide, the form does not.
		b := counter([]write{{crdt.Replica{}, crdt.Cell{Slice: math.MinInt64, Charges: math.MaxUint64, Refunds: 1}}})
		for _, w := range ws {
			b.Join(w.r, w.c)
		}
		b.Retire(math.MinInt64 + 1)
		a.Retire(math.MinInt64 + 1)
		if x, y := encode(t, a), encode(t, b); !bytes.Equal(x, y) {
			t.Fatalf("equal counters have the forms %x and %x", x, y)
		}
		b.Join(crdt.Replica{Node: 77}, crdt.Cell{Slice: 5, Refunds: 1})
		if bytes.Equal(encode(t, a), encode(t, b)) || a.Equal(b) {
			t.Fatal("unequal counters have equal forms")
		}
	})
}

func TestAppendBinaryAppends(t *testing.T) {
	g := counter([]write{{crdt.Replica{Node: 1, Incarnation: 2}, crdt.Cell{Slice: -3, Charges: 300}}})
	got, err := g.AppendBinary([]byte("head"))
	want := append([]byte("head"), 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 5, 0, 0xac, 2, 0)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("AppendBinary = %v, %v, want %v", got, err, want)
	}
}

func TestDecodeRefusesEveryOtherSpelling(t *testing.T) {
	entry := func(node byte, vector ...byte) []byte {
		return append([]byte{0, 0, 0, 0, 0, 0, 0, node, 0, 0, 0, 0, 0, 0, 0, 0}, vector...)
	}
	with := func(n byte, entries ...[]byte) []byte { return append([]byte{n}, bytes.Join(entries, nil)...) }
	one := []byte{1, 4, 0, 9, 0}
	for _, tt := range []struct {
		name string
		src  []byte
	}{
		{"nothing", nil},
		{"no entries, then a byte", []byte{0, 0}},
		{"an entry, then a byte", append(with(1, entry(1, one...)), 0)},
		{"fewer entries than said", with(2, entry(1, one...))},
		{"a count of entries beyond all memory", append([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, entry(1, one...)...)},
		{"a varint of eleven bytes", []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}},
		{"a varint above 64 bits", []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 2}},
		{"number of entries not minimal", append([]byte{0x81, 0}, entry(1, one...)...)},
		{"number of cells not minimal", with(1, entry(1, 0x81, 0, 4, 0, 9, 0))},
		{"first slice not minimal", with(1, entry(1, 1, 0x84, 0, 0, 9, 0))},
		{"gap not minimal", with(1, entry(1, 2, 4, 0, 9, 0, 0x81, 0, 9, 0))},
		{"charges not minimal", with(1, entry(1, 1, 4, 0, 0x89, 0, 0))},
		{"refunds not minimal", with(1, entry(1, 1, 4, 0, 9, 0x80, 0))},
		{"replicas in disorder", with(2, entry(2, one...), entry(1, one...))},
		{"a replica twice", with(2, entry(1, one...), entry(1, one...))},
		{"an empty vector", with(1, entry(1, 0, 4))},
		{"a cell without a count", with(1, entry(1, 1, 4, 0, 0, 0))},
		{"a slice twice", with(1, entry(1, 2, 4, 0, 9, 0, 0, 9, 0))},
		{"a gap before the first cell", with(1, entry(1, 1, 4, 1, 9, 0))},
		{"a slice above the largest", with(1, entry(1, 2, 0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 9, 0, 1, 9, 0))},
		{"a gap that leads around", with(1, entry(1, 2, 4, 0, 9, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 9, 0))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := counter([]write{{crdt.Replica{Node: 9}, crdt.Cell{Slice: 1, Charges: 1}}})
			kept := g.Clone()
			if err := g.UnmarshalBinary(tt.src); !errors.Is(err, crdt.ErrEncoding) {
				t.Fatalf("UnmarshalBinary(%x) = %v, want ErrEncoding", tt.src, err)
			}
			equal(t, "after a refusal", g, kept)
		})
	}
}

func TestDecodeRefusesTruncated(t *testing.T) {
	g := counter([]write{
		{crdt.Replica{Node: 1, Incarnation: 2}, crdt.Cell{Slice: -1 << 62, Charges: math.MaxUint64, Refunds: 300}},
		{crdt.Replica{Node: 1, Incarnation: 2}, crdt.Cell{Slice: 1 << 62, Charges: 1}},
		{crdt.Replica{Node: 5}, crdt.Cell{Slice: 1, Charges: 1}},
	})
	src := encode(t, g)
	for n := range src {
		if err := new(crdt.GCounter).UnmarshalBinary(src[:n]); !errors.Is(err, crdt.ErrEncoding) {
			t.Errorf("UnmarshalBinary of the first %d of %d bytes = %v, want ErrEncoding", n, len(src), err)
		}
	}
}

// Each entry counts in a slice before all slices of the entries ahead of it:
// summed naively, every cell would move all others.
func TestDecodeOfManyFallingSlicesDoesNotStall(t *testing.T) {
	const n = 60_000
	src := binary.AppendUvarint(nil, n)
	for i := range uint64(n) {
		src = binary.BigEndian.AppendUint64(src, i)
		src = binary.BigEndian.AppendUint64(src, 0)
		src = binary.AppendVarint(append(src, 1), n-int64(i))
		src = append(src, 0, 1, 0)
	}
	start := time.Now()
	if err := new(crdt.GCounter).UnmarshalBinary(src); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("decoding %d bytes took %v, want well under a second", len(src), d)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, g := range regimes {
		r := rand.New(rand.NewPCG(1, 2))
		f.Add(encode(f, counter(writes(g, r, 6))))
	}
	f.Add([]byte{0})
	f.Add([]byte{255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<16 {
			return
		}
		var g crdt.GCounter
		if err := g.UnmarshalBinary(src); err != nil {
			if !errors.Is(err, crdt.ErrEncoding) || g.Len() != 0 {
				t.Fatalf("UnmarshalBinary = %v with %d entries, want ErrEncoding and none", err, g.Len())
			}
			return
		}
		checkSums(t, "decoded", &g)
		if again := encode(t, &g); !bytes.Equal(again, src) {
			t.Fatalf("encoded again it is %x, want %x", again, src)
		}
	})
}
