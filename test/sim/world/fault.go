package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
)

// clock is a part's own: off by so much, and running off.
type clock struct {
	offset time.Duration
	drift  float64 // seconds a second
	since  time.Time
}

// at is what the clock shows.
func (c *clock) at(now time.Time) time.Time {
	if c.drift == 0 {
		return now.Add(c.offset)
	}
	return now.Add(c.offset + time.Duration(c.drift*float64(now.Sub(c.since))))
}

// SetClock sets an edge's clock: off by so much, and by so many seconds more
// each second.
func (w *World) SetClock(edge string, offset time.Duration, drift float64) {
	w.edges[edge].clock = clock{offset, drift, w.now}
}

// SetServerClock sets an aggregator's clock.
func (w *World) SetServerClock(v *Server, offset time.Duration, drift float64) {
	v.clock = clock{offset, drift, w.now}
}

// NowAtServer is the time by an aggregator's clock.
func (w *World) NowAtServer(v *Server) time.Time { return v.clock.at(w.now) }

// Site is the edge of that name and where it runs; nil where there is none.
func (w *World) Site(edge string) *Site { return w.edges[edge] }

// Lives is how often the edge was started.
func (s *Site) Lives() int { return s.lives }

// NowAt is the time by an edge's clock.
func (w *World) NowAt(edge string) time.Time { return w.edges[edge].clock.at(w.now) }

// There says that an edge runs there.
func (s *Site) There() bool { return s.node != nil }

// Node is the edge itself; nil where none runs.
func (s *Site) Node() *edge.Node { return s.node }

// Crash kills an edge and starts it anew: it knows nothing.
func (w *World) Crash(edge string) error { return w.startSite(w.edges[edge]) }

// Depart ends an edge, for good or until it joins anew: nobody asks it anything any more.
// It goes on for as long as it takes to tell all, and that it leaves, 2 s at the most.
func (w *World) Depart(edge string) {
	s := w.edges[edge]
	if s.node == nil {
		return
	}
	h, is := w.regions[s.Region], func(other *Site) bool { return other == s }
	going := *s
	w.leaving = append(w.leaving, departure{site: &going, hub: h, until: w.now.Add(edgeFarewell), next: w.now})
	w.Touch()
	s.node = nil
	s.lives++ // the last one is over
	h.sites = slices.DeleteFunc(h.sites, is)
	w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == edge })
}

// departure is an edge that stops.
type departure struct {
	site  *Site
	hub   *hub
	until time.Time
	next  time.Time // when it says so again
	told  bool      // it has said so
}

// edgeFarewell is how long an edge that stops goes on sending.
const edgeFarewell = 2 * time.Second

// runLeaving lets those edges tell what they have to tell which stop.
func (w *World) runLeaving() {
	for i := range w.leaving {
		d := &w.leaving[i]
		if w.now.Before(d.next) {
			continue
		}
		if d.told && d.site.node.Left(d.site.clock.at(w.now)) {
			d.until = w.now
			continue
		}
		d.told, d.next = true, w.now.Add(w.cfg.Urgent)
		for _, f := range d.site.node.Leave(d.site.clock.at(w.now)) {
			w.flush(d.hub, d.site, f)
		}
		for _, c := range d.site.node.Claims(d.site.clock.at(w.now)) {
			w.claim(d.hub, d.site, c)
		}
	}
	w.leaving = slices.DeleteFunc(w.leaving, func(d departure) bool {
		over := !w.now.Before(d.until)
		if over && !d.site.node.Left(d.site.clock.at(w.now)) {
			w.untold = w.now
		}
		return over
	})
}

// Untold is when an edge last departed that nobody answered to the end, so that its shares
// are kept for it; zero: never.
func (w *World) Untold() time.Time { return w.untold }

// Join starts an edge that has departed: it knows nothing.
func (w *World) Join(edge string) error {
	s := w.edges[edge]
	if s.node != nil {
		return nil
	}
	if err := w.startSite(s); err != nil {
		return err
	}
	h := w.regions[s.Region]
	h.sites, w.names = append(h.sites, s), append(w.names, edge)
	slices.SortFunc(h.sites, func(a, b *Site) int { return cmp.Compare(a.place, b.place) })
	slices.SortFunc(w.names, func(a, b string) int { return cmp.Compare(w.edges[a].place, w.edges[b].place) })
	w.Touch()
	return nil
}

// SetRules has one edge load rules, or all where edge is "": those started later
// too.
func (w *World) SetRules(edge string, rules []limit.Document) error {
	if edge == "" {
		w.cfg.Rules = rules
		if err := w.tellServers(rules); err != nil {
			return err
		}
	}
	for _, name := range w.names {
		if edge == "" || name == edge {
			if err := w.load(w.edges[name], rules); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellServers has all aggregators tell the truth by rules.
func (w *World) tellServers(rules []limit.Document) error {
	set, err := compile(rules)
	if err != nil {
		return err
	}
	for _, h := range w.order {
		for _, v := range h.servers {
			if v.aggregator != nil {
				v.aggregator.SetRules(set)
			}
		}
	}
	return nil
}

// Servers are the aggregators of a region, those that are down too.
func (w *World) Servers(region string) []*Server { return w.regions[region].servers }

// Aggregator is what runs there; nil while it is down.
func (v *Server) Aggregator() *regional.Aggregator { return v.aggregator }

// Lives is how often the aggregator was started.
func (v *Server) Lives() int { return v.lives }

// Stop kills an aggregator.
func (w *World) Stop(v *Server) { v.aggregator = nil }

// Start starts an aggregator that was stopped, or kills it and starts it anew.
func (w *World) Start(v *Server) error { return w.startServer(w.regions[v.Region], v) }

// Aim has aggregators that start from now on tell other targets.
func (w *World) Aim(targets regional.Targets) { w.cfg.Targets = targets }

// Store is a region's.
func (w *World) Store(region string) *Store { return w.regions[region].store }

// RightsLog is a region's.
func (w *World) RightsLog(region string) *RightsLog { return w.regions[region].rights }

// Links are those between an edge and its region, and between two regions: what
// is changed holds for what is sent from now on.
func (w *World) Links() (edges, regions *Link) { return &w.toRegion, &w.between }

// CutPath loses all frames of one direction, between an edge and its region or
// between two regions, until it is mended.
func (w *World) CutPath(from, to string, cut bool) { w.known(from, to).cut = cut }

// Freeze holds all frames of one direction up until it is thawed: then they
// arrive, late as they are.
func (w *World) Freeze(from, to string, frozen bool) {
	p := w.known(from, to)
	if p.frozen && !frozen {
		w.thaw(p)
	}
	p.frozen = frozen
}

// Slow has what is sent in one direction from now on take so much longer than over
// other links of the kind; 0: no longer.
func (w *World) Slow(from, to string, longer time.Duration) { w.known(from, to).longer = longer }

// known is the path between two parts by their names.
func (w *World) known(from, to string) *path {
	link := &w.between
	if w.edges[from] != nil || w.edges[to] != nil {
		link = &w.toRegion
	}
	return w.path(from, to, link)
}

// Inject sends a region a frame that none of its edges made, over a path of its
// own; answered is called when somebody has answered it. The bus has proved who
// the subject names, and no more.
func (w *World) Inject(region, subject string, payload []byte, answered func(by *Server, reply []byte)) {
	h := w.regions[region]
	w.trace.add(w.now, "inject", region, payload)
	w.send(w.path("injected", region, &Link{Delay: w.cfg.EdgeDelay}), len(payload), func() {
		if v, reply := w.answer(h, subject, payload); v != nil {
			answered(v, reply)
		}
	})
}
