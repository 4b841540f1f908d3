package trial

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// What the parts tell each other, as it leaves them.

// onUp holds what an edge sends to invariants 1, 9 and 14: no more than the truth,
// never less than before, and only to those whom it concerns.
func (t *trial) onUp(s *world.Site, subject string, payload []byte) {
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		t.failf("1", "%s sends what cannot be read: %v", s.Name, err)
		return
	}
	admit(&up)
	if want := deltasync.EdgeSubject(s.Region, up.Lane, "pop", s.Name); subject != want {
		t.failf("14", "%s sends a frame of lane %d to %s, want %s", s.Name, up.Lane, subject, want)
	}
	t.hostile.overhears(&up, payload)
	t.bookLate(s)
	now := life{s.Name, s.Lives()}
	for _, sec := range up.Sections {
		replica := up.Replica(sec.Life)
		for _, d := range sec.Deltas {
			t.ofLane(s.Name, d.Key, up.Lane)
			t.tell(d.Key, "%s tells, in frame %d, life %d, flags %d: %v", s.Name, up.Seq, sec.Life, d.Flags, d.Cells)
			c := t.keys[d.Key]
			if c == nil {
				t.stranger(s.Name, d.Key, d.Cells)
				continue
			}
			if cell, is := above(d.Cells, of(c.byLife, now)); is {
				t.failf("1", "%s sends %+v of %s, the truth is %+v", s.Name, cell, c.user, of(c.byLife, now).Get(cell.Slice))
			}
			last := of(t.sent, sentBy{d.Key, replica})
			for _, cell := range d.Cells {
				if was := last.Get(cell.Slice); cell.Charges < was.Charges || cell.Refunds < was.Refunds {
					t.failf("9", "%s sends %+v of %s after %+v", s.Name, cell, c.user, was)
				}
				last.Join(cell)
			}
		}
	}
}

// exportedTo names what one life of an aggregator told another region of a key. One
// that has forgotten keys, to make room or as it does not serve their lane, tells of
// them anew, as an edge does under a new life: a region needs none, as nobody adds up
// what its aggregators tell. So nothing is demanded where keys compete for places:
// what was forgotten may still be on its way, behind which what is told anew comes.
type exportedTo struct {
	by   place // who, by name
	life int
	idle uint64 // how often it was seen not to serve the lane
	peer string
}

// onExport holds what a region tells another to invariants 1, 9 and 14.
func (t *trial) onExport(v *world.Server, o regional.Outgoing) {
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		t.failf("1", "%s sends %s what cannot be read: %v", v.Name, o.Peer, err)
		return
	}
	if want := deltasync.RegionSubject(o.Peer, up.Lane, v.Region); o.Subject != want || o.Peer == v.Region {
		t.failf("14", "%s sends a frame of lane %d to %s, want %s", v.Name, up.Lane, o.Subject, want)
	}
	to := exportedTo{by: place{name: v.Name}, life: v.Lives(), peer: o.Peer, idle: t.lanesServed.idle[ofServer{v.Name, up.Lane}]}
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			t.ofLane(v.Name, d.Key, up.Lane)
			t.tell(d.Key, "%s tells %s, in frame %d, flags %d: %v", v.Name, o.Peer, up.Seq, d.Flags, d.Cells)
			c := t.keys[d.Key]
			if c == nil {
				t.stranger(v.Name, d.Key, d.Cells)
				continue
			}
			if cell, is := c.above(d.Cells, of(c.byRegion, v.Region)); is {
				t.failf("1", "%s tells %s %+v of %s, the truth is %+v", v.Name, o.Peer, cell, c.user, of(c.byRegion, v.Region).Get(cell.Slice))
			}
			to.by.key = d.Key
			last := of(t.exported, to)
			for _, cell := range d.Cells {
				if was := last.Get(cell.Slice); cell.Join(was) != cell && !t.crowds() {
					t.failf("9", "%s tells %s %+v of %s (%s) after %+v", v.Name, o.Peer, cell, c.user, c.rate.Policy, was)
				}
				last.Join(cell)
			}
		}
	}
}

// onPush holds what all edges of a region are told to invariants 1 and 14, and
// notes it for 7.
func (t *trial) onPush(v *world.Server, p regional.Push) {
	var hot deltasync.Hot
	if err := hot.UnmarshalBinary(p.Payload); err != nil {
		t.failf("7", "%s pushes what cannot be read: %v", v.Name, err)
		return
	}
	if want := deltasync.HotSubject(v.Region, hot.Lane); p.Subject != want || hot.Region != v.Region {
		t.failf("14", "%s pushes lane %d of %s to %s, want %s", v.Name, hot.Lane, hot.Region, p.Subject, want)
	}
	for _, sec := range hot.Sections {
		for i := range sec.Keys {
			k := &sec.Keys[i]
			t.ofLane(v.Name, k.Key, hot.Lane)
			t.tell(k.Key, "%s pushes: others %v, peers %v", v.Name, k.Others, k.Peers)
			told := sum(k.Others, k.Peers)
			c := t.keys[k.Key]
			if c == nil {
				t.stranger(v.Name, k.Key, told)
				continue
			}
			if cell, is := c.above(told, &c.all); is {
				t.failf("1", "%s pushes %+v of %s, the truth is %+v", v.Name, cell, c.user, c.all.Get(cell.Slice))
			}
			t.verifyTerm(v.Name, c, k.Until)
			t.pushed(v.Region, c, told)
			if c.rate.Bucket() {
				t.poured(v, c, k)
			}
		}
	}
}

// ofLane demands that a key is told to those of its lane only: invariant 14.
func (t *trial) ofLane(who string, key deltasync.Key, lane int) {
	if key.Lane(t.lanes) != lane {
		t.failf("14", "%s tells lane %d of %016x, which is of lane %d", who, lane, uint64(key), key.Lane(t.lanes))
	}
}

// stranger holds what is told of a key that came once to invariant 1.
func (t *trial) stranger(who string, key deltasync.Key, cells []crdt.Cell) {
	truth := t.strangers[key]
	if truth == nil && t.hostile.invented(key) {
		return
	}
	if truth == nil {
		t.failf("1", "%s tells of a key that nobody asked for", who)
	} else if cell, is := above(cells, truth); is {
		t.failf("1", "%s tells %+v of a key that came once, the truth is %+v", who, cell, truth.Get(cell.Slice))
	}
}

// onDown notes what is acknowledged, and holds answers to invariant 6. Nobody but
// who is hostile is turned away as a whole.
func (t *trial) onDown(v *world.Server, payload, reply []byte) {
	var up deltasync.Up
	var down deltasync.Down
	if err := up.UnmarshalBinary(payload); err != nil {
		t.failf("6", "%s is sent what cannot be read: %v", v.Name, err)
		return
	}
	if err := down.UnmarshalBinary(reply); err != nil {
		t.failf("6", "%s answers what cannot be read: %v", v.Name, err)
		return
	}
	admit(&up)
	if s := down.Status; s == deltasync.StatusUnsupported || s == deltasync.StatusForbidden && len(down.Refused) == 0 {
		t.failf("13", "%s turns away a frame of %s/%s: %s", v.Name, up.Region, up.Name, s)
	}
	t.tellAnswer(v.Name, &up, &down)
	if up.Kind != deltasync.KindEdge {
		return
	}
	t.verifyStore(v, &down)
	i := -1
	for _, sec := range up.Sections {
		replica := up.Replica(sec.Life)
		for _, d := range sec.Deltas {
			i++
			c := t.keys[d.Key]
			if c == nil {
				continue
			}
			if down.Status != deltasync.StatusStoreDown {
				t.verifyOwners(v, c)
			}
			if took := down.Took(i) && t.acknowledges(v, &down); !took && d.Until != 0 {
				t.sentences.refuse(culprit(c.user, !c.now))
			} else if took {
				t.stores(v, d.Key, replica, d.Cells)
				if d.Until != 0 {
					t.sentences.store(v.Region, culprit(c.user, !c.now))
				}
				if l, ok := t.lifeOf(v.Region, replica); ok {
					if c.stored[l] == nil {
						c.stored[l] = map[crdt.Replica]*crdt.Vector{}
					}
					for _, cell := range d.Cells {
						of(c.stored[l], replica).Join(cell)
					}
				}
			}
			if i < len(down.Totals) {
				t.verifyTerm(v.Name, c, down.Totals[i].Until)
				t.verifyAnswer(v, c, replica, &down, &down.Totals[i])
			}
		}
	}
}

// acknowledges says that an answer stands for what the region's store has. It names
// the store that it speaks of: who has not looked since that one was replaced speaks of
// what is gone, and edges tell it all again when he names the new one. Who dies before
// that takes it along: the lost tail of dead edges, in the words of design.md §6.
// Seed 21000164.
func (t *trial) acknowledges(v *world.Server, down *deltasync.Down) bool {
	if down.Status == deltasync.StatusStoreDown {
		return false
	}
	is, err := t.w.Store(v.Region).Identity()
	if err != nil {
		t.failf("1", "store of %s: %v", v.Region, err)
	}
	return down.Store == is
}

// unnoticed is how long an aggregator may answer for a store that another took the
// place of: it looks every 100 ms, unless it is frozen.
const unnoticed = time.Second

// verifyStore: whoever answers that all is well names the store that is there, or none
// as he has just started.
func (t *trial) verifyStore(v *world.Server, down *deltasync.Down) {
	if down.Status != deltasync.StatusOK || down.Store == 0 || t.has[Freeze] || t.acknowledges(v, down) {
		return
	}
	since := t.w.Now().Sub(start)
	if at, was := t.replaced[v.Region]; was {
		since = t.w.Now().Sub(at)
	}
	if since > unnoticed {
		t.failf("store", "%s answers for another store than the one that has been there for %v", v.Name, since)
	}
}

// verifyAnswer: totals are what the aggregator has, or the store of a key that it
// has no place for, less the asker's entry. What had a place when the frame came, and
// made room for the rest of it, is answered as it was: that is in the store, unless that
// is away, or was lost since anybody looked. Then there is only the truth to hold it to.
// Seed 40001609. And another aggregator may have stored more meanwhile, which is told
// within regional.OwnersApart: then it is no more than the store has. Seed 63 with the
// planted bug by which a count does not know its algorithm. So it is where the aggregator
// has had no room for what PoPs have beyond their part: the store has more of the key then.
// Seed 492. What its homes told of it the store may lack, who made room for others need not have written that: then it is no less
// than the store has, and true. Seed 70149 without uplink, store-wipe, store-fail, split,
// old-peers, one-way, flap and slow.
func (t *trial) verifyAnswer(v *world.Server, c *counter, asker crdt.Replica, down *deltasync.Down, totals *deltasync.Totals) {
	var peers, others, told crdt.Vector
	vectors, behind, ahead := v.Aggregator().Vectors(c.key), false, false
	if len(vectors) == 0 && t.crowds() {
		crowdedOut := v.Aggregator().Stats(t.w.Now()).Overdrawn > 0
		behind, ahead = t.servers > 1 || crowdedOut, t.targets == regional.TargetsHomes
		if !t.acknowledges(v, down) {
			t.verifyTold(v, c, totals)
			return
		}
		var err error
		if vectors, err = t.w.Store(v.Region).Holds(c.key, c.rate.Width, c.rate.Span); err != nil {
			t.failf("6", "store of %s: %v", v.Region, err)
		}
	}
	for _, vec := range vectors {
		for _, cell := range vec.Cells {
			switch {
			case vec.Source == regional.FromRegion:
				others.Add(cell)
			case vec.Source == regional.FromHomes:
				told.Join(cell)
			case vec.Source == regional.FromEdge && vec.Replica != asker:
				peers.Add(cell)
			}
		}
	}
	others.Merge(&told)
	is := func(cell crdt.Cell, of *crdt.Vector) bool {
		has := of.Get(cell.Slice)
		return has == cell || behind && has.Join(cell) == has
	}
	for _, cell := range totals.Peers {
		if !is(cell, &peers) {
			t.failf("6", "%s answers %+v of %s, it has %+v from others than the asker", v.Name, cell, c.user, peers.Get(cell.Slice))
		}
	}
	if ahead {
		t.verifyTold(v, c, totals)
	}
	for _, cell := range totals.Others {
		if !is(cell, &others) && !(ahead && others.Get(cell.Slice).Join(cell) == cell) {
			t.failf("6", "%s answers %+v of %s from other regions, it has %+v", v.Name, cell, c.user, others.Get(cell.Slice))
		}
	}
}

// verifyTold holds an answer to the truth: invariant 1.
func (t *trial) verifyTold(v *world.Server, c *counter, totals *deltasync.Totals) {
	for _, told := range []struct {
		cells []crdt.Cell
		truth *crdt.Vector
		by    string
	}{{totals.Peers, of(c.byRegion, v.Region), "its edges"}, {totals.Others, c.elsewhere(v.Region), "other regions"}} {
		if cell, is := c.above(told.cells, told.truth); is {
			t.failf("1", "%s answers %+v of %s from %s, the truth is %+v", v.Name, cell, c.user, told.by, told.truth.Get(cell.Slice))
		}
	}
}

// admit gives a frame of an edge the name that whoever admits it knows the edge by.
func admit(up *deltasync.Up) {
	if up.Kind == deltasync.KindEdge {
		up.Node = deltasync.NodeID(up.Region, up.Pop, up.Name)
	}
}
