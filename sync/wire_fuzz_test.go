package deltasync

import (
	"errors"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
)

func FuzzUp(f *testing.F)   { fuzzFrame(f, kinds[0]) }
func FuzzDown(f *testing.F) { fuzzFrame(f, kinds[1]) }
func FuzzHot(f *testing.F)  { fuzzFrame(f, kinds[2]) }
func FuzzLive(f *testing.F) { fuzzFrame(f, kinds[3]) }
func FuzzSnap(f *testing.F) { fuzzFrame(f, kinds[4]) }

func FuzzClaims(f *testing.F) { fuzzFrame(f, kinds[5]) }
func FuzzGrants(f *testing.F) { fuzzFrame(f, kinds[6]) }

// fuzzFrame: no input makes the decoder panic or hold more than maxGrowth
// times its size, and what it accepts it writes and reads again unchanged.
func fuzzFrame(f *testing.F, k kind) {
	paths, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(paths) < 6 {
		f.Fatalf("golden frames: %v, %v, want 6", paths, err)
	}
	for _, path := range paths {
		f.Add(readGolden(f, path))
	}
	for seed := range uint64(20) {
		f.Add(encode(f, k.rand(newFrames(seed))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		one := k.zero()
		if err := one.UnmarshalBinary(b); err != nil {
			var v *VersionError
			if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrTooLarge) && !errors.As(err, &v) {
				t.Errorf("error of no known kind: %v", err)
			}
			return
		}
		if held := holds(one); held > maxGrowth*len(b) {
			t.Errorf("%d bytes became %d, want at most %d times as many", len(b), held, maxGrowth)
		}
		again, err := one.AppendBinary(nil)
		if errors.Is(err, ErrTooLarge) && len(b) > MaxFrame/2 {
			return // another base may take a byte more a section
		}
		if err != nil {
			t.Fatalf("accepted, and not encoded: %v", err)
		}
		two := k.zero()
		if err := two.UnmarshalBinary(again); err != nil {
			t.Fatalf("encoded, and not accepted: %v", err)
		}
		if !reflect.DeepEqual(one, two) {
			t.Errorf("read %+v, written and read again %+v", one, two)
		}
	})
}

// maxGrowth is how much larger than its bytes a frame may be in memory. Totals
// without cells are the worst case: 96 bytes for one.
const maxGrowth = 112

// holds is the memory that a frame holds on to, in bytes, itself aside.
func holds(f frame) int {
	const cell = int(unsafe.Sizeof(crdt.Cell{}))
	n := 0
	totals := func(t Totals) { n += (cap(t.Others) + cap(t.Peers) + cap(t.Own)) * cell }
	switch f := f.(type) {
	case *Up:
		n += len(f.Region) + len(f.Pop) + len(f.Name) + cap(f.Sections)*int(unsafe.Sizeof(Section{}))
		for _, s := range f.Sections {
			n += cap(s.Deltas) * int(unsafe.Sizeof(Delta{}))
			for _, d := range s.Deltas {
				n += cap(d.Cells) * cell
			}
		}
	case *Down:
		n += len(f.Region) + cap(f.Totals)*int(unsafe.Sizeof(Totals{})) + cap(f.Refused)*int(unsafe.Sizeof(uint32(0)))
		for _, t := range f.Totals {
			totals(t)
		}
	case *Hot:
		n += len(f.Region) + cap(f.Sections)*int(unsafe.Sizeof(HotSection{}))
		for _, s := range f.Sections {
			n += cap(s.Keys) * int(unsafe.Sizeof(HotKey{}))
			for _, k := range s.Keys {
				totals(k.Totals)
			}
		}
	case *Claims:
		n += len(f.Region) + len(f.From) + len(f.Pop) + len(f.Name) + cap(f.Claims)*int(unsafe.Sizeof(Claim{}))
	case *Grants:
		n += len(f.Region) + cap(f.Grants)*int(unsafe.Sizeof(Grant{}))
		for _, k := range f.Grants {
			n += len(k.Home)
		}
	}
	return n
}

// TestGrowth holds the worst inputs against the bound, counting what decoding
// allocates on the way, and refused frames too.
func TestGrowth(t *testing.T) {
	silent := &Down{Status: StatusOK, Totals: make([]Totals, maxKeys)}
	sections := &Up{Kind: KindEdge, Lanes: 1}
	for range 3000 {
		sections.Sections = append(sections.Sections, Section{Shape: Shape{Width: minWidth, Slices: 1}})
	}
	cells := &Down{Status: StatusOK, Totals: make([]Totals, 7)}
	for i := range cells.Totals {
		for s := range crdt.Slice(maxCells) {
			cells.Totals[i].Peers = append(cells.Totals[i].Peers, crdt.Cell{Slice: s, Charges: 1})
		}
	}
	claims, grants := &Claims{Lanes: 1}, &Grants{Status: StatusOK}
	for range MaxClaims {
		claims.Claims = append(claims.Claims, Claim{Key: 1, Holder: 1, Lasts: 1})
		grants.Grants = append(grants.Grants, Grant{Key: 1, Holder: 1})
	}
	bad := encode(t, cells)
	bad[len(bad)-1] = 0 // the last cell has no charge: found after all others
	for _, c := range []struct {
		name    string
		b       []byte
		into    frame
		refused bool
	}{
		{"totals without cells", encode(t, silent), new(Down), false},
		{"sections without keys", encode(t, sections), new(Up), false},
		{"cells", encode(t, cells), new(Down), false},
		{"cells, refused", bad, new(Down), true},
		{"keys", encode(t, busyUp(5000)), new(Up), false},
		{"claims", encode(t, claims), new(Claims), false},
		{"grants", encode(t, grants), new(Grants), false},
	} {
		const rounds = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			if err := c.into.UnmarshalBinary(c.b); (err != nil) != c.refused {
				t.Fatalf("%s: UnmarshalBinary = %v", c.name, err)
			}
		}
		runtime.ReadMemStats(&after)
		growth := float64(after.TotalAlloc-before.TotalAlloc) / rounds / float64(len(c.b))
		t.Logf("%s: %.1f bytes a byte", c.name, growth)
		if growth > maxGrowth {
			t.Errorf("%s: %d bytes allocate %.1f times as many, want at most %d", c.name, len(c.b), growth, maxGrowth)
		}
	}
}
