package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Edges whose windows from the first hit are out of step, as one came to a busy key amid
// a window or its clock was set back, admit no more than the limit together.
func TestFirstHitsOutOfStep(t *testing.T) {
	t.Parallel()
	const of = 200
	type happening func(t *testing.T, w *World, sets func(edges int, off time.Duration))
	for _, test := range []struct {
		name    string
		regions int
		alone   bool // the last edge is asked alone until then
		happens happening
	}{
		{"nothing", 1, false, nil},
		{"the others are asked too", 1, true, nil},
		{"an edge starts anew", 1, false, func(t *testing.T, w *World, _ func(int, time.Duration)) {
			if err := w.Crash(w.Edges()[0]); err != nil {
				t.Fatal(err)
			}
		}},
		{"a clock is set back", 1, false, func(_ *testing.T, _ *World, sets func(int, time.Duration)) { sets(1, -30*time.Second) }},
		{"all clocks are set back", 3, false, func(_ *testing.T, _ *World, sets func(int, time.Duration)) { sets(99, -30*time.Second) }},
	} {
		for _, after := range []time.Duration{187 * time.Second, 200 * time.Second, 215 * time.Second} { // of windows that begin with minutes
			w := wideOf(t, test.regions, 2, func(*Config) {}, limit.RateSpec{Limit: of, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit", Consistency: "loose"})
			begin, rnd, edges := w.Now(), rand.New(rand.NewPCG(1, 9)), w.Edges()
			var perMinute [10]int
			for done := false; w.Now().Before(begin.Add(time.Duration(len(perMinute)) * time.Minute)); {
				at := w.Now().Sub(begin)
				if !done && at >= after {
					if done = true; test.happens != nil {
						test.happens(t, w, func(n int, off time.Duration) {
							for _, e := range edges[:min(n, len(edges))] {
								w.SetClock(e, off, 0)
							}
						})
					}
				}
				edge := edges[rnd.IntN(len(edges))]
				if test.alone && !done {
					edge = edges[len(edges)-1]
				}
				if checkAt(w, edge, "u").Allowed {
					perMinute[at/time.Minute]++
				}
				w.Advance(w.Now().Add(40 * time.Millisecond))
			}
			t.Logf("%s after %v: %v", test.name, after, perMinute)
			for i, n := range perMinute {
				if n > of*115/100 || n < of/2 {
					t.Errorf("%s after %v: %d admitted in minute %d, want about %d", test.name, after, n, i, of)
				}
			}
		}
	}
}

// Edges that start anew in a window, and are asked before they have heard of it, count what
// they missed: in no five minutes do more pass than in six windows.
func TestFirstHitsOfEdgesThatStartAnew(t *testing.T) {
	t.Parallel()
	const of = 20
	for _, seed := range []uint64{3, 8, 14, 27} { // 27: 146 passed
		rnd := rand.New(rand.NewPCG(seed, 99))
		regions, perRegion := 1+rnd.IntN(2), 1+rnd.IntN(3)
		w := wideOf(t, regions, perRegion, func(*Config) {}, limit.RateSpec{Limit: of, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit", Consistency: "loose"})
		edges, begin := w.Edges(), w.Now()
		var admitted []time.Time
		for w.Now().Before(begin.Add(40 * time.Minute)) {
			edge := edges[rnd.IntN(len(edges))]
			switch rnd.IntN(200) {
			case 0, 1:
				if err := w.Crash(edge); err != nil {
					t.Fatal(err)
				}
			case 3, 4:
				w.Advance(w.Now().Add(64 * time.Second))
				continue
			}
			if checkAt(w, edge, "u").Allowed {
				admitted = append(admitted, w.Now())
			}
			w.Advance(w.Now().Add(time.Duration(700+rnd.IntN(900)) * time.Millisecond))
		}
		most, first := 0, 0
		for i, at := range admitted {
			for at.Sub(admitted[first]) >= 5*time.Minute {
				first++
			}
			most = max(most, i-first+1)
		}
		t.Logf("seed %d: %d of %d edges admitted, %d in five minutes at the most", seed, len(admitted), len(edges), most)
		if most > 6*of*11/10 || len(admitted) < 20*of {
			t.Errorf("seed %d: %d admitted, %d in five minutes at the most, want at least %d, and %d at the most", seed, len(admitted), most, 20*of, 6*of*11/10)
		}
	}
}

// checkAt is check by the edge's own clock.
func checkAt(w *World, edge, user string) limit.Decision {
	n := w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	w.Touch()
	return n.Check(w.NowAt(edge), req)
}
