package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// denials is how often edges that are there deny one user, each asked so many times.
func denials(w *World, edges []string, times int, every time.Duration) (denied int) {
	for range times {
		w.Advance(w.Now().Add(every))
		for _, e := range edges {
			if w.Site(e).There() && !check(w, e, "u").Allowed {
				denied++
			}
		}
	}
	return denied
}

// Edges that stop as they are asked to return what rights they did not spend: a limit that lasts for
// long, of which little is used, admits what it did after one deploy of all edges, and the next.
func TestDeploysCostNoRights(t *testing.T) {
	for _, c := range []struct {
		regions, edges int
		per            time.Duration
	}{{1, 2, 24 * time.Hour}, {2, 3, time.Hour}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := wideOf(t, c.regions, c.edges, func(*Config) {}, limit.RateSpec{Name: "r", Limit: 10_000, Per: c.per, Consistency: "strict"})
			w.Advance(start.Add(30*time.Second + c.per + c.per/50)) // the log grants
			edges := append([]string{}, w.Edges()...)
			ask := func(times int) (denied int) { return denials(w, edges, times, 5*time.Second) }
			ask(12)
			for deploy := range 3 {
				for _, e := range edges {
					w.Depart(e)
					ask(1)
					if err := w.Join(e); err != nil {
						t.Fatal(err)
					}
					ask(2)
				}
				if denied := ask(24); denied > 0 {
					t.Errorf("after deploy %d %d of %d requests were denied, want none: hardly any of the limit is used", deploy+1, denied, 24*len(edges))
				}
			}
		})
	}
}

// Nor do they where the first that an edge says as it stops is lost: it has two seconds.
func TestDeploysCostNoRightsThoughAFrameIsLost(t *testing.T) {
	for name, away := range map[string]func(w *World, edge string, away bool) error{
		"the edge is cut off": func(w *World, edge string, away bool) error { w.CutPath(edge, "r0", away); return nil },
		"the aggregator is started anew": func(w *World, _ string, away bool) error {
			if v := w.Servers("r0")[0]; !away {
				return w.Start(v)
			}
			w.Stop(w.Servers("r0")[0])
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Seed = 3 }, limit.RateSpec{Name: "r", Limit: 10_000, Per: 24 * time.Hour, Consistency: "strict"})
			w.Advance(start.Add(30*time.Second + 25*time.Hour)) // the log grants
			edges := append([]string{}, w.Edges()...)
			ask := func(times int) (denied int) { return denials(w, edges, times, 500*time.Millisecond) }
			ask(20)
			for stop := range 4 {
				e := edges[stop%2]
				for _, is := range []bool{true, false} {
					if err := away(w, e, is); err != nil {
						t.Fatal(err)
					}
					w.Depart(e) // the second time it is gone
					w.Advance(w.Now().Add(300 * time.Millisecond))
				}
				ask(5)
				if err := w.Join(e); err != nil {
					t.Fatal(err)
				}
				ask(20)
				if denied := ask(20); denied > 0 {
					t.Errorf("after stop %d %d of 40 requests were denied, want none", stop+1, denied)
				}
			}
		})
	}
}

// Nor does a flood of other keys cost the rights of one that is forgotten for it, time and again.
func TestFloodsCostNoRights(t *testing.T) {
	docs := []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{
		{Name: "day", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "d", Limit: 100, Per: 24 * time.Hour, Consistency: "strict"}}},
		{Name: "other", Key: []string{"ip"}, Rates: []limit.RateSpec{{Name: "m", Limit: 10, Per: time.Minute}}},
	}}}
	w := wideOf(t, 1, 2, func(c *Config) { c.Seed, c.MaxKeys, c.Rules = 1, 8192, docs }, limit.RateSpec{Limit: 1, Per: time.Second})
	w.Advance(start.Add(30*time.Second + 25*time.Hour))
	ask := func(key, value string) bool {
		n := w.Node(w.Edges()[0])
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set(key, value)
		w.Touch()
		return n.Check(w.Now(), req).Allowed
	}
	forgotten := 0
	for round := range 6 {
		if !ask("user", "v") {
			forgotten++ // it asks for rights anew
		}
		w.Advance(w.Now().Add(300 * time.Millisecond))
		if !ask("user", "v") {
			t.Errorf("round %d: denied", round)
		}
		for f := range 6000 {
			if ask("ip", fmt.Sprint(round, "-", f)); f%40 == 0 {
				w.Advance(w.Now().Add(100 * time.Millisecond))
			}
		}
		w.Advance(w.Now().Add(10 * time.Second))
	}
	if forgotten < 2 {
		t.Errorf("the key was forgotten %d times: this tests nothing", forgotten)
	}
}
