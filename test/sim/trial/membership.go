package trial

import (
	"math/rand/v2"
	"time"
)

// Who is there changes: edges join later, or leave for good, and so does a whole
// region, which the others have in their configuration from the start. What an edge
// had told before it left stays counted; who joins is told all that counts.

// membership plans who joins, and who leaves. The first edge stays.
func (t *trial) membership() {
	all := append([]string(nil), t.w.Edges()...)
	rnd := t.stream("membership")
	if t.has[NewRegion] && t.regions > 1 {
		last := t.regionNames[t.regions-1]
		for _, v := range t.w.Servers(last) {
			t.w.Stop(v)
		}
		for _, name := range all {
			if t.w.Site(name).Region == last {
				t.w.Depart(name)
			}
		}
		at := start.Add(time.Duration((0.2 + 0.6*rnd.Float64()) * float64(t.faulty)))
		t.actions = append(t.actions, action{at, NewRegion, func() error { return t.open(last, all) }})
	}
	if t.has[Depart] {
		for _, name := range all[1:] {
			if rnd.IntN(3) == 0 {
				t.w.Depart(name)
			}
		}
	}
	t.episodes(Depart, 1500*time.Millisecond, 0, func(rnd *rand.Rand) (func() error, error) {
		if len(all) == 1 {
			return nil, nil
		}
		name := all[1+rnd.IntN(len(all)-1)]
		switch s := t.w.Site(name); {
		case s.There():
			t.line("%s leaves", name)
			t.died, t.departed[name] = true, true
			delete(t.loaded, name)
			t.w.Depart(name)
		case !t.departed[name]:
			t.line("%s joins", name)
			return nil, t.w.Join(name)
		}
		return nil, nil
	})
}

// open has a region begin that was not there: its aggregators, and its edges.
func (t *trial) open(region string, edges []string) error {
	t.line("%s joins", region)
	for _, v := range t.w.Servers(region) {
		if v.Aggregator() == nil {
			if err := t.start(v); err != nil {
				return err
			}
		}
	}
	for _, name := range edges {
		if s := t.w.Site(name); s.Region == region && !t.departed[name] {
			if err := t.w.Join(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// joinAll has all join that have not yet.
func (t *trial) joinAll() error {
	for _, region := range t.regionNames {
		for _, name := range t.edgesOf[region] {
			if !t.departed[name] {
				if err := t.w.Join(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
