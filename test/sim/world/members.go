package world

import (
	"context"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// membership is an aggregator's part in the region: what regional.Run does
// about it, on virtual time.
type membership struct {
	beaten  time.Time
	serves  uint64    // lanes that it serves, a bit each, as last looked
	leaving time.Time // when it took its leave; zero: it did not
	hangsUp time.Time // when it serves no longer, as it takes its leave
	returns bool      // it starts anew when it is gone
}

// How long who leaves serves on where there are others, and how long it may take to
// tell other regions the rest: as regional.Run does it.
const (
	farewell = 250 * time.Millisecond
	lastWord = regionTimeout
)

// joinServer has an aggregator that starts share the lanes. Where nobody answers
// its question it need not listen.
func (w *World) joinServer(h *hub, v *Server) {
	v.membership = membership{}
	if w.cfg.Aggregators == 1 {
		return
	}
	now := v.clock.at(w.now)
	v.aggregator.Join(now)
	for _, other := range h.servers {
		if other != v && other.aggregator != nil && other.leaving.IsZero() && other.aggregator.Beat(other.clock.at(w.now)) != nil {
			return
		}
	}
	v.aggregator.Found(now)
}

// runMember has an aggregator look who is silent, and say that it lives.
func (w *World) runMember(h *hub, v *Server) {
	if w.cfg.Aggregators == 1 {
		return
	}
	now := v.clock.at(w.now)
	v.aggregator.Assign(now)
	serves := uint64(0)
	for lane := range w.cfg.Lanes {
		if v.aggregator.Serves(lane) {
			serves |= 1 << lane
		}
	}
	gained := serves &^ v.serves
	v.serves = serves
	if v.leaving.IsZero() && (gained != 0 || w.now.Sub(v.beaten) >= regional.BeatEvery) {
		v.beaten = w.now
		w.beat(h, v, v.aggregator.Beat(now))
	}
}

// beat tells the others of a region; nil tells nothing.
func (w *World) beat(h *hub, v *Server, payload []byte) {
	if payload == nil {
		return
	}
	w.trace.add(w.now, "beat", v.Name, payload)
	for _, other := range h.servers {
		if other == v {
			continue
		}
		w.send(w.path(v.Name, other.Name, &w.within), len(payload), func() {
			if other.aggregator != nil {
				_ = other.aggregator.HearBeat(other.clock.at(w.now), payload) // it counts what it refuses
			}
		})
	}
}

// serving is who of a region may get what is sent to the owner of a lane at an instant.
func (h *hub) serving(lane int, now time.Time) (up []*Server) {
	for _, v := range h.servers {
		if v.aggregator != nil && v.aggregator.Serves(lane) && !v.hungUp(now) {
			up = append(up, v)
		}
	}
	return up
}

// gone says that who leaves has told all, or may wait no longer.
func (v *Server) gone(now time.Time) bool {
	return v.hungUp(now) && (v.aggregator.Untold() == 0 || now.Sub(v.hangsUp) >= lastWord)
}

// hungUp says that who leaves gets nothing any more that is sent to an owner.
func (v *Server) hungUp(now time.Time) bool { return !v.leaving.IsZero() && !now.Before(v.hangsUp) }

// Leave has an aggregator take its leave, as one does that is asked to stop: it
// gives its lanes away, and is gone when it has told all.
func (w *World) Leave(v *Server) {
	if v.leaving, v.hangsUp = w.now, w.now; !v.aggregator.Alone() {
		v.hangsUp = w.now.Add(farewell)
	}
	w.beat(w.regions[v.Region], v, v.aggregator.Leave(v.clock.at(w.now)))
}

// Leaves says that an aggregator takes its leave.
func (w *World) Leaves(v *Server) bool { return v.aggregator != nil && !v.leaving.IsZero() }

// Return starts an aggregator that takes its leave, or has gone, anew.
func (w *World) Return(v *Server) error {
	if v.aggregator != nil { // or somebody else has started it meanwhile
		v.returns = true
		return nil
	}
	return w.Start(v)
}

// retire ends an aggregator that leaves, when the time has come.
func (w *World) retire(h *hub, v *Server) {
	if !v.gone(w.now) {
		return
	}
	_ = v.aggregator.Sync(context.Background(), v.clock.at(w.now))
	returns := v.returns
	v.aggregator = nil
	if returns {
		if err := w.startServer(h, v); err != nil {
			panic(err) // it ran before, by the same configuration
		}
	}
}

// Split keeps one aggregator of a region from hearing another, or has it hear it
// again.
func (w *World) Split(from, to *Server, cut bool) {
	w.path(from.Name, to.Name, &w.within).cut = cut
}

// Within is the link between the aggregators of a region.
func (w *World) Within() *Link { return &w.within }
