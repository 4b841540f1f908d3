package trial

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// What limits do while an edge is cut off (on_partition), in some trials. Closed ones admit
// nothing while the edge's region does not answer it, or hears of no more than half of the
// regions, and nothing else says that it is cut off; open ones keep to no share.

// drawPartition draws the word of the trial's rule, and whether edges are told beforehand
// how many there are. Strict limits have no such word.
func (p *plan) drawPartition() {
	rnd := p.stream("on partition")
	p.expects = p.adaptive && rnd.IntN(2) == 0
	switch n := rnd.IntN(6); {
	case p.strict:
	case n == 0:
		p.partition = limit.PartitionClosed
	case n < 3 && p.adaptive:
		p.partition = limit.PartitionOpen
	}
}

// contact is what a life of an edge has heard of its region.
type contact struct {
	since    time.Time // that it lives, as far as was looked
	answered bool
	last     time.Time // when it took in an answer
	few      time.Time // since when answers say that most regions are not heard of; zero: they do not
}

// An edge is cut off when an answer is owed for a second: no sooner after the last one, and
// no later than a second and its longest silence after it. What it had allowed before holds
// for an interval more, and so does what it had when it was told of too few regions.
const (
	owedFor = time.Second
	closing = 3 * time.Second
	allowed = 250 * time.Millisecond
)

// contactOf is what an edge has heard in a life.
func (t *trial) contactOf(s *world.Site) *contact {
	l := life{s.Name, s.Lives()}
	c := t.contacts[l]
	if c == nil {
		c = &contact{since: t.w.Now()}
		t.contacts[l] = c
	}
	return c
}

// answers notes that an edge took in an answer.
func (t *trial) answers(s *world.Site, down *deltasync.Down) {
	c := t.contactOf(s)
	c.answered, c.last = true, t.w.Now()
	switch few := down.Regions > 1 && 2*down.LiveRegions <= down.Regions; {
	case !few:
		c.few = time.Time{}
	case c.few.IsZero():
		c.few = c.last
	}
}

// verifyContact holds a decision to what the edge has heard: closed limits are closed
// when it is cut off, and it says so of nothing else.
func (t *trial) verifyContact(edge string, d *limit.Decision) {
	c, now := t.contactOf(t.w.Site(edge)), t.w.Now()
	if d.Basis.CutOff {
		if t.partition != limit.PartitionClosed || d.Allowed {
			t.failf("cut-off", "%s says that it is cut off, of limits that do not close", edge)
		}
		if age := now.Sub(c.last); c.answered && c.few.IsZero() && age < owedFor-t.blur(age) {
			t.failf("cut-off", "%s says that it is cut off, it was answered %v ago", edge, age)
		}
		return
	}
	if t.partition != limit.PartitionClosed || !d.Allowed {
		return
	}
	silent := now.Sub(c.since)
	if c.answered {
		silent = now.Sub(c.last)
	}
	if silent > closing+t.blur(silent) {
		t.failf("cut-off", "%s admits of limits that close, it was not answered for %v", edge, silent)
	}
	if few := now.Sub(c.few); !c.few.IsZero() && few > allowed+t.blur(few) {
		t.failf("cut-off", "%s admits of limits that close, it was told %v ago that most regions are not heard of", edge, few)
	}
}
