package redisstore_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/test/proc"
)

// What somebody else wrote where our counters stand is overwritten, left out,
// or an error: it is never counted, and it never takes the others with it.
func TestForeignContents(t *testing.T) {
	s, client := open(t, proc.Redis(t).Addr)
	ctx := t.Context()
	merge(t, s, one(1, 5))
	group := firstGroup(t, client)
	field := "e" + "\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x02" // of one()
	other := "r" + strings.Repeat("\xff", 16)

	for name, garbage := range notVectors {
		if err := client.HSet(ctx, group, other, garbage, "stranger", garbage, "e", garbage).Err(); err != nil {
			t.Fatal(err)
		}
		got := merge(t, s, regional.Item{Key: 1, Width: width, Slices: pieces, Version: 1})[0]
		if len(got.Vectors) != 1 || got.Vectors[0].Source != regional.FromEdge || got.Vectors[0].Cells[0].Charges != 5 {
			t.Errorf("%s: the vectors are %v, want only what was merged", name, got.Vectors)
		}
		// Where the garbage stands in a replica's own field, a merge must pass.
		if err := client.HSet(ctx, group, field, garbage).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Merge(ctx, []regional.Item{one(1, 5)}); err != nil {
			t.Errorf("%s: Merge over it: %v", name, err)
		}
		if err := client.HSet(ctx, group, field, "\x11\x10\x00\x05").Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, client)

	for _, garbage := range []string{"", "x", "-1", "0", "1e999", "nan", "9007199254740993", "1.5"} {
		merge(t, s, one(2, 5))
		if err := client.HSet(ctx, firstGroup(t, client), "v", garbage).Err(); err != nil {
			t.Fatal(err)
		}
		if v := merge(t, s, one(2, 6))[0].Version; v == 0 || v > 1<<52 {
			t.Errorf("over the version %q: the version is %d, want a new one", garbage, v)
		}
		flush(t, client)
	}

	merge(t, s, one(3, 5))
	group = firstGroup(t, client)
	if err := client.Set(ctx, group, "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Merge(ctx, []regional.Item{one(3, 5)}); !errors.Is(err, regional.ErrStore) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Merge over a string: %v, want ErrStore and Redis's reason", err)
	}
}

// Nor is it taken for a level, or for what rests, and a merge passes over it.
func TestForeignCarries(t *testing.T) {
	s, client := open(t, proc.Redis(t).Addr)
	ctx := t.Context()
	at := crdt.Slice(time.Now().UnixNano() / int64(width))
	it := regional.Item{Key: 1, Width: width, Slices: pieces, Floor: true,
		Carries: []crdt.Carry{{Boundary: at, Level: 7}}, Rest: crdt.Carry{Boundary: at, Level: 5}}
	ask := regional.Item{Key: 1, Width: width, Slices: pieces, Floor: true}
	merge(t, s, it)
	names, err := client.Keys(ctx, "*:*").Result()
	if err != nil || len(names) != 2 {
		t.Fatalf("KEYS = %v, %v, want a group and what rests", names, err)
	}
	slices.Sort(names) // digits come before "rest"
	garbage := maps.Clone(notVectors)
	garbage["level of nought"] = "\x11\x11\x00\x00\x01"
	for name, garbage := range garbage {
		if err := client.HSet(ctx, names[0], "c", garbage).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(ctx, names[1], "m", garbage).Err(); err != nil {
			t.Fatal(err)
		}
		if got := merge(t, s, ask)[0]; len(got.Carries) > 0 || !got.Rest.Zero() {
			t.Errorf("%s: carries %v, and %v rests, want none", name, got.Carries, got.Rest)
		}
		if _, err := s.Merge(ctx, []regional.Item{it}); err != nil {
			t.Errorf("%s: Merge over it: %v", name, err)
		}
	}
	if err := client.HSet(ctx, names[1], "m", "\x11\x18\x00\x05\xff\xff\xff\xff\xff\xff\xff\xff").Err(); err != nil {
		t.Fatal(err)
	}
	if got := merge(t, s, ask)[0]; !got.Rest.Zero() {
		t.Errorf("%v rests of a boundary that is no slice, want nothing", got.Rest)
	}
}

// notVectors is what is no packed vector.
var notVectors = map[string]string{
	"empty":               "",
	"one byte":            "\x11",
	"no cells":            "\x11\x10",
	"text":                "hello, world",
	"half a cell":         "\x11\x20\x00\x01",
	"widths of nought":    "\x10\x00\x00\x00",
	"offset too wide":     "\x17\x10\x00\x00\x00\x00\x00\x00\x00\x01",
	"charges too wide":    "\x11\x90\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
	"refunds too wide":    "\x11\x19\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01",
	"offset out of group": "\x12\x10\xff\xff\x01",
	"disorder":            "\x11\x10\x05\x01\x04\x01",
	"slice twice":         "\x11\x10\x05\x01\x05\x01",
	"zero cell":           "\x11\x10\x05\x00",
	"long":                strings.Repeat("\xff", 1<<16),
}
