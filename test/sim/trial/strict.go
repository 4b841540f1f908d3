package trial

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Strict limits, in some trials: what edges admit together is never more than the limit
// in any window, not by one, whatever fails; and when all is well again, and what was
// spent has left the window, rights come to who asks (invariant 15).

// strictLease is that of rights in trials: some end while faults go on.
const strictLease = 4 * time.Second

// admitted is what was admitted of a strict counter, and not given back since.
type admitted struct {
	at   time.Time
	edge string
	cost uint64
}

// drawStrict has the trial's limits be strict. First builds know of no such thing.
func (p *plan) drawStrict() {
	if p.stream("strict").IntN(6) != 0 {
		return
	}
	p.strict, p.adaptive, p.surge = true, false, 0
	p.has[OldPeers] = false
}

// admit notes what a strict counter admitted, and demands that it is not too much.
func (t *trial) admit(edge string, c *counter, cost uint64) {
	if !t.strict {
		return
	}
	c.admitted = append(c.admitted, admitted{t.w.Now(), edge, cost})
	if over, most := t.over(c); over > 0 {
		t.failf("15", "%s (%s, strict) has %d more than the %d that it may, as %s admits %d", c.user, c.rate.Policy, over, most, edge, cost)
	}
}

// over is by how much a strict counter is exceeded now, and what it may admit: by the
// largest limit that any edge was ever given.
func (t *trial) over(c *counter) (over, most uint64) {
	now := t.w.Now()
	if c.rate.Bucket() {
		sum, worst := uint64(0), uint64(0)
		for i := len(c.admitted) - 1; i >= 0; i-- {
			a := &c.admitted[i]
			sum += a.cost
			flows := c.rate.Drain.Refill * uint64(now.Sub(a.at)) / uint64(c.rate.Drain.Per)
			worst = max(worst, sum-min(sum, c.rate.Ceiling+flows))
		}
		return worst, c.rate.Ceiling
	}
	most = c.rate.Ceiling * (1 + t.largest)
	sum := uint64(0)
	for i := len(c.admitted) - 1; i >= 0 && t.inWindow(c.rate, c.admitted[i].at, now); i-- {
		sum += c.admitted[i].cost
	}
	return sum - min(sum, most), most
}

// inWindow says that what was admitted at a time is in the window of now.
func (t *trial) inWindow(r *limit.Rate, at, now time.Time) bool {
	if r.Algorithm == limit.FixedWindow {
		return r.SliceAt(at.UnixNano()) == r.SliceAt(now.UnixNano())
	}
	return now.Sub(at) < r.Window
}

// readmit notes that an edge gave back so much of what it charged. What is free again of
// a window is what it admitted last, at the most; of a bucket nothing is.
func (c *counter) readmit(edge string, cost uint64) {
	if c.rate.Bucket() {
		return
	}
	for i := len(c.admitted) - 1; i >= 0 && cost > 0; i-- {
		a := &c.admitted[i]
		if a.edge != edge {
			continue
		}
		took := min(cost, a.cost)
		a.cost, cost = a.cost-took, cost-took
	}
	c.admitted = slices.DeleteFunc(c.admitted, func(a admitted) bool { return a.cost == 0 })
}

// patience is how long an edge asks until it is admitted, at the most.
const patience = 30 * time.Second

// strictly demands that rights come when all is well, and nothing counts any more: who
// asks again and again is admitted, though others hold what they wanted lately.
func (t *trial) strictly() error {
	if !t.strict || t.crowds() || t.has[Evict] || t.has[Hostile] {
		return nil
	}
	one := func(req *limit.Request) { req.Cost = 1 }
	// Leases that a log may not know of have to end, and windows; and whoever has taken a
	// lane sees leases end of keys only that he was asked for.
	if err := t.advance(t.w.Now().Add(3 * time.Second)); err != nil {
		return err
	}
	for user := range t.people {
		for _, name := range t.w.Edges() {
			t.request(name, user, one)
		}
	}
	if err := t.advance(t.w.Now().Add(t.longest() + t.longest()/50 + strictLease + 3*time.Second)); err != nil {
		return err
	}
	t.late = true
	for user := range t.people {
		for _, name := range t.w.Edges() {
			asked := t.w.Now()
			for !t.request(name, user, one) {
				if t.w.Now().Sub(asked) > patience {
					t.failf("15", "long after the faults %s has no rights for %s, %v after it asked", name, t.people[user].name, patience)
					return nil
				}
				if err := t.advance(t.w.Now().Add(500 * time.Millisecond)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
