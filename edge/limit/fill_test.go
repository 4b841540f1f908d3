package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What a bucket inherits, or has as a carry, is in it then, to the millionth.
func TestFillIsHandedOnAsItIs(t *testing.T) {
	for _, spec := range bucketSpecs {
		r := compileRate(t, spec)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			at := epoch + rng.Int64N(int64(time.Hour))
			f := limit.FillOf(rng.Uint64N(r.Limit)).Plus(1) - limit.Fill(rng.Uint64N(1_000_000))
			var x limit.Exact
			if x.Inherits(r, f, at); r.OwnFill(&x, at) != f {
				t.Fatalf("%+v: %d handed on, and %d inherited", spec, f, r.OwnFill(&x, at))
			}
			if x.Inherits(r, f/2, at); r.OwnFill(&x, at) != f {
				t.Fatalf("%+v: %d, and %d after less was inherited", spec, f, r.OwnFill(&x, at))
			}
			if got := r.UsedFill(nil, r.CarryOf(f, at), at); got != f {
				t.Fatalf("%+v: %d handed on, and the carry has %d", spec, f, got)
			}
		}
	}
}
