package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Edges that all take at once what they may have, of which one or all were asked a little
// before, take together hardly more than there is: who was told a share of what others do
// not ask for has no more of it than they, who may not have heard of it.
func TestLumpsOfAllEdgesAtOnce(t *testing.T) {
	for _, size := range [][2]int{{1, 2}, {1, 4}, {2, 2}, {5, 2}} {
		for _, asked := range []string{"one", "all"} {
			for _, per := range []time.Duration{time.Second, 10 * time.Second} {
				t.Run(fmt.Sprintf("%d regions of %d, %s asked before, 1000 in %v", size[0], size[1], asked, per), func(t *testing.T) {
					for seed := range uint64(3) {
						if got := lumpsOfAll(t, size, asked == "all", per, seed); got > 1150 {
							t.Errorf("seed %d: %d of 1000 in a window", seed, got)
						}
					}
				})
			}
		}
	}
}

// lumpsOfAll is what is admitted in the window in which all edges take what they may have.
func lumpsOfAll(t *testing.T, size [2]int, all bool, per time.Duration, seed uint64) (in uint64) {
	w := wide(t, size[0], size[1], limit.RateSpec{Name: "r", Limit: 1000, Per: per})
	r := rand.New(rand.NewPCG(8, seed))
	var before []time.Time
	ask := func(edge string, cost, lump uint64, peek bool) limit.Decision {
		req := w.Node(edge).Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Cost, req.Lump, req.Peek = cost, lump, peek
		w.Touch()
		return w.Node(edge).Check(w.Now(), req)
	}
	edges := w.Edges()
	for at := start; at.Before(start.Add(5 * time.Second)); at = at.Add(time.Duration(r.ExpFloat64() * float64(50*time.Millisecond))) {
		w.Advance(at)
		edge := edges[0]
		if all {
			edge = edges[r.IntN(len(edges))]
		}
		if ask(edge, 1, 0, false).Allowed {
			before = append(before, w.Now())
		}
	}
	for _, edge := range edges {
		if room := ask(edge, 1000, 1000, true).Remaining; room > 0 && ask(edge, room, room, false).Allowed {
			in += room
		}
	}
	for _, at := range before {
		if w.Now().Sub(at) < per {
			in++
		}
	}
	return in
}
