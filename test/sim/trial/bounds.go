package trial

import (
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// mostHeld is how many counts of a key an outbox holds at the most: one that waits,
// and one in each frame under way.
const mostHeld = 1 + deltasync.MostInFlight

// verifyBounds demands that nothing grows with time or with requests, whatever
// fails: invariant 10. What is held is at most of all keys that there are, or of
// as many as there is room for.
func (t *trial) verifyBounds() {
	known := len(t.counters) + len(t.strangers) + t.hostile.keys()
	for _, name := range t.w.Edges() {
		st := t.w.Node(name).Stats(t.w.NowAt(name))
		room := known
		if t.has[Evict] && len(t.strangers) == 0 {
			room = t.places
		}
		if st.Keys > room {
			t.failf("10", "%s has %d keys, there is room for %d", name, st.Keys, room)
		}
		// A key that was forgotten and came back is another.
		if lives := t.mostLives(); st.Outbox > mostHeld*known*lives {
			t.failf("10", "the outboxes of %s hold %d counts of %d keys", name, st.Outbox, known)
		}
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if v.Aggregator() != nil {
				t.verifyRoom(v, known)
			}
		}
	}
}

// mostLives is how many lives of a key may wait at once.
func (t *trial) mostLives() int {
	if t.has[Evict] {
		return 4
	}
	return 1
}

// growing is what the keys of a lane may have grown by since others last made room
// for them.
const growing = 8 << 10

// verifyRoom is verifyBounds of an aggregator.
func (t *trial) verifyRoom(v *world.Server, known int) {
	st := v.Aggregator().Stats(t.w.NowAtServer(v))
	t.crossings.evicted[v.Name] = st.Evicted + st.EvictedUnexported + st.EvictedUnstored
	room := known
	if t.has[EvictServer] {
		room = min(room, serverKeys*t.lanes)
	}
	if st.Keys > room {
		t.failf("10", "%s has %d keys, there is room for %d", v.Name, st.Keys, room)
	}
	// Keys grow a little before others make room for them; while the store lacks what they
	// have, by a tenth, target P8's (seed 40002906).
	most := t.serverBytes() + int64(t.lanes)*growing
	if t.mayForget() || t.has[Freeze] || t.has[Hostile] { // who makes keys grow as fast as he can (seed 80001347)
		most += t.serverBytes() / 10
	}
	if t.has[Flood] && int64(st.Bytes) > most {
		t.failf("10", "the keys of %s take %d bytes, there is room for %d", v.Name, st.Bytes, most)
	}
	if told := v.Aggregator().Untold(); told > mostHeld*known*(t.regions-1) {
		t.failf("10", "%s holds %d counts of %d keys for %d other regions", v.Name, told, known, t.regions-1)
	}
	if st.Unstored > 2*known+t.lanes {
		t.failf("10", "%s has %d of %d keys on its list for the store", v.Name, st.Unstored, known)
	}
}
