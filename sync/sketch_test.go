package deltasync

import (
	"math"
	"math/rand/v2"
	"testing"
)

// An estimate is within two fifths, of ten times as many at a time, and two that saw the same are one.
func TestSketch(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	var none Sketch
	if none.Estimate() != 0 || none.Bytes() != nil {
		t.Errorf("of none %v are seen, %v", none.Estimate(), none.Bytes())
	}
	for n := 1; n <= 1_000_000; n *= 10 {
		var a, b Sketch
		for i := range n {
			key := Key(draw.Uint64()&differing | 7<<56) // all of one hash's form
			if a.Add(key); i%2 == 0 {
				b.Add(key)
			}
		}
		got := a.Estimate()
		if off := math.Abs(got-float64(n)) / float64(n); off > 0.4 {
			t.Errorf("of %d keys %v are seen", n, got)
		}
		whole := SketchOf(a.Bytes())
		if whole.Merge(&b); whole.Estimate() != got {
			t.Errorf("half of %d keys, once more, are %v, want %v", n, whole.Estimate(), got)
		}
	}
	if s := SketchOf([]byte{1}); s != none {
		t.Errorf("a byte is read as %v", s)
	}
}
