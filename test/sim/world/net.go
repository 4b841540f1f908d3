package world

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// Link is how frames travel between two kinds of parts, one way.
type Link struct {
	Delay  time.Duration // of each frame
	Jitter time.Duration // mean of what comes on top, distributed exponentially: frames overtake each other
	Loss   float64       // share of frames that are lost
	Twice  float64       // share of frames that arrive twice
	Late   float64       // share of frames that take three times the delay, so that later ones overtake them
	Rate   int           // bytes a second; what is more queues up. 0: any number
}

// Fates counts what links did to frames.
type Fates struct{ Lost, Twice, Late uint64 }

// Fates are those of all frames so far that no cut befell.
func (w *World) Fates() Fates { return w.fates }

// path is one direction between two parts, and what ails it.
type path struct {
	link    *Link
	rnd     *rand.Rand
	cut     bool          // frames are lost, those under way too
	frozen  bool          // frames wait, as in a connection that hangs
	waiting []func()      // for the thaw, in the order of arrival
	free    time.Time     // when it has carried what was sent so far
	longer  time.Duration // that frames take, above what others of the kind do
}

// ends names a path.
type ends struct{ from, to string }

// path is the one between two parts, made when it is first used.
func (w *World) path(from, to string, link *Link) *path {
	at := ends{from, to}
	p := w.paths[at]
	if p == nil {
		p = &path{link: link, rnd: w.stream("path", from, to)}
		w.paths[at] = p
	}
	return p
}

// send carries a frame of some size over a path; deliver is called when it
// arrives, once, twice or never.
func (w *World) send(p *path, size int, deliver func()) {
	l := p.link
	w.messages++
	w.bytes += uint64(size)
	if l == &w.toRegion {
		w.atEdges += uint64(size)
	}
	if p.cut {
		return
	}
	if l.Loss > 0 && p.rnd.Float64() < l.Loss {
		w.fates.Lost++
		return
	}
	copies := 1
	if l.Twice > 0 && p.rnd.Float64() < l.Twice {
		w.fates.Twice++
		copies = 2
	}
	for range copies {
		delay := l.Delay + p.longer
		if l.Jitter > 0 {
			delay += time.Duration(p.rnd.ExpFloat64() * float64(l.Jitter))
		}
		if l.Late > 0 && p.rnd.Float64() < l.Late {
			w.fates.Late++
			delay += 2 * l.Delay
		}
		if l.Rate > 0 {
			if p.free.Before(w.now) {
				p.free = w.now
			}
			p.free = p.free.Add(time.Duration(size) * time.Second / time.Duration(l.Rate))
			delay += p.free.Sub(w.now)
		}
		w.after(delay, func() {
			switch {
			case p.cut:
			case p.frozen:
				p.waiting = append(p.waiting, deliver)
			default:
				deliver()
			}
		})
	}
}

// Clears is when what queues before narrow links has passed them.
func (w *World) Clears() time.Time {
	last := w.now
	for _, p := range w.paths {
		if p.free.After(last) {
			last = p.free
		}
	}
	return last
}

// thaw lets go what waited, in the order in which it came.
func (w *World) thaw(p *path) {
	p.frozen = false
	for _, deliver := range p.waiting {
		w.after(p.link.Delay+p.longer, deliver)
	}
	p.waiting = nil
}

// request is a frame that wants an answer.
type request struct {
	there, back *path
	by          *hub // whose aggregators take their time for it; nil: they take none
	timeout     time.Duration
	size        int
	handle      func() (reply []byte, served bool)
	receive     func(reply []byte)
	lost        func()
}

// request carries a frame there and the answer back, as a request over NATS:
// the first answer counts, and none after the timeout; where nobody serves the
// sender hears so at once.
func (w *World) request(r request) {
	done := false
	end := func(do func()) {
		if !done {
			done = true
			do()
		}
	}
	w.after(r.timeout, func() { end(r.lost) })
	handle := func() {
		reply, served := r.handle()
		if !served {
			w.send(r.back, 0, func() { end(r.lost) })
			return
		}
		w.send(r.back, len(reply), func() { end(func() { r.receive(reply) }) })
	}
	w.send(r.there, r.size, func() {
		if r.by == nil || w.cfg.Processing == 0 {
			handle()
			return
		}
		if r.by.free.Before(w.now) {
			r.by.free = w.now
		}
		r.by.free = r.by.free.Add(w.cfg.Processing)
		w.after(r.by.free.Sub(w.now), handle)
	})
}

// after has something done in a while.
func (w *World) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.events, event{at: w.now.Add(max(d, 0)), serial: w.serial, do: do})
}
