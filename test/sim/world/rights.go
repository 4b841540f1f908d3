package world

import (
	"context"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/regional/escrow"
)

// claim carries what an edge says of its rights to the authority, by way of its own
// region, and the answer back. Neither waits for the other: an edge asks again.
func (w *World) claim(h *hub, s *Site, c edge.Claiming) {
	w.trace.add(w.now, "claim", s.Name, c.Payload)
	home, node := w.regions[c.Home], s.node
	if home == nil {
		return
	}
	w.hop(s, h, home, len(c.Payload), func() {
		v := w.pick(home, c.Lane)
		if v == nil {
			return
		}
		reply := v.aggregator.HandleClaims(context.Background(), c.Subject, c.Payload)
		w.trace.add(w.now, "granted", v.Name, reply)
		if reply == nil {
			return
		}
		w.hopBack(home, h, s, len(reply), func() { w.hearGrants(s, node, reply) })
	})
}

// hop carries a frame from an edge to a region, which need not be its own.
func (w *World) hop(s *Site, own, to *hub, size int, deliver func()) {
	w.send(w.path(s.Name, own.name, &w.toRegion), size, func() {
		if to == own {
			deliver()
			return
		}
		w.send(w.path(own.name, to.name, &w.between), size, deliver)
	})
}

// hopBack carries one from a region to an edge.
func (w *World) hopBack(from, own *hub, s *Site, size int, deliver func()) {
	last := func() { w.send(w.path(own.name, s.Name, &w.toRegion), size, deliver) }
	if from == own {
		last()
		return
	}
	w.send(w.path(from.name, own.name, &w.between), size, last)
}

// grant carries what edges of a region are to hear unasked.
func (w *World) grant(from *hub, v *Server, p escrow.Push) {
	w.trace.add(w.now, "grant", v.Name, p.Payload)
	to := w.regions[p.Region]
	if to == nil {
		return
	}
	for _, s := range to.sites {
		node := s.node
		w.hopBack(from, to, s, len(p.Payload), func() { w.hearGrants(s, node, p.Payload) })
	}
}

// hearGrants has an edge hear them, if it is still the one that is meant: who is
// started again has nothing by that name.
func (w *World) hearGrants(s *Site, node *edge.Node, payload []byte) {
	if s.node == nil || s.node != node {
		return
	}
	if err := s.node.ReceiveGrants(s.clock.at(w.now), payload); err != nil {
		panic(err) // no path spoils frames
	}
	if w.cfg.OnGrants != nil {
		w.cfg.OnGrants(s, payload)
	}
}
