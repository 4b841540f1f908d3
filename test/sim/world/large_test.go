package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// An edge that is cut off keeps to its part of a limit, be it of bytes and larger than
// what a record has room for.
func TestShareOfLargeLimits(t *testing.T) {
	for _, bits := range []int{20, 32, 34, 40} {
		t.Run(fmt.Sprintf("2^%d", bits), func(t *testing.T) {
			most := uint64(1) << bits
			w := wide(t, 2, 1, limit.RateSpec{Name: "r", Limit: most, Per: time.Minute})
			cutAt, admitted := start.Add(65*time.Second), 0
			for i := range 11_000 {
				at := start.Add(time.Duration(i) * 10 * time.Millisecond)
				w.Advance(at)
				if at.Equal(cutAt) {
					w.CutPath(w.Edges()[0], "r0", true)
					w.CutPath("r0", w.Edges()[0], true)
				}
				if at.Before(cutAt) && i%100 > 1 {
					continue
				}
				node := w.Node(w.Edges()[i%2])
				req := node.Rules().Only().NewRequest()
				req.Set("user", "u")
				req.Cost = most / 1024
				w.Touch()
				if node.Check(w.Now(), req).Allowed && i%2 == 0 {
					admitted++
				}
				req.Release()
			}
			// In a minute and three quarters it is asked for 2.2 times the limit; half of it is
			// its part.
			if admitted < 400 || admitted > 700 {
				t.Errorf("the edge that is cut off admits %d/1024 of the limit, of which half is its part", admitted)
			}
		})
	}
}
