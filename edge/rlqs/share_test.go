package rlqs

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// TestTotalsStayWithinTheLimit drives data planes that want several times a limit, and
// checks each window: no more than the limit and what was granted
// and not yet reported as spent when it began; and hardly more than the limit in all.
func TestTotalsStayWithinTheLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  limit.RateSpec
		rps   []float64
		least float64 // of the limit, once it is under way
	}{
		{"one", fixed(1000, 10*time.Second), []float64{300}, 0.95},
		{"many", fixed(1000, 10*time.Second), []float64{100, 100, 100, 100, 100, 100, 100, 100}, 0.9},
		{"unequal", fixed(1000, 10*time.Second), []float64{400, 40, 4}, 0.9},
		{"a small limit", fixed(10, 10*time.Second), []float64{20, 20, 20, 20}, 0.7},
		{"a short window", fixed(500, time.Second), []float64{500, 500, 500}, 0.5},
		{"sub-windows", limit.RateSpec{Limit: 1000, Per: 10 * time.Second}, []float64{100, 100, 100}, 0.85},
		{"sub-windows in full", limit.RateSpec{Limit: 1000, Per: 10 * time.Second, Oldest: "full"}, []float64{100, 100, 10}, 0.8},
		{"a token bucket", limit.RateSpec{Algorithm: "token_bucket", Capacity: 200, Refill: limit.Flow{Units: 100, Per: time.Second}}, []float64{100, 100, 100}, 0.85},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, perUser(c.rate))
			for i, rps := range c.rps {
				w.join(string(rune('a'+i)), rps, dataplane.Settings{NoAssignment: denyAll})
			}
			window, most := c.rate.Per, c.rate.Limit
			if c.rate.Capacity > 0 { // of a bucket: what may come in 10 s
				window, most = 10*time.Second, c.rate.Capacity+10*c.rate.Refill.Units
			}
			// rolling is what was admitted and outstanding at each step, for limits that hold for any window.
			type moment struct{ admitted, outstanding uint64 }
			var rolling []moment
			each := func() {
				if c.rate.Oldest != "full" && c.rate.Capacity == 0 {
					return
				}
				rolling = append(rolling, moment{uint64(w.admitted()), w.outstanding()})
				if i := len(rolling) - 1 - int(window/step); i >= 0 {
					if got := rolling[len(rolling)-1].admitted - rolling[i].admitted; got > most+rolling[i].outstanding {
						t.Fatalf("%d admitted in the %v until %v, of %d and %d that were outstanding", got, window, w.now.Sub(start), most, rolling[i].outstanding)
					}
				}
			}
			const windows = 6
			for i := range windows {
				before, held := w.admitted(), w.outstanding()
				w.run(window, each)
				got := w.admitted() - before
				t.Logf("window %d: %d admitted of %d, %d were outstanding", i, got, most, held)
				if uint64(got) > most+held {
					t.Errorf("window %d: %d admitted, of %d and %d that were outstanding when it began", i, got, most, held)
				}
			}
			of := float64(most)
			if c.rate.Capacity > 0 {
				of -= float64(c.rate.Capacity)
			}
			if got := float64(w.admitted()) / windows / of; got < c.least || got > 1.02 {
				t.Errorf("%.2f of the limit were admitted a window, want %v and hardly more than all", got, c.least)
			}
		})
	}
}

// TestWithoutContentionAllPass: data planes that want less than the limit are not held up,
// but for their first moments.
func TestWithoutContentionAllPass(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(100_000, time.Minute)))
	for _, rps := range []float64{200, 20, 2} {
		w.join("host", rps, dataplane.Settings{})
	}
	w.run(3*time.Second, nil)
	early := 0
	for _, p := range w.pops {
		early += p.denied
	}
	if early > 200 {
		t.Errorf("%d denied in the first 3 s", early)
	}
	w.run(20*time.Second, nil)
	for _, p := range w.pops {
		early -= p.denied
	}
	if early != 0 {
		t.Errorf("%d denied later, of a limit that is far", -early)
	}
}

// TestAllIsCharged: after all have gone quiet and told what they used, the node has
// counted what was admitted, and nothing else.
func TestAllIsCharged(t *testing.T) {
	for _, c := range []struct {
		name string
		no   dataplane.Settings
	}{
		{"deny before the first assignment", dataplane.Settings{NoAssignment: denyAll}},
		{"allow before the first assignment", dataplane.Settings{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, perUser(fixed(100_000, time.Hour)))
			for _, rps := range []float64{200, 70, 10} {
				w.join("host", rps, c.no)
			}
			w.run(20*time.Second, nil)
			for _, p := range w.pops {
				p.rps = 0
			}
			w.run(15*time.Second, nil)
			admitted, used := uint64(w.admitted()), w.used()
			held := w.held()
			if used < admitted || used > admitted+2*held {
				t.Errorf("%d are counted, %d were admitted, and %d are held", used, admitted, held)
			}
			if held > 3 {
				t.Errorf("%d are held by 3 data planes at rest, want 1 each", held)
			}
		})
	}
}

// TestSharesByDemand: a contended limit is shared by what each wants, and what one that
// comes to rest had goes to the others.
func TestSharesByDemand(t *testing.T) {
	w := newWorld(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Per: 10 * time.Second}))
	a := w.join("a", 300, dataplane.Settings{NoAssignment: denyAll})
	b := w.join("b", 100, dataplane.Settings{NoAssignment: denyAll})
	w.run(20*time.Second, nil)
	a0, b0 := a.admitted, b.admitted
	w.run(40*time.Second, nil)
	gotA, gotB := a.admitted-a0, b.admitted-b0
	if ratio := float64(gotA) / float64(gotB); ratio < 2 || ratio > 4.5 {
		t.Errorf("who asks three times as much is admitted %.1f times as much (%d and %d)", ratio, gotA, gotB)
	}
	if both := gotA + gotB; both < 3600 || both > 4100 {
		t.Errorf("both are admitted %d in 40 s, of 4000", both)
	}
	a.rps = 0
	w.run(20*time.Second, nil)
	b0 = b.admitted
	w.run(20*time.Second, nil)
	if got := b.admitted - b0; got < 1600 || got > 2050 {
		t.Errorf("the other is admitted %d in 20 s once the first rests, of 2000", got)
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		room  uint64
		wants []uint64
		want  []uint64
	}{
		{10, []uint64{3, 4}, []uint64{3, 4}},
		{7, []uint64{3, 4}, []uint64{3, 4}},
		{0, []uint64{3, 4}, []uint64{0, 0}},
		{6, []uint64{9, 3}, nil},
		{1, []uint64{1, 1, 1}, nil},
		{maxTokens, []uint64{maxTokens, maxTokens}, nil},
	} {
		total := uint64(0)
		for _, want := range c.wants {
			total += want
		}
		got := shares(c.room, total, c.wants)
		sum := uint64(0)
		for i := range got {
			sum += got[i]
			if got[i] > c.wants[i] {
				t.Errorf("shares(%d, %v) = %v: more than is wanted", c.room, c.wants, got)
			}
		}
		if want := min(c.room, total); sum != want || c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("shares(%d, %v) = %v, want %v, %d in all", c.room, c.wants, got, c.want, want)
		}
	}
}
