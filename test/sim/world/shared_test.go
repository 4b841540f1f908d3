package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// deploy stops one edge after the other as they are asked to, and starts each anew; meanwhile the user
// asks as before.
func deploy(t *testing.T, w *World, edges []string, every time.Duration) {
	t.Helper()
	pause := func() { denials(w, edges, max(1, int(2500*time.Millisecond/every)), every) }
	for _, e := range edges {
		w.Depart(e)
		pause()
		if err := w.Join(e); err != nil {
			t.Fatal(err)
		}
		pause()
	}
}

// What the lives before a deploy spent is nobody's to share until it has left the window, and no longer:
// what is left is shared by all who ask, and none of them has nothing while others have rights that
// they do not use.
func TestAfterADeployAllHaveAPart(t *testing.T) {
	for _, c := range []struct {
		regions, edges int
		limit          uint64
		per            time.Duration
		part           float64 // of the limit that is asked for
		algorithm      string
	}{
		{1, 4, 600, 10 * time.Minute, .45, ""}, {1, 2, 600, time.Minute, .45, ""}, {2, 2, 600, time.Minute, .45, ""}, {5, 2, 6000, time.Minute, .45, ""},
		{1, 4, 600, 10 * time.Minute, .75, ""}, {2, 2, 600, 10 * time.Minute, .75, "fixed_window"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := wideOf(t, c.regions, c.edges, func(cfg *Config) { cfg.Seed = 5 }, limit.RateSpec{Name: "r", Limit: c.limit, Per: c.per, Algorithm: c.algorithm, Consistency: "strict"})
			w.Advance(start.Add(30*time.Second + c.per + c.per/10)) // the log grants
			edges := append([]string{}, w.Edges()...)
			every := time.Duration(float64(c.per) * float64(len(edges)) / (float64(c.limit) * c.part))
			ask := func(d time.Duration) (denied, asked int) {
				times := int(d / every)
				return denials(w, edges, times, every), times * len(edges)
			}
			ask(c.per * 17 / 10) // nearly to the end of an aligned window
			deploy(t, w, edges, every)
			ask(c.per / 60)
			if denied, asked := ask(c.per * 5 / 6); denied > asked/100 {
				t.Errorf("after a deploy %d of %d requests were denied, want next to none: a part of %.2f of the limit is asked for", denied, asked, c.part)
			}
		})
	}
}

// What many users have left is returned, too, however much there is to say of what they spent.
func TestADeployCostsManyUsersNoRights(t *testing.T) {
	const users = 500
	w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes = 9, 1 }, limit.RateSpec{Name: "r", Limit: 20, Per: time.Hour, Consistency: "strict"})
	w.Advance(start.Add(30*time.Second + 63*time.Minute)) // the log grants
	edges := append([]string{}, w.Edges()...)
	round := func() (denied int) {
		for i := range users {
			for _, e := range edges {
				if !check(w, e, fmt.Sprint("u", i)).Allowed {
					denied++
				}
			}
			w.Advance(w.Now().Add(2 * time.Minute / users))
		}
		return denied
	}
	for range 4 { // 8 of 20, at four moments each
		round()
	}
	for _, e := range edges {
		w.Depart(e)
		w.Advance(w.Now().Add(2500 * time.Millisecond))
		if err := w.Join(e); err != nil {
			t.Fatal(err)
		}
		w.Advance(w.Now().Add(5 * time.Second))
	}
	round() // those who have nothing yet ask
	for i := range 3 {
		if denied := round(); denied > 0 {
			t.Errorf("round %d after a deploy: %d of %d requests were denied, with 10 of 20 used or less", i+1, denied, 2*users)
		}
	}
}
