package world

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// skewed is a world of three regions whose clocks are all off by up to most.
func skewed(t *testing.T, seed uint64, most time.Duration) *World {
	t.Helper()
	cfg := Config{Start: start, Seed: seed, Aggregators: 2, Rules: rules(limit.RateSpec{Limit: 1000, Per: time.Second})}
	for _, r := range []string{"eu", "us", "ap"} {
		cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2"}})
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	edges, regions := w.Links()
	edges.Jitter, regions.Jitter = time.Millisecond, 8*time.Millisecond
	rnd := rand.New(rand.NewPCG(seed, 1))
	off := func() time.Duration { return time.Duration(rnd.Int64N(int64(2*most))) - most }
	for _, name := range w.Edges() {
		w.SetClock(name, off(), 0)
	}
	for _, r := range cfg.Regions {
		for _, v := range w.Servers(r.Name) {
			w.SetServerClock(v, off(), 0)
		}
	}
	return w
}

// apart is how far the corrected clocks of all edges are apart.
func apart(w *World) time.Duration {
	var first, last time.Time
	for i, name := range w.Edges() {
		now := w.NowAt(name)
		at := now.Add(w.Node(name).Stats(now).ClockCorrection)
		if i == 0 || at.Before(first) {
			first = at
		}
		if i == 0 || at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}

// Clocks that are off by 50 ms are brought within 20 of each other, across
// oceans; a machine whose clock is off by half an hour counts with the others
// within a second.
func TestClocksAreCorrected(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) {
			w := skewed(t, seed+1, 50*time.Millisecond)
			before := apart(w)
			traffic := func(length time.Duration) {
				for end := w.Now().Add(length); w.Now().Before(end); w.Advance(w.Now().Add(50 * time.Millisecond)) {
					for _, name := range w.Edges() {
						check(w, name, "u")
					}
				}
			}
			traffic(40 * time.Second)
			after := apart(w)
			if t.Logf("%v apart, %v after 40 s", before, after); after > 20*time.Millisecond {
				t.Errorf("clocks are %v apart after 40 s, %v before, want 20 ms", after, before)
			}
			w.SetClock("us-2", 30*time.Minute, 0)
			traffic(time.Second)
			if got := apart(w); got > 25*time.Millisecond {
				t.Errorf("clocks are %v apart a second after one was set by half an hour, want 25 ms", got)
			}
			if st := w.Node("us-2").Stats(w.NowAt("us-2")); st.ClockSteps != 1 {
				t.Errorf("its clock was set %d times, want once", st.ClockSteps)
			}
		})
	}
}
