package crdt_test

import (
	"math/rand/v2"
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

func TestLaterCarry(t *testing.T) {
	for _, tt := range []struct {
		name       string
		a, b, want crdt.Carry
	}{
		{"later boundary, smaller level", crdt.Carry{Boundary: 4, Level: 9}, crdt.Carry{Boundary: 5, Level: 1}, crdt.Carry{Boundary: 5, Level: 1}},
		{"equal boundaries", crdt.Carry{Boundary: 4, Level: 9}, crdt.Carry{Boundary: 4, Level: 10}, crdt.Carry{Boundary: 4, Level: 10}},
		{"none", crdt.Carry{}, crdt.Carry{Boundary: 4, Level: 9}, crdt.Carry{Boundary: 4, Level: 9}},
		{"none, and one from before 1970", crdt.Carry{}, crdt.Carry{Boundary: -4, Level: 9}, crdt.Carry{Boundary: -4, Level: 9}},
		{"neither", crdt.Carry{}, crdt.Carry{}, crdt.Carry{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.Later(tt.b); got != tt.want {
				t.Errorf("%v.Later(%v) = %v, want %v", tt.a, tt.b, got, tt.want)
			}
			if got := tt.b.Later(tt.a); got != tt.want {
				t.Errorf("%v.Later(%v) = %v, want %v", tt.b, tt.a, got, tt.want)
			}
		})
	}
}

// Later is a join of a total order, so the order of frames, and a frame heard
// twice, change nothing.
func TestLaterCarryLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	pick := func() crdt.Carry { return crdt.Carry{Boundary: crdt.Slice(r.IntN(4) - 2), Level: r.Uint64N(4)} }
	for range 1000 {
		a, b, c := pick(), pick(), pick()
		if x, y := a.Later(b), b.Later(a); x != y {
			t.Fatalf("%v and %v: %v one way, %v the other", a, b, x, y)
		}
		if x, y := a.Later(b).Later(c), a.Later(b.Later(c)); x != y {
			t.Fatalf("%v, %v, %v: grouped they give %v and %v", a, b, c, x, y)
		}
		if x := a.Later(b); x.Later(b) != x || x.Compare(a) < 0 {
			t.Fatalf("%v.Later(%v) = %v, which is not stable or went back", a, b, x)
		}
	}
}

func TestZeroCarry(t *testing.T) {
	for c, want := range map[crdt.Carry]bool{
		{}: true, {Boundary: 1}: false, {Level: 1}: false, {Boundary: -1, Level: 1}: false,
	} {
		if got := c.Zero(); got != want {
			t.Errorf("%v.Zero() = %v, want %v", c, got, want)
		}
	}
}
