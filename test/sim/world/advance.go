package world

import (
	"container/heap"
	"context"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

const (
	// settle is how long after a request something may still be under way:
	// flush, exchange, pushes, an edge that asks once more, and, after a cut,
	// a timeout and a lane's rest before them.
	settle = 3 * time.Second
	// wake is how long before the end of a jump the parts look again: time for
	// a heartbeat, there and back over the longest delay.
	wake = 2 * time.Second
	// calmStep is more than a beat of aggregators, and less than half of the time
	// after which a silent one is dead.
	calmStep = 300 * time.Millisecond
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
	return w.cuts == 0 && w.cfg.Seed == 0 && !w.now.Before(w.busy) && t.Sub(w.now) > wake+regionTimeout
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
	if w.calm {
		return calmStep
	}
	if w.cuts > 0 && !w.now.Before(w.busy) {
		return w.cfg.Interval
	}
	return w.cfg.Urgent
}

// look lets every part do what is due, as the loops of the daemons do.
func (w *World) look() {
	w.runLeaving()
	for _, h := range w.order {
		for _, s := range h.sites {
			w.runSite(h, s)
		}
		for _, v := range h.servers {
			if v.aggregator != nil {
				w.runServer(h, v)
			}
		}
	}
}

func (w *World) runSite(h *hub, s *Site) {
	now := s.clock.at(w.now)
	var out []edge.Outgoing
	switch {
	case w.now.Sub(s.flushed) >= w.cfg.Interval:
		s.flushed = w.now
		out = s.node.Flush(now)
	case s.node.Urgent():
		out = s.node.FlushUrgent(now)
	}
	for _, f := range out {
		w.flush(h, s, f)
	}
	for _, a := range s.node.Asks(now) {
		w.ask(h, s, a)
	}
	for _, c := range s.node.Claims(now) {
		w.claim(h, s, c)
	}
	if w.now.Sub(s.ticked) >= 100*time.Millisecond {
		s.ticked = w.now
		s.node.Tick(now)
	}
}

// flush carries one frame of an edge to its region.
func (w *World) flush(h *hub, s *Site, f edge.Outgoing) {
	if s.old {
		f.Payload = older[deltasync.Up](f.Payload)
	}
	w.trace.add(w.now, "up", s.Name, f.Payload)
	if w.cfg.OnUp != nil {
		w.cfg.OnUp(s, f.Subject, f.Payload)
	}
	node := s.node // who is started again knows nothing of it
	w.request(request{
		there: w.path(s.Name, h.name, &w.toRegion), back: w.path(h.name, s.Name, &w.toRegion), by: h, timeout: edgeTimeout, size: len(f.Payload),
		handle: func() ([]byte, bool) {
			reply, served := w.handle(h, f.Subject, f.Payload)
			return w.restamp(reply, h.clockOf(f.Lane, w.now), &s.clock), served
		},
		receive: func(reply []byte) {
			if s.node != node {
				return
			}
			if s.old {
				reply = older[deltasync.Down](reply)
			}
			if now := s.clock.at(w.now); node.Receive(now, f.Lane, reply) != nil {
				node.Lost(now, f.Lane, f.Seq)
				return
			}
			w.heard(s, f.Payload, reply)
		},
		lost: func() { node.Lost(s.clock.at(w.now), f.Lane, f.Seq) },
	})
}

// heard shows what an edge has taken in.
func (w *World) heard(s *Site, up, heard []byte) {
	if w.cfg.OnHeard != nil {
		w.cfg.OnHeard(s, up, heard)
	}
}

// ask carries a request for a part of a snapshot. Edges of the first build had
// none.
func (w *World) ask(h *hub, s *Site, a edge.Ask) {
	if s.old {
		s.node.LostSnapshot(s.clock.at(w.now), a)
		return
	}
	w.trace.add(w.now, "snap", s.Name, a.Payload)
	node := s.node
	w.request(request{
		there: w.path(s.Name, h.name, &w.toRegion), back: w.path(h.name, s.Name, &w.toRegion), timeout: regionTimeout, size: len(a.Payload),
		handle: func() ([]byte, bool) { return w.snapshot(h, a) },
		receive: func(reply []byte) {
			if s.node != node {
				return
			}
			if now := s.clock.at(w.now); node.ReceiveSnapshot(now, a, reply) != nil {
				node.LostSnapshot(now, a)
				return
			}
			w.heard(s, nil, reply)
		},
		lost: func() { node.LostSnapshot(s.clock.at(w.now), a) },
	})
}

// snapshot has one of a region's aggregators answer it.
func (w *World) snapshot(h *hub, a edge.Ask) (reply []byte, served bool) {
	v := w.pick(h, a.Lane)
	if v == nil {
		return nil, false
	}
	if reply = v.aggregator.Snapshot(v.clock.at(w.now), a.Payload); reply == nil {
		return nil, false // who asked would hear nothing: it asks again sooner here
	}
	w.trace.add(w.now, "part", v.Name, reply)
	return reply, true
}

// handle has one of a region's aggregators answer a frame of an edge or a region.
func (w *World) handle(h *hub, subject string, payload []byte) (reply []byte, served bool) {
	v, reply := w.answer(h, subject, payload)
	if v == nil {
		return nil, false
	}
	if w.cfg.OnDown != nil {
		w.cfg.OnDown(v, payload, reply)
	}
	return reply, true
}

// answer has one of a region's aggregators answer a frame, whatever it is; nil:
// nobody serves it.
func (w *World) answer(h *hub, subject string, payload []byte) (by *Server, reply []byte) {
	lane := 0
	if len(h.servers) > 1 {
		to, err := deltasync.ParseUp(subject)
		if err != nil {
			return nil, nil
		}
		lane = to.Lane
	}
	v := w.pick(h, lane)
	if v == nil {
		return nil, nil
	}
	reply = v.aggregator.Handle(context.Background(), v.clock.at(w.now), subject, payload)
	w.trace.add(w.now, "down", v.Name, reply)
	return v, reply
}

// pick is who of a region gets what is sent to the owner of a lane; nil: nobody.
func (w *World) pick(h *hub, lane int) *Server {
	up := h.serving(lane, w.now)
	switch len(up) {
	case 0:
		return nil
	case 1:
		return up[0]
	}
	return up[h.rnd.IntN(len(up))]
}

func (w *World) runServer(h *hub, v *Server) {
	now := v.clock.at(w.now)
	if v.hungUp(w.now) {
		w.finish(h, v, now)
		return
	}
	w.runMember(h, v)
	regular, urgent := w.now.Sub(v.sent) >= w.cfg.Interval, v.aggregator.Urgent()
	if regular || urgent {
		exports := v.aggregator.ExportsUrgent
		if regular {
			v.sent = w.now
			exports = v.aggregator.Exports
		}
		for _, o := range exports(now) {
			w.export(h, v, o)
		}
		w.tellEdges(h, v, now)
		_ = v.aggregator.Sync(context.Background(), now) // it tries again
		_ = v.aggregator.KeepRights(context.Background())
		_ = v.aggregator.Inherit(context.Background(), now)
	}
	if w.now.Sub(v.ticked) >= time.Second {
		v.ticked = w.now
		v.aggregator.Tick(now)
	}
	if w.cfg.Audit && w.now.Sub(v.audited) >= regional.AuditEvery {
		v.audited = w.now
		for _, x := range v.aggregator.Audits(now) {
			w.audit(h, v, x)
		}
		_ = v.aggregator.AuditStore(context.Background(), now) // it goes on with the next
	}
}

// tellEdges has an aggregator push what all edges of its region are to hear.
func (w *World) tellEdges(h *hub, v *Server, now time.Time) {
	for _, p := range v.aggregator.Pushes(now) {
		w.push(h, v, p)
	}
	for _, p := range v.aggregator.Grants() {
		w.grant(h, v, p)
	}
}

// finish has an aggregator that hung up tell the rest.
func (w *World) finish(h *hub, v *Server, now time.Time) {
	w.tellEdges(h, v, now)
	for _, o := range v.aggregator.Exports(now) {
		w.export(h, v, o)
	}
	w.retire(h, v)
}

// audit carries a question between regions. It has paths of its own, which take no
// chance of others', and is lost where those are cut.
func (w *World) audit(from *hub, v *Server, x regional.Audit) {
	w.trace.add(w.now, "audit", v.Name, x.Payload)
	to, sender := w.regions[x.Peer], v.aggregator
	cut := func(from, to *hub) bool { return w.path(from.name, to.name, &w.between).cut }
	w.request(request{
		there: w.path("audit by "+from.name, to.name, &w.between), back: w.path("audit of "+to.name, from.name, &w.between),
		timeout: regional.AuditEvery, size: len(x.Payload),
		handle: func() ([]byte, bool) {
			by := w.pick(to, x.Lane)
			if by == nil || cut(from, to) {
				return nil, false
			}
			reply := by.aggregator.AnswerAudit(context.Background(), by.clock.at(w.now), x.Payload)
			w.trace.add(w.now, "audited", by.Name, reply)
			return reply, reply != nil
		},
		receive: func(reply []byte) {
			if now := v.clock.at(w.now); v.aggregator == sender && !cut(to, from) && sender.ReceiveAudit(now, x, reply) != nil {
				sender.LostAudit(now, x)
			}
		},
		lost: func() { sender.LostAudit(v.clock.at(w.now), x) },
	})
}

// push carries a push to all edges of the region.
func (w *World) push(h *hub, v *Server, p regional.Push) {
	w.trace.add(w.now, "push", v.Name, p.Payload)
	if w.cfg.OnPush != nil {
		w.cfg.OnPush(v, p)
	}
	for _, s := range h.sites {
		payload := w.restampPush(p.Payload, &v.clock, &s.clock)
		if s.old {
			payload = older[deltasync.Hot](payload)
		}
		w.send(w.path(h.name, s.Name, &w.toRegion), len(payload), func() {
			if s.node != nil && s.node.ReceiveHot(s.clock.at(w.now), payload) == nil { // else it was counted by the node
				w.heard(s, nil, payload)
			}
		})
	}
}

// export carries one frame between regions.
func (w *World) export(from *hub, v *Server, o regional.Outgoing) {
	w.trace.add(w.now, "export", v.Name, o.Payload)
	if w.cfg.OnExport != nil {
		w.cfg.OnExport(v, o)
	}
	to, sender := w.regions[o.Peer], v.aggregator
	w.request(request{
		there: w.path(from.name, to.name, &w.between), back: w.path(to.name, from.name, &w.between), by: to, timeout: regionTimeout, size: len(o.Payload),
		handle: func() ([]byte, bool) {
			reply, served := w.handle(to, o.Subject, o.Payload)
			return w.restamp(reply, to.clockOf(o.Lane, w.now), &v.clock), served
		},
		receive: func(reply []byte) {
			if now := v.clock.at(w.now); v.aggregator == sender && sender.Receive(now, o, reply) != nil {
				sender.Lost(now, o)
			}
		},
		lost: func() { sender.Lost(v.clock.at(w.now), o) },
	})
}
