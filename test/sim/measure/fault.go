package measure

import (
	"slices"
	"time"
)

// fault befalls the world at some time.
type fault struct {
	at time.Time
	do func() error
}

// faults are those of the scenario and its conditions, in the order of time.
func (r *run) faults() (out []fault) {
	w, o := r.w, r.o
	for _, f := range o.Scenario.Faults {
		from := start.Add(f.From.Of(o.Window))
		until := from.Add(f.For.Of(o.Window))
		if f.Cut > 0 {
			region := nameOf((f.Cut - 1) % o.Regions)
			out = append(out, fault{from, func() error { w.Cut(region, true); return nil }},
				fault{until, func() error { w.Cut(region, false); return nil }})
			continue
		}
		region := nameOf((f.Restart - 1) % o.Regions)
		out = append(out, fault{from, func() error {
			for _, v := range w.Servers(region) {
				w.Stop(v)
			}
			w.Store(region).Wipe()
			return nil
		}}, fault{until, func() error {
			for _, v := range w.Servers(region) {
				if err := w.Start(v); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	out = append(out, r.changes()...)
	slices.SortStableFunc(out, func(a, b fault) int { return a.at.Compare(b.at) })
	return out
}

// changes are edges that crash, or leave and join again, as the conditions say.
func (r *run) changes() (out []fault) {
	c, rnd := &r.o.Conditions, stream(r.o.Seed, "changes", 0)
	every := max(c.CrashEvery, c.ChurnEvery)
	if every == 0 {
		return nil
	}
	for after := every; after < r.o.Scenario.Lasts.Of(r.o.Window); after += every {
		at, name := start.Add(after), r.edges[rnd.IntN(len(r.edges))]
		if c.CrashEvery > 0 {
			out = append(out, fault{at, func() error { return r.w.Crash(name) }})
			continue
		}
		out = append(out, fault{at, func() error { r.w.Depart(name); return nil }},
			fault{at.Add(every - time.Millisecond), func() error { return r.w.Join(name) }})
	}
	return out
}
