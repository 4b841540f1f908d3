package regional

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// The aggregators of a region share its lanes. Each tells the others that it
// lives; the lanes are dealt among those who do, and who owns one alone serves
// it. That saves work, and nothing depends on it: a frame that somebody else
// gets is joined, stored and told to the other regions as ever.

// share is an aggregator's part in its region.
type share struct {
	mu      sync.Mutex // guards members and gained
	members *members
	gained  laneSet // and not yet read from the store

	owned, serving atomic.Uint64 // laneSets, as last found
}

// settle makes known what members have found; s.mu is held.
func (s *share) settle(now int64) {
	before := laneSet(s.owned.Swap(uint64(s.members.owned)))
	s.gained = (s.gained | s.members.owned&^before) & s.members.owned
	s.serving.Store(uint64(s.members.serving(now)))
}

// takeGained is the lanes that were gained since it was last called.
func (a *Aggregator) takeGained() laneSet {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	gained := a.share.gained
	a.share.gained = 0
	a.legacy.unread.Or(uint64(gained))
	a.legacy.lacks.Or(uint64(gained))
	return gained
}

// Join has the aggregator share the lanes with the others of its region; before
// that, all are its own. It owns none until it has listened for long enough to
// know who lives. Call Beat every BeatEvery from then on, HearBeat with what
// others say, and Assign every Config.Urgent.
func (a *Aggregator) Join(now time.Time) {
	a.shared(now, func(m *members, t int64) { m.join(t) })
}

// Found ends the listening: the aggregator asked, and nobody else is there.
func (a *Aggregator) Found(now time.Time) {
	a.shared(now, func(m *members, t int64) { m.found(t) })
}

// Assign finds out who fell silent, and takes over what was his.
func (a *Aggregator) Assign(now time.Time) {
	a.shared(now, func(m *members, t int64) { m.assign(t) })
}

// Leave gives all lanes away, and returns what the others are to hear: they
// take them over at once. Frames are answered as before; what they told goes on
// to be stored and exported.
func (a *Aggregator) Leave(now time.Time) []byte {
	a.shared(now, func(m *members, t int64) { m.leave(t) })
	return a.Beat(now)
}

// shared changes what is known of the members, and says what came of it.
func (a *Aggregator) shared(now time.Time, change func(*members, int64)) {
	t, s := a.clock.Raw(now), &a.share
	s.mu.Lock()
	defer s.mu.Unlock()
	was, taken := s.members.owned, s.members.taken
	change(s.members, t)
	s.settle(t)
	if owned := s.members.owned; owned != was {
		a.cfg.Logger.Info("lanes are shared anew", "owned", owned.len(), "gained", (owned &^ was).len(),
			"given_away", (was &^ owned).len(), "others", len(s.members.others), "taken_over", s.members.taken-taken)
	}
}

// Beat is what the others are to hear now; nil: nothing, as long as the
// aggregator listens. They would give it lanes that it does not serve yet.
func (a *Aggregator) Beat(now time.Time) []byte {
	edges, regions := a.inbox.Live(a.clock.At(now), a.lately())
	evenly := a.inbox.LiveEvenly(a.clock.At(now), a.lately())
	t, s := a.clock.Raw(now), &a.share
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members.listens(t) && !s.members.leaving {
		return nil
	}
	l := deltasync.Live{
		Region: a.cfg.Region, Name: a.cfg.Name, Incarnation: a.cfg.Incarnation, Lanes: a.cfg.Lanes, SentAt: t,
		Leaving: s.members.leaving, LiveEdges: edges, LiveRegions: regions, EvenEdges: evenly,
	}
	b, err := l.AppendBinary(nil)
	if err != nil { // our own bug
		a.cfg.Logger.Error("beat dropped", "err", err)
		return nil
	}
	return b
}

// HearBeat takes in what an aggregator of the region says, this one included.
func (a *Aggregator) HearBeat(now time.Time, payload []byte) error {
	var l deltasync.Live
	err := l.UnmarshalBinary(payload)
	if err == nil {
		a.shared(now, func(m *members, t int64) { err = m.hear(t, &l) })
	}
	if err != nil {
		a.stats.badBeats.Add(1)
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

// Owns says that the lane is this aggregator's.
func (a *Aggregator) Owns(lane int) bool { return laneSet(a.share.owned.Load()).has(lane) }

// firstOwned is the first of its lanes, 64 where it has none.
func (a *Aggregator) firstOwned() int { return bits.TrailingZeros64(a.share.owned.Load()) }

// Serves says that frames of the lane are to be taken: it is this aggregator's,
// or was a moment ago.
func (a *Aggregator) Serves(lane int) bool { return laneSet(a.share.serving.Load()).has(lane) }

// Alone says that no other aggregator of the region is known to live.
func (a *Aggregator) Alone() bool {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	return a.share.members.alone()
}

// lately is how long after its last frame a sender counts as live.
func (a *Aggregator) lately() time.Duration { return max(time.Second, 10*a.cfg.Interval) }

// live is how many edges and regions live, as far as any aggregator of the
// region knows: who has nothing to tell is heard of by the owner of one lane. A region
// that may be cut off does not, from the moment that its part is kept for it.
func (a *Aggregator) live(now int64) (edges, regions int) {
	edges, regions = a.inbox.Live(now, a.lately())
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	for _, o := range a.share.members.others {
		if !o.leaving {
			edges, regions = max(edges, o.edges), max(regions, o.regions)
		}
	}
	if cut := a.suspected(now); cut > 0 {
		regions = min(regions, len(a.cfg.Peers)+1-cut)
	}
	return edges, regions
}

// liveBeside is how many edges of the region an edge is to reckon with, for its part of
// what nobody has told it: see deltasync.Inbox.LiveBeside. Who owns other lanes than the
// first does not hear of idle ones, and takes them to be of the PoPs that it hears of.
func (a *Aggregator) liveBeside(now int64, node uint64) int {
	beside, evenly := a.inbox.LiveBeside(now, a.lately(), node)
	return max(1, min(beside*a.evenly(evenly)/max(1, evenly), maxBeside))
}

// liveEvenly is how many edges live, but of no PoP many more than of others.
func (a *Aggregator) liveEvenly(now int64) int {
	return a.evenly(a.inbox.LiveEvenly(now, a.lately()))
}

// evenly is LiveEvenly as far as any aggregator of the region knows.
func (a *Aggregator) evenly(heard int) int {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	for _, o := range a.share.members.others {
		if !o.leaving {
			heard = max(heard, o.evenly)
		}
	}
	return heard
}

// maxBeside is as many as a Down can tell.
const maxBeside = 1 << 20

// readShare is Stats of the lanes and of who shares them.
func (a *Aggregator) readShare(st *Stats, now int64) {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	m := a.share.members
	st.Lanes, st.Owned, st.Takeovers, st.Listening = a.cfg.Lanes, m.owned.len(), m.taken, m.listens(now)
	if !m.leaving {
		st.Members++
	}
	for _, o := range m.others {
		if !o.leaving {
			st.Members++
		}
	}
}
