package world

import (
	"container/heap"
	"context"
	"time"

	"github.com/spillgate/spillgate/regional"
)

const (
	// settle is how long after a request something may still be under way:
	// flush, exchange, pushes, an edge that asks once more, and, after a cut,
	// a timeout and a lane's rest before them.
	settle = 3 * time.Second
	// wake is how long before the end of a jump the parts look again: time for
	// a heartbeat, there and back over the longest delay.
	wake = 2 * time.Second
)

// Advance moves virtual time forward to t and does all that falls due.
//
// The parts look every Urgent, as the daemons' tickers do. Where nothing has
// happened for a while, nothing can but heartbeats, retirement, which is
// judged by the clock whenever it matters, and the refresh of resting counts:
// then time jumps to the next refresh, or to shortly before t, so that at t
// all parts have heard of each other lately. An hour of silence costs as much
// as a few seconds.
func (w *World) Advance(t time.Time) {
	for {
		quiet := w.quiet(t)
		if quiet && len(w.events) == 0 {
			w.jump(t.Add(-wake))
			quiet = false
		}
		if w.tick.Before(w.now) {
			w.tick = w.grid(w.now)
		}
		switch {
		case len(w.events) > 0 && !w.events[0].at.After(t) && (quiet || !w.events[0].at.After(w.tick)):
			e := heap.Pop(&w.events).(event)
			w.now = e.at
			e.do()
		case !quiet && !w.tick.After(t):
			w.now = w.tick
			w.look()
			w.tick = w.now.Add(w.step())
		default:
			if t.After(w.now) {
				w.now = t
			}
			return
		}
	}
}

// quiet says that all has settled and t is so far off that a jump pays; no
// part needs to look before it, once the frames under way have arrived.
func (w *World) quiet(t time.Time) bool {
	return w.cuts == 0 && !w.now.Before(w.busy) && t.Sub(w.now) > wake+regionTimeout
}

// jump moves time to latest, or to the next refresh if that is earlier.
func (w *World) jump(latest time.Time) {
	to := latest
	for _, name := range w.names {
		if at := w.edges[name].node.NextRefresh(); !at.IsZero() && at.Before(to) {
			to = at
		}
	}
	if to = w.grid(to.Add(-w.cfg.Urgent)); to.After(w.now) {
		w.now = to
	}
	w.tick = w.now
	w.busy = w.now.Add(settle)
}

// grid is the first instant after t at which parts may look.
func (w *World) grid(t time.Time) time.Time {
	return w.cfg.Start.Add((t.Sub(w.cfg.Start)/w.cfg.Urgent + 1) * w.cfg.Urgent)
}

// step is when parts look again. During a cut they try the other side again
// and again, which needs no small steps.
func (w *World) step() time.Duration {
	if w.cuts > 0 && !w.now.Before(w.busy) {
		return w.cfg.Interval
	}
	return w.cfg.Urgent
}

// look lets every part do what is due, as the loops of the daemons do.
func (w *World) look() {
	for _, h := range w.order {
		for _, s := range h.edges {
			w.runEdge(h, s)
		}
		w.runHub(h)
	}
}

func (w *World) runEdge(h *hub, s *site) {
	if w.now.Sub(s.flushed) >= w.cfg.Interval || s.node.Urgent() {
		s.flushed = w.now
		for _, f := range s.node.Flush(w.now) {
			w.after(w.cfg.EdgeDelay, func() {
				reply := h.aggregator.Handle(context.Background(), w.now, f.Subject, f.Payload)
				w.after(w.cfg.EdgeDelay, func() {
					if err := s.node.Receive(w.now, f.Lane, reply); err != nil {
						s.node.Lost(w.now, f.Lane, f.Seq)
					}
				})
			})
		}
	}
	if w.now.Sub(s.ticked) >= 100*time.Millisecond {
		s.ticked = w.now
		s.node.Tick(w.now)
	}
}

func (w *World) runHub(h *hub) {
	if w.now.Sub(h.sent) >= w.cfg.Interval || h.aggregator.Urgent() {
		h.sent = w.now
		for _, o := range h.aggregator.Exports(w.now) {
			w.export(h, o)
		}
		for _, p := range h.aggregator.Pushes(w.now) {
			for _, s := range h.edges {
				w.after(w.cfg.EdgeDelay, func() { _ = s.node.ReceiveHot(w.now, p.Payload) }) // a refused push is counted by the node
			}
		}
		_ = h.aggregator.Sync(context.Background(), w.now) // the store in memory does not fail
	}
	if w.now.Sub(h.ticked) >= time.Second {
		h.ticked = w.now
		h.aggregator.Tick(w.now)
	}
}

// export carries one frame between regions, or loses it in a cut: then its
// sender waits for the answer in vain.
func (w *World) export(from *hub, o regional.Outgoing) {
	to, sent := w.regions[o.Peer], w.now
	lost := func() {
		w.after(sent.Add(regionTimeout).Sub(w.now), func() { from.aggregator.Lost(w.now, o) })
	}
	apart := func() bool { return from.cut || to.cut }
	if apart() {
		lost()
		return
	}
	w.after(w.cfg.RegionDelay, func() {
		if apart() {
			lost()
			return
		}
		reply := to.aggregator.Handle(context.Background(), w.now, o.Subject, o.Payload)
		w.after(w.cfg.RegionDelay, func() {
			switch {
			case apart():
				lost()
			case from.aggregator.Receive(w.now, o, reply) != nil:
				from.aggregator.Lost(w.now, o)
			}
		})
	})
}

func (w *World) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.events, event{at: w.now.Add(max(d, 0)), serial: w.serial, do: do})
}
