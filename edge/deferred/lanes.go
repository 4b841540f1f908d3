package deferred

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// mostLanes bounds the tenants that are known to have no room. Requests of others are
	// tried whenever they come, as if they were their tenant's only one.
	mostLanes = 1 << 16
	// sweepEvery is how often those lanes are looked for that nobody needs.
	sweepEvery = time.Second
	// apart is how far apart requests come that are put off, where nothing is known of how
	// fast their limit lets them pass.
	apart = 10 * time.Millisecond
	// unpaced is how far apart they pass of all tenants, where what kept them back says nothing of
	// that: once there is room again it is for their own limits to pace them.
	unpaced = time.Millisecond
	// crowded is how far apart they are at least while the upstream has as many of a tenant's
	// as it may.
	crowded = 100 * time.Millisecond
)

// lanes have what waits of each tenant tried one by one: who comes while another is tried,
// or before the time at which there may be room, is put off without a look for room, so that
// as many come as the limit lets pass. Tenants whose last one the same limit denied stand at one
// gate: one of them is tried for all. All come within a minute, as room may come early, and
// what is put off is read anew each time.
type lanes struct {
	most int // of a tenant that may be at the upstream at once

	mu    sync.Mutex // guards what follows
	of    map[string]*lane
	gates map[string]*gate // those of limits that may deny several tenants
	swept time.Time
}

type lane struct {
	gate   *gate         // of what denied one last; nil: nothing has
	stands int           // the gate's round in which it was denied there, or put off
	trying bool          // for one it is looked for room
	sent   int           // are at the upstream
	opens  time.Time     // others, that stand at the gate that it passed, come first until then
	next   time.Time     // after all who were put off
	every  time.Duration // one may pass in this time
}

// newLanes shares so many workers: no tenant has more than a quarter of them.
func newLanes(workers int) *lanes {
	return &lanes{most: max(1, workers/4), of: map[string]*lane{}, gates: map[string]*gate{}}
}

// turn is that of a request which may be tried; done ends it.
type turn struct {
	lanes *lanes
	lane  *lane // nil: nobody else's matter
	tries *gate // that it is the one who tries; nil: none
	began bool
}

// enter is the turn of a request of a tenant's; or nil, and when it is to come again, which
// is before its end, as far as that is not too near. One that is fresh is behind all who were
// put off.
func (l *lanes) enter(tenant string, fresh bool, left time.Duration, now time.Time) (*turn, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.of[tenant]
	if in == nil {
		if len(l.of) >= mostLanes && !l.sweep(now) {
			return &turn{lanes: l}, 0
		}
		in = &lane{}
		l.of[tenant] = in
	}
	if in.trying || in.sent >= l.most || now.Before(in.opens) || in.gate.bars(now) || fresh && now.Before(in.next) {
		return nil, in.place(left, in.sent >= l.most, now)
	}
	t := &turn{lanes: l, lane: in}
	if in.trying = true; in.gate != nil && in.gate.shut {
		in.gate.trying, t.tries = true, in.gate
	}
	return t, 0
}

// sweep forgets lanes in which nobody is and nobody is awaited, and gates at which nobody
// stands; false: there are none.
func (l *lanes) sweep(now time.Time) bool {
	if now.Sub(l.swept) < sweepEvery {
		return false
	}
	l.swept = now
	for tenant, lane := range l.of {
		if !lane.trying && lane.sent == 0 && !now.Before(lane.opens) && !now.Before(lane.next) && !lane.gate.bars(now) {
			lane.leave(now)
			delete(l.of, tenant)
		}
	}
	for name, gate := range l.gates {
		if gate.standing(now) == 0 && !gate.bars(now) {
			delete(l.gates, name)
		}
	}
	return len(l.of) < mostLanes
}

// place is how long one is put off: behind the others of its tenant's, and where none of these
// is awaited behind the others who stand at the gate.
func (l *lane) place(left time.Duration, full bool, now time.Time) time.Duration {
	g, first := l.gate, false
	at := later(now.Add(retryLeast), l.opens, l.next)
	if g != nil {
		l.stand(now)
		l.every = min(g.every*time.Duration(g.standing(now)), retryMost)
		if at, first = later(at, g.opens), !l.next.After(later(now, g.opens)); first {
			at = later(at, g.next)
		}
	}
	every := max(l.every, apart)
	if full {
		every = max(every, crowded)
	}
	wait := at.Sub(now)
	if wait > retryMost { // too many are before it for a place: not all at once
		wait = retryMost/2 + rand.N(retryMost/2)
	} else {
		if l.next = at.Add(every); first {
			g.next = at.Add(g.every)
		}
	}
	if wait >= left {
		wait = left / 2
	}
	return wait
}

func later(at time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// begins is that it has room, and goes to the upstream: the next may try.
func (t *turn) begins(now time.Time) {
	if t.lane == nil {
		return
	}
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	t.began, t.lane.trying = true, false
	t.lane.sent++
	t.end(false)
	t.lane.passes(now)
}

// end is that the gate at which it tried is shut on, or open.
func (t *turn) end(shut bool) {
	if t.tries != nil {
		t.tries.trying, t.tries.shut = false, shut
		t.tries = nil
	}
}

// denied is that there is no room for so long, and one then in every so long; 0: that is not
// known. By names the limit that says so; "": it denies no other tenant.
func (t *turn) denied(wait, every time.Duration, by string, now time.Time) {
	if t.lane == nil {
		return
	}
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	if every <= 0 {
		every = wait
	}
	l := t.lane
	if g := t.lanes.gate(by, l, now); g != l.gate {
		l.leave(now)
		l.gate = g
	}
	l.gate.denies(wait, min(every, retryMost), now)
	l.stand(now)
}

// done is that it is over, or put off.
func (t *turn) done() {
	if t.lane == nil {
		return
	}
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	if t.began {
		t.lane.sent--
	} else {
		t.lane.trying = false
	}
	t.end(true)
}
