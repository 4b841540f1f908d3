package regional

import (
	"math"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// source is the kind of entry that a frame's counts become.
func source(kind deltasync.Kind) Source {
	if kind == deltasync.KindRegion {
		return FromRegion
	}
	return FromEdge
}

// merged is what became of a frame.
type merged struct {
	by      Source // of the frame's counts; 0: there is none
	pop     uint64 // who pays for new keys; see popbytes.go
	told    []told // the store must hear of them, or be asked about
	asked   []question
	guests  map[deltasync.Key]*counter // what is answered of keys that have no place
	status  deltasync.Status
	refused []uint32   // deltas that were not wholly taken, by index
	full    []uint32   // deltas that there was no room for, likewise; see take
	away    []question // about those
	looked  int        // cells and entries that were looked at to judge others
	recast  *recast    // the last key that began anew by it; nil: none did

	displaced uint64 // room.displaced before it was merged

	tells, vain int // deltas that tell something, and those of them of which nothing can be taken
}

// told is what a frame told of a key. A key alone is one of which the store
// lacked something.
type told struct {
	key     deltasync.Key
	delta   *deltasync.Delta // nil: nothing
	cells   []crdt.Cell      // those of it that were taken
	source  Source
	replica crdt.Replica
}

// refuse notes why a delta was not wholly taken. Of several reasons the sender
// hears one, the last in the order of their numbers.
func (m *merged) refuse(delta int, why deltasync.Status) {
	m.status = max(m.status, why)
	if n := len(m.refused); n == 0 || m.refused[n-1] != uint32(delta) {
		m.refused = append(m.refused, uint32(delta))
	}
}

// heard counts a delta that tells something, in vain or not.
func (m *merged) heard(d *deltasync.Delta, vain bool) {
	if !d.Tells() {
		return
	}
	m.tells++
	if vain {
		m.vain++
	}
}

// merge joins a frame's counts, or only those of some of its deltas, by index.
func (a *Aggregator) merge(l *lane, up *deltasync.Up, m *merged, only []uint32, now int64) {
	pop := a.pops.note(up)
	if m.pop = pop; up.Kind != deltasync.KindEdge {
		m.pop = nobody
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := only == nil
	if all {
		m.displaced = l.room.displaced
	}
	if up.Kind == deltasync.KindEdge {
		if l.meet(up, now); up.Features&deltasync.FeatureLeaves != 0 {
			a.leavers.leaves(up, now)
		}
	}
	index := -1
	for si := range up.Sections {
		sec := &up.Sections[si]
		if err := (&Item{Width: sec.Shape.Width, Slices: sec.Shape.Slices}).Check(); err != nil || a.misshapes(sec.Shape) {
			for di := range sec.Deltas {
				if index++; all {
					a.stats.misshapen.Add(1)
					m.heard(&sec.Deltas[di], true)
					m.refuse(index, deltasync.StatusForbidden)
				}
			}
			continue
		}
		replica := up.Replica(sec.Life)
		oldest := retirement(sec.Shape, now)
		horizon := sliceAt(sec.Shape, now+int64(maxAhead))
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			if index++; !all {
				if len(only) == 0 || only[0] != uint32(index) {
					continue
				}
				only = only[1:]
			}
			cells, ahead := within(d.Cells, horizon)
			late := d.Carry.Boundary > horizon
			if all {
				m.heard(d, len(cells) == 0 && d.Until == 0 && (d.Carry.Level == 0 || late))
			}
			if all && (ahead || late) {
				a.stats.ahead.Add(1)
				m.refuse(index, deltasync.StatusClock)
			}
			if l.counters[d.Key] == nil && !d.Tells() {
				if up.Kind == deltasync.KindEdge {
					a.inquire(l, d.Key, sec.Shape, nil, now)
				}
				m.asked = append(m.asked, question{d.Key, sec.Shape})
				continue
			}
			c := a.open(l, d.Key, sec.Shape, m.pop, matters(sec.Shape, d, now), now)
			if c == nil {
				m.full, m.away = append(m.full, uint32(index)), append(m.away, question{d.Key, sec.Shape})
				continue
			}
			if c.shape.Width != sec.Shape.Width && !(d.Tells() && a.contest(l, d.Key, c, up.Kind, pop, sec.Shape, now, m)) {
				a.stats.misshapen.Add(1)
				m.refuse(index, deltasync.StatusForbidden)
				continue
			}
			c.reshape(sec.Shape)
			if n := len(cells); n > 0 && cells[n-1].Slice >= oldest && !a.admits(l, c, source(up.Kind), replica, cells, oldest, now) {
				m.refuse(index, deltasync.StatusOverloaded)
				cells = nil
			}
			if up.Kind == deltasync.KindEdge {
				cells = a.clampRefunds(l, c, replica, cells, oldest, horizon, index, m)
				cells = a.clamp(l, c, sec.Shape, replica, cells, oldest, index, m)
			}
			if d.Tells() {
				l.arm(c, now)
			}
			if v := l.truths.of[d.Key]; v != nil && up.Kind == deltasync.KindRegion {
				v.hear(c, up.Node, cells)
			}
			from, rose := c.join(source(up.Kind), replica, cells, oldest, now)
			a.stats.merges.Add(uint64(len(cells)))
			if len(cells) > 0 {
				c.vote(up.Node, pop, sec.Shape, now)
			}
			switch {
			case rose:
				c.lacks(source(up.Kind), replica, from)
			case len(cells) > 0:
				from = cells[0].Slice
			default:
				from = horizon + 1
			}
			demands := d.Demand != nil && a.hearDemand(l, d.Key, c, up, d.Demand, now)
			fuller := (up.Kind == deltasync.KindEdge || !c.shape.Regional) && l.hear(c, d.Carry, fill(c.shape, 1), now)
			if rose || fuller {
				a.changed(l, d.Key, c, now)
			}
			if (rose || demands) && d.Flags&deltasync.FlagUrgent != 0 && c.contest != nil {
				a.announce(l, d.Key, c)
			}
			if up.Kind == deltasync.KindEdge && c.taken != nil {
				a.announce(l, d.Key, c) // its reply says nothing of that
			}
			until := d.Until
			if up.Kind == deltasync.KindEdge {
				until = a.heed(l, d.Key, c, up, until, now)
			}
			later := (up.Kind == deltasync.KindEdge || !c.shape.Regional) && a.punish(l, d.Key, c, until, now)
			if up.Kind == deltasync.KindEdge && c.unasked {
				c.unasked = false
				a.exportTo(l, d.Key, c, math.MinInt64, 0, a.concerned(d.Key, c, now), now)
			}
			flags := d.Flags
			if later {
				c.penalty.lacks = true
				flags |= deltasync.FlagUrgent // for the other regions too
			}
			switch {
			case up.Kind != deltasync.KindEdge:
			case later: // a penalty is everybody's at once
				a.exportTo(l, d.Key, c, from, flags, a.homes.all, now)
			case rose || fuller || demands || d.Flags&deltasync.FlagRefresh != 0:
				a.export(l, d.Key, c, from, flags, now)
			default:
				a.inquire(l, d.Key, c.shape, c, now)
			}
			l.remember(c, now)
			if c.unwritten() || c.writing > 0 || (!rose && up.Kind == deltasync.KindEdge || c.partial != 0) && c.stale(now) {
				m.told = append(m.told, told{d.Key, d, cells, source(up.Kind), replica})
			}
			l.weigh(c)
			a.relieve(l, now)
		}
	}
	if len(m.full) > 0 { // some of these may have to make room before they are answered
		for i := range m.told {
			m.guest(m.told[i].key, l.counters[m.told[i].key])
		}
	}
}

// within cuts off the cells that lie too far ahead.
func within(cells []crdt.Cell, horizon crdt.Slice) (kept []crdt.Cell, ahead bool) {
	n := len(cells)
	for n > 0 && cells[n-1].Slice > horizon {
		n--
	}
	return cells[:n], n < len(cells)
}

// changed notes that a key's totals rose: edges may have to hear at once.
func (a *Aggregator) changed(l *lane, key deltasync.Key, c *counter, now int64) {
	if c.guest && c.retried {
		return // not before the store has said the rest
	}
	if !c.pushed && l.crossing(c, now) {
		a.announce(l, key, c)
	}
	l.watchTruth(key, c, now)
	a.spreadSoon(l, key, c)
}

// announce has a key's totals pushed to all edges of the region.
func (a *Aggregator) announce(l *lane, key deltasync.Key, c *counter) {
	if !c.pushed {
		c.pushed = true
		l.push = append(l.push, key)
	}
	a.hurry.Store(true)
}

// punish takes in the end of a penalty, and says whether it is a later one:
// then all edges hear at once, however far from its limit the key is.
func (a *Aggregator) punish(l *lane, key deltasync.Key, c *counter, until, now int64) (later bool) {
	if later = c.penalty.join(until, now); later {
		a.announce(l, key, c)
	}
	return later
}

// export puts the region's subtotal of a key, from a slice on, into the
// outboxes to those whom it is told: all peers, or its homes.
func (a *Aggregator) export(l *lane, key deltasync.Key, c *counter, from crdt.Slice, flags deltasync.Flags, now int64) {
	if len(l.peers) > 0 {
		to := a.homes.targets(key)
		if c.contest != nil { // all are to share by the same demands
			to = a.homes.all
		}
		a.exportTo(l, key, c, from, flags, to, now)
	}
}

func (a *Aggregator) exportTo(l *lane, key deltasync.Key, c *counter, from crdt.Slice, flags deltasync.Flags, to peerSet, now int64) {
	if c.shape.Regional || len(l.peers) == 0 {
		return
	}
	flags &= deltasync.FlagUrgent | deltasync.FlagRefresh
	d := l.delta(key, c, from, flags, now)
	if d.Demand = a.demand(key, c, now); !d.Tells() && d.Demand == nil {
		return
	}
	a.put(l, key, c, d, to)
	if flags&deltasync.FlagUrgent != 0 {
		a.hurry.Store(true)
	}
	if to != a.homes.all {
		b := c.far()
		b.untold, b.asked = min(b.untold, from), now
		a.spreadSoon(l, key, c)
	}
}

// put puts what is told of a key into the outboxes to some peers.
func (a *Aggregator) put(l *lane, key deltasync.Key, c *counter, d deltasync.Delta, to peerSet) {
	for j := range to.each {
		if !l.peers[j].outbox.Put(c.shape, 0, d) {
			a.tellLater(l, j, key, c)
		}
	}
}
