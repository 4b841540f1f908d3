package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// Six regions whose aggregators have places for a part of the keys that are in use,
// each with two homes. What others did of a key then stands in no memory of a region
// for long, but its edges are to hear of it as they do where there are places enough.
func TestHomesHoldLimitsWithFewPlaces(t *testing.T) {
	t.Parallel()
	const keys, limit = 100, 20
	const most = keys * limit * 3 / 100
	for _, places := range []int{keys / 20, keys / 6} {
		cfg := Config{Rules: rules(hourly(limit)), Start: start, Lanes: 1, Targets: regional.TargetsHomes, Seed: 1, ServerKeys: places}
		for r := range 6 {
			name := fmt.Sprint("r", r)
			cfg.Regions = append(cfg.Regions, Region{Name: name, Edges: []string{name + "-1"}})
		}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(start.Add(2 * time.Second))
		var admitted [keys]int
		for i := range 2 * limit { // each user every two seconds, at the next region
			for u := range keys {
				if check(w, w.Edges()[(i+u)%6], fmt.Sprint("u", u)).Allowed {
					admitted[u]++
				}
				w.Advance(w.Now().Add(2 * time.Second / keys))
			}
		}
		over := 0
		for _, n := range admitted {
			over += max(0, n-limit)
		}
		if over > most {
			t.Errorf("%d places for %d keys: %d requests let in above limits of %d, want at most %d", places, keys, over, limit, most)
		}
	}
}
