package trial

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/test/sim/world"
)

// rest is how long after the faults all have agreed: a refresh of the longest window,
// and what is added by lanes that rest and exports.
func (p *plan) rest() time.Duration { return p.longest()/6 + 6*time.Second }

// refusal is the longest that an edge waits before it tells again what was turned
// away, and what it takes to tell it.
const refusal = 20 * time.Second

// settle demands agreement: invariant 4. Not before the end are the edges asked:
// whatever a request brings about must have happened without. What queues before a
// narrow link is of dead edges, too, and news when it comes (seed 82016658).
func (t *trial) settle() error {
	every := 200 * time.Millisecond
	if t.has[Evict] {
		every = 30 * time.Millisecond // there are many
	}
	agreed := t.w.Clears().Add(t.rest())
	if t.crowds() { // who was turned away waits
		agreed = agreed.Add(refusal)
	}
	asked := 2 * t.users // all, and again what others have put out meanwhile
	// What homes tell of keys without a place is taken in one by one, each rate of each
	// generation for itself, twice the way to a home at the least: see guests.go. Seeds 623, 82041448.
	queue := time.Duration(0)
	if t.crowds() && t.targets == regional.TargetsHomes {
		queue = time.Duration(len(t.counters)) * 400 * time.Millisecond
		asked += t.users // by then a region that is no home may have heard of nothing since, and asks only now: seed 36254
	}
	if err := t.advance(agreed.Add(-queue - time.Duration(asked)*every)); err != nil {
		return err
	}
	for user := range asked {
		if user == t.users {
			if err := t.advance(t.w.Now().Add(queue)); err != nil {
				return err
			}
		}
		t.peek(user % t.users)
		if err := t.advance(t.w.Now().Add(every)); t.err != nil || err != nil {
			return err
		}
	}
	if err := t.advance(t.w.Now().Add(time.Second)); err != nil {
		return err
	}
	if err := t.askAgain(); err != nil {
		return err
	}
	t.verify()
	t.hear()
	for _, c := range t.counters {
		if t.err == nil {
			t.agree(c)
		}
	}
	if t.err == nil {
		t.verifyPenalties()
		t.verifyAudits()
	}
	if t.err == nil {
		if err := t.strictly(); err != nil {
			return err
		}
	}
	if err := t.fill(); err != nil {
		return err
	}
	switch {
	case t.err != nil:
	case t.Seed%8 == 0: // it takes as long as all the rest
		return t.expire()
	case t.Seed%8 == 4:
		return t.correct()
	}
	return nil
}

// hear demands that each edge has heard from its region of late: invariant 4, and of
// those that speak as the first build did 13.
func (t *trial) hear() {
	for _, name := range t.w.Edges() {
		switch why := t.w.Node(name).Degraded(t.w.NowAt(name)); {
		case why != "sync":
		case t.isOld(name):
			t.failf("13", "after the faults %s, which speaks as the first build did, hears nothing from its region", name)
		default:
			t.failf("4", "after the faults %s hears nothing from its region", name)
		}
	}
}

// fill demands that shares come to the whole again: long after anybody asked, and all
// know what all did, who asks once is not short of one. Of a key without a place in its
// region an edge has a fixed part of each window, and may have used that up; so has one
// that tells no demand, as it speaks as the first build did. Who lies about it takes the
// others' parts. Where keys compete for places at an edge it is not demanded yet: seed
// 934 of 974af9a has 15 of 20 left, and one who is short for the rest of his window. And
// what an edge had that went while nobody answered it is kept for it for a while.
func (t *trial) fill() error {
	if t.err != nil || t.crowds() || t.has[Hostile] || t.has[Evict] || t.strict { // of strict limits see strictly
		return nil
	}
	if gone := t.w.Untold(); !gone.IsZero() {
		if err := t.advance(gone.Add(regional.KeepFair + 15*time.Second)); err != nil {
			return err
		}
		for user := range t.users {
			t.peek(user)
		}
		if err := t.advance(t.w.Now().Add(2 * time.Second)); err != nil {
			return err
		}
	}
	for _, name := range t.w.Edges() {
		if t.isOld(name) {
			continue
		}
		n := t.w.Node(name)
		for user := range t.users {
			req := n.Rules().Only().NewRequest()
			req.Set("user", t.people[user].name)
			req.Peek, req.Cost = true, 1
			d := t.check(name, req)
			if d.Basis.CutOff {
				t.failf("cut-off", "after the faults %s says that it is cut off", name)
			}
			if !d.Allowed && d.Basis.Short {
				t.failf("1", "after the faults %s has %s short of a share for good: %d of %s are left", name, t.people[user].name, d.Remaining, d.Rate.Policy)
			}
			req.Release()
		}
	}
	return nil
}

// expire demands that nothing is left of what has left all windows: invariant 8.
func (t *trial) expire() error {
	t.w.Calm()
	left := 4 * t.longest()
	if t.strict { // rights are kept for a while for who may ask again
		left += 4 * time.Minute
	}
	if err := t.advance(t.w.Now().Add(left)); err != nil {
		return err
	}
	for _, name := range t.w.Edges() {
		if keys := t.w.Node(name).Keys(); keys > t.hostile.spoils() {
			t.failf("8", "%s still has %d keys", name, keys)
		}
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if st := v.Aggregator().Stats(t.w.NowAtServer(v)); st.Keys > t.hostile.spoils() {
				t.failf("8", "%s still has %d keys", v.Name, st.Keys)
			}
		}
		for _, c := range t.counters {
			vectors, err := t.w.Store(r).Holds(c.key, c.rate.Width, c.rate.Span)
			if err != nil {
				return err
			}
			if len(vectors) > 0 && c.claimed == nil {
				t.failf("8", "the store of %s still has %+v of %s", r, vectors, c.user)
			}
		}
	}
	return nil
}

// peek has all edges hear of a user's keys. Where keys compete all at once would
// put each other out before anybody was asked.
func (t *trial) peek(user int) {
	for _, name := range t.w.Edges() {
		t.peekAt(name, t.people[user].name)
	}
}

func (t *trial) peekAt(edge, user string) {
	req := t.w.Node(edge).Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Peek = true
	t.check(edge, req)
}

// mistaken says that what is known of a counter is a hostile PoP's to choose, who
// named it: its limit, or how much of its own counts is believed where.
func (t *trial) mistaken(c *counter) bool { return c.claimed != nil }

// agree demands that all edges believe the same of a counter: all that was
// charged, but for what nobody was told who lives.
func (t *trial) agree(c *counter) {
	if t.mistaken(c) {
		return
	}
	// What was forgotten to make room is not told again to a region that was away, or
	// lost it, unless it is listed: within a region all know it from the store. Seed 432:
	// an aggregator dies before another region has answered what it told; the edge has
	// forgotten the key, and who comes next has no place for it, so that he never knows
	// that the other region lacks it. To tell it all the same he would have to read
	// everything that is stored; he reads the keys that have used a quarter. Where it is
	// edges that have no room it is the same: an owner who begins with nothing hears of
	// the key from none of them (seed 50000130).
	// And where both lack room it takes no death: what finds the outboxes full is told
	// later, unless it makes room first (evicted_unexported, seed 70003117).
	apart := t.has[Evict] && (t.crowds() || t.mayForget()) || t.crowds() && t.mayForget()
	// What an edge counted that is dead is told again by its region's owner of the key,
	// as long as he who was told lives. Where the lane has another owner by the time that
	// another region starts with nothing, it is in the store alone (seed 80012030: an
	// edge left, its aggregator too, and both homes of the key started anew).
	orphans := t.died && (t.mayForget() || t.crowds())
	reach := c.rate.Reach(t.w.Now().UnixNano())
	own, dead, least := map[string]*crdt.Vector{}, map[string]*crdt.Vector{}, map[string]*crdt.Vector{} // what cannot be lost: by regions whose it is, of lives that are over, and that must know it
	for l, truth := range c.byLife {
		site := t.w.Site(l.edge)
		t.keep(c, l, truth, site, of(own, site.Region))
		if orphans && (l.nth != site.Lives() || !site.There()) {
			t.keep(c, l, truth, site, of(dead, site.Region))
		}
	}
	for from, all := range own {
		stored := within(all.Cells(nil), reach)
		for _, region := range t.regionNames {
			if from != region && apart && !t.listed(c, stored) {
				continue
			}
			for _, cell := range all.Cells(nil) {
				if gone := of(dead, from).Get(cell.Slice); from != region && !t.listed(c, stored) {
					cell.Charges, cell.Refunds = crdt.SatSub(cell.Charges, gone.Charges), crdt.SatSub(cell.Refunds, gone.Refunds)
				}
				of(least, region).Add(cell)
			}
		}
	}
	var first []crdt.Cell
	firstOf := ""
	for _, name := range t.w.Edges() {
		if !t.uses(name, c) {
			continue
		}
		own, others, live := t.w.Node(name).Cells(c.key)
		if !live && (t.has[Evict] || c.rate.Bucket()) {
			continue // it was evicted, or has drained
		}
		if !live { // what is only asked for is swept, and the next decision has it of the view
			t.peekAt(name, c.user)
			own, others, live = t.w.Node(name).Cells(c.key)
			t.woken = append(t.woken, [2]string{name, c.user}) // and the user's other counters
		}
		if (!live || len(own) == 0 && slices.Contains(t.woken, [2]string{name, c.user})) && t.has[Flood] && (t.has[Depart] || t.has[NewRegion]) {
			continue // who joined late and charged nothing knows it by a view that forgets under a flood (seed 45000717)
		}
		if c.rate.Bucket() && len(own)+len(others) == 0 && t.drained(c, of(least, t.w.Site(name).Region)) {
			continue // it was asked for anew (seed 83001538)
		}
		believed := within(sum(own, others), reach)
		counts := reach // what has left all windows by a clock that is ahead yet is gone there (seed 80025595)
		if shown := t.shown(name); shown.After(t.w.Now()) {
			counts = c.rate.Reach(shown.UnixNano())
		}
		for _, cell := range within(of(least, t.w.Site(name).Region).Cells(nil), counts) {
			if got := cellOf(believed, cell.Slice); got.Charges < cell.Charges || got.Refunds < cell.Refunds {
				t.failf("4", "after the faults %s believes %+v of %s (%s), at least %+v is known to somebody", name, got, c.user, c.rate.Policy, cell)
			}
		}
		if counts != reach {
			continue
		}
		if firstOf == "" || apart || t.has[Evict] || orphans {
			first, firstOf = believed, name
			continue
		}
		if fmt.Sprint(believed) != fmt.Sprint(first) {
			t.failf("4", "after the faults %s believes %v of %s (%s), %s believes %v", name, believed, c.user, c.rate.Policy, firstOf, first)
		}
	}
}

// drained says that nothing is in a bucket any more of so much.
func (t *trial) drained(c *counter, counts *crdt.Vector) bool {
	now := t.w.Now().UnixNano()
	return c.rate.Rounded(c.rate.Used(within(counts.Cells(nil), c.rate.Reach(now)), crdt.Carry{}, now)) == 0
}

// listed says that a region has stored so much of a counter that it is on the list
// that new owners of its lane read: a quarter of the limit. A bucket may have drained.
func (t *trial) listed(c *counter, stored []crdt.Cell) bool {
	return !c.rate.Bucket() && net(stored) >= c.rate.Limit*t.mostFactor()/4+1
}

// keep adds to what must be known of a counter what a life of an edge counted: all
// of one that lives, and what was acknowledged of one that is dead.
func (t *trial) keep(c *counter, l life, truth *crdt.Vector, site *world.Site, into *crdt.Vector) {
	if l.nth == site.Lives() && !t.has[Evict] {
		for _, cell := range truth.Cells(nil) {
			into.Add(cell)
		}
		return
	}
	for _, stored := range c.stored[l] {
		for _, cell := range stored.Cells(nil) {
			into.Add(cell)
		}
	}
}

// mayForget says that regions may have lost counts that nobody lives to tell
// again: some edges heard of them, others never will.
func (t *trial) mayForget() bool {
	for _, f := range []Fault{CrashServer, Flap, KnowsNothing, StoreDown, StoreDeaf, StoreWipe, StoreFailTo} {
		if t.has[f] {
			return true
		}
	}
	return false
}
