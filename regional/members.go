package regional

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"

	"github.com/spillgate/spillgate/sync"
)

const (
	// BeatEvery is how often an aggregator tells the others that it lives.
	BeatEvery = 200 * time.Millisecond
	// deadAfter is how long one is silent who is dead: three beats, and time for
	// the third to arrive. Then others take its lanes.
	deadAfter = 700 * time.Millisecond
	// handOver is how long who gave a lane away still serves it: until then all
	// have heard who has it now.
	handOver = time.Second
	// maxMembers bounds the list: more than edges tell apart are no region.
	maxMembers = deltasync.KnownEpochs
)

// laneSet is a set of lanes, a bit each.
type laneSet uint64

func allLanes(n int) laneSet { return 1<<n - 1 } // 64 of them: the shift gives 0, less one is all

func (s laneSet) has(lane int) bool { return s&(1<<lane) != 0 }
func (s laneSet) len() int          { return bits.OnesCount64(uint64(s)) }

// memberID is one life of an aggregator.
type memberID struct {
	name        string
	incarnation uint64
}

// member is another aggregator of the region, as it was last heard of.
type member struct {
	since, heard   int64 // by our clock: first, and last
	leaving        bool
	edges, regions int // that it hears of
	evenly         int // Live.EvenEdges
}

// members is who shares the lanes of a region, as one of them sees it. It is a
// matter of beats and clocks alone; two who cannot hear each other both think
// that all lanes are theirs, which costs double work and no count.
type members struct {
	region string
	self   memberID
	lanes  int

	leaving bool  // it gives all lanes away
	since   int64 // when it began to listen; 0: it need not
	looked  int64 // when it last looked who is silent
	others  map[memberID]member
	owned   laneSet
	left    [deltasync.MaxLanes]int64 // when a lane was given away; 0: never
	taken   uint64                    // lanes that were taken over from who fell silent
}

func newMembers(region, name string, incarnation uint64, lanes int) *members {
	return &members{region: region, self: memberID{name, incarnation}, lanes: lanes, others: map[memberID]member{}, owned: allLanes(lanes)}
}

// join begins to listen. Until a dead one would have been found out, it owns
// nothing: it does not know yet whose the lanes are.
func (m *members) join(now int64) {
	m.since, m.looked, m.owned = now, now, 0
}

// found ends the listening: there is nobody else to be heard.
func (m *members) found(now int64) {
	m.since = now - int64(deadAfter)
	m.assign(now)
}

// listens says that it is too early to own anything.
func (m *members) listens(now int64) bool {
	return m.since != 0 && now >= m.since && now-m.since < int64(deadAfter) // before: the clock was set back, see follow
}

// leave gives all lanes away.
func (m *members) leave(now int64) {
	m.leaving = true
	m.assign(now)
}

// hear takes in what another says of itself.
func (m *members) hear(now int64, l *deltasync.Live) error {
	id := memberID{l.Name, l.Incarnation}
	switch {
	case l.Region != m.region:
		return fmt.Errorf("beat of %s/%s: this is %s", l.Region, l.Name, m.region)
	case id == m.self:
		return nil
	case l.Lanes != m.lanes:
		return fmt.Errorf("beat of %s: it has %d lanes, this aggregator %d: set the same number everywhere", l.Name, l.Lanes, m.lanes)
	}
	m.follow(now)
	was, known := m.others[id]
	if !known && len(m.others) >= maxMembers {
		return fmt.Errorf("beat of %s: there are %d others already", l.Name, len(m.others))
	}
	if was.leaving { // what it said before may arrive later
		return nil
	}
	since := was.since
	if !known {
		since = now
	}
	m.others[id] = member{since: since, heard: now, leaving: l.Leaving, edges: l.LiveEdges, regions: l.LiveRegions, evenly: cmp.Or(l.EvenEdges, l.LiveEdges)}
	m.assign(now)
	return nil
}

// namesake says that another one has our name, and lives beside us.
func (m *members) namesake() bool {
	for id, o := range m.others {
		if id.name == m.self.name && !o.leaving && o.heard-o.since >= int64(namesakeFor) {
			return true
		}
	}
	return false
}

// assign finds who fell silent, and whose the lanes are now.
func (m *members) assign(now int64) {
	m.follow(now)
	died := m.forget(now)
	want := laneSet(0)
	if !m.leaving && !m.listens(now) {
		for lane := range m.lanes {
			if m.owner(lane) == m.self {
				want |= 1 << lane
			}
		}
	}
	gained, lost := want&^m.owned, m.owned&^want
	if died {
		m.taken += uint64(gained.len())
	}
	for lane := range m.lanes {
		switch {
		case gained.has(lane):
			m.left[lane] = 0
		case lost.has(lane):
			m.left[lane] = now
		}
	}
	m.owned = want
}

// follow looks at the clock. Where nobody looked for long it was us who were deaf, as a
// process is that was stopped for a while, or the clock was set: neither makes anybody's
// silence longer than it was, nor shorter, or a dead one's lanes would lie idle for
// as long again.
func (m *members) follow(now int64) {
	missed := now - m.looked
	m.looked = now
	if missed >= 0 && missed <= int64(deadAfter)/2 {
		return
	}
	for id, o := range m.others {
		o.since, o.heard = o.since+missed, o.heard+missed
		m.others[id] = o
	}
	if m.since != 0 {
		m.since += missed
	}
}

// forget drops who fell silent, and says whether one of them did so without
// taking leave.
func (m *members) forget(now int64) (died bool) {
	for id, o := range m.others {
		if now-o.heard > int64(deadAfter) {
			delete(m.others, id)
			died = died || !o.leaving
		}
	}
	return died
}

// owner is whose a lane is: of all that live, theirs who draw the highest number
// for it. So a member that comes or goes moves the lanes that it gets or had,
// and no others.
func (m *members) owner(lane int) memberID {
	best := m.self
	for id, o := range m.others {
		if !o.leaving && id.before(best, lane) {
			best = id
		}
	}
	return best
}

// before says who of two gets a lane.
func (id memberID) before(other memberID, lane int) bool {
	if a, b := draw(lane, id.name), draw(lane, other.name); a != b {
		return a > b
	}
	if id.name != other.name {
		return id.name > other.name
	}
	return id.incarnation > other.incarnation // it started again: the other one is dead
}

// draw is the number that an aggregator draws for a lane. All have to draw
// alike: it must never change.
func draw(lane int, name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return stir(h + (uint64(lane)+1)*0x9e3779b97f4a7c15) // names differ in a letter
}

// stir is the end of SplitMix64 (Steele, Lea and Flood, 2014): a bijection.
func stir(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// serving is the lanes that frames are to be taken of: those owned, and for a
// while those given away.
func (m *members) serving(now int64) laneSet {
	s := m.owned
	for lane := range m.lanes {
		if at := m.left[lane]; at != 0 && now >= at && now-at < int64(handOver) {
			s |= 1 << lane
		}
	}
	return s
}

// alone says that nobody else is there to take the lanes.
func (m *members) alone() bool {
	for _, o := range m.others {
		if !o.leaving {
			return false
		}
	}
	return true
}
