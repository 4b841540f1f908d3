package trial

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// hostile is a PoP that sends a region whatever it likes, under its own identity:
// more the bus does not let it. It names the keys of the first two users, and
// invents others; the counts of nobody else may be touched by it.
type hostile struct {
	t        *trial
	region   string
	lane     int
	head     deltasync.Up
	heard    [][]byte      // frames of others
	own      [][]byte      // that it sent
	refused  map[place]int // by lives of aggregators; see seat
	invents  map[deltasync.Key]bool
	inflated []*counter // by more than anybody may count
	lied     []*counter // of the limit
	jailed   []*counter // kept out, as it says
	since    time.Time  // when that was first told; zero: never
}

const (
	hostilePop, hostileName = "mallory", "m-1"
	// badFrames is how many it sends at once that must be refused; after muteAfter
	// within a minute nobody listens to it any more.
	badFrames, muteAfter = 40, 100
	muted                = time.Minute
	// growth is how many times its limit the counts of one edge may be, in a window.
	growth = 16
	// maxLives is how many lives of one edge and key an aggregator keeps.
	maxLives, manyLives = 1024, 1030
	// remembered bounds what it plays back.
	remembered = 32
)

// provoke has the hostile PoP begin, if the trial has one.
func (t *trial) provoke() {
	if !t.has[Hostile] {
		return
	}
	rnd := t.stream("hostile")
	h := &hostile{t: t, region: t.regionNames[rnd.IntN(len(t.regionNames))], lane: rnd.IntN(t.lanes), refused: map[place]int{}, invents: map[deltasync.Key]bool{}}
	h.head = deltasync.Up{
		Kind: deltasync.KindEdge, Region: h.region, Pop: hostilePop, Name: hostileName, Node: deltasync.NodeID(h.region, hostilePop, hostileName),
		Incarnation: uint64(start.UnixMilli()), Lanes: t.lanes,
	}
	h.inflated, h.lied, h.jailed = t.of(0), t.of(1), t.of(2)
	for _, c := range append(append([]*counter{}, h.inflated...), h.lied...) {
		c.claimed = &crdt.Vector{}
	}
	t.hostile = h
}

// attack sends the region some of each kind of bad frame, and many that must be
// refused.
func (h *hostile) attack(rnd *rand.Rand) {
	now := h.t.w.Now().UnixNano()
	for _, c := range h.inflated {
		h.tell(c, shapeOf(c), crdt.Cell{Slice: c.rate.SliceAt(now), Charges: 1 << (10 + rnd.IntN(53))})
		h.tell(c, shapeOf(c), crdt.Cell{Slice: c.rate.SliceAt(now + int64(time.Hour)), Charges: 1})
		h.tell(c, shapeOf(c), crdt.Cell{Slice: c.rate.SliceAt(now), Refunds: 1 << (10 + rnd.IntN(53))})
		h.tellLives(rnd, c, now)
	}
	for _, c := range h.lied {
		shape := shapeOf(c)
		if shape.Limit = 1; rnd.IntN(2) == 0 {
			shape.Limit = 1 << 50
		}
		h.tell(c, shape, crdt.Cell{Slice: c.rate.SliceAt(now), Charges: 1 + uint64(rnd.IntN(5))})
	}
	h.jail(rnd)
	h.invent(rnd, shapeOf(h.inflated[0]), now)
	if len(h.own) > 0 {
		h.send(h.lane, h.own[rnd.IntN(len(h.own))])
	}
	h.send(h.lane, make([]byte, deltasync.MaxFrame+1))
	for range badFrames {
		h.send(h.lane, h.bad(rnd))
	}
}

// bad is a frame that must be refused: of somebody else, cut short, or of a version
// that nobody speaks.
func (h *hostile) bad(rnd *rand.Rand) []byte {
	if len(h.heard) == 0 {
		return []byte("no frame")
	}
	frame := h.heard[rnd.IntN(len(h.heard))]
	switch rnd.IntN(3) {
	case 0:
		return frame
	case 1:
		return frame[:1+rnd.IntN(len(frame)-1)]
	}
	newer := append([]byte(nil), frame...)
	newer[1] = deltasync.Version + 1 + byte(rnd.IntN(9)) // the first field is the version
	return newer
}

// tell claims a count of a key.
func (h *hostile) tell(c *counter, shape deltasync.Shape, cell crdt.Cell) {
	h.put(c.key.Lane(h.t.lanes), h.claim(c, shape, 0, cell))
}

// tellLives claims counts of a key in many lives.
func (h *hostile) tellLives(rnd *rand.Rand, c *counter, now int64) {
	var all []deltasync.Section
	for l := range uint32(manyLives) {
		all = append(all, h.claim(c, shapeOf(c), l, crdt.Cell{Slice: c.rate.SliceAt(now), Charges: 1 + uint64(rnd.IntN(9))}))
	}
	h.put(c.key.Lane(h.t.lanes), all...)
}

// claim is a section with a count of a key.
func (h *hostile) claim(c *counter, shape deltasync.Shape, life uint32, cell crdt.Cell) deltasync.Section {
	c.claimed.Add(cell)
	return deltasync.Section{Shape: shape, Life: life, Deltas: []deltasync.Delta{{Key: c.key, Cells: []crdt.Cell{cell}}}}
}

// longestTerm is for how long a PoP may keep a key out that has nothing more to show.
const longestTerm = 24 * time.Hour

// jail tells that a user is to be kept out, until later each time. Frames of it that
// are under way arrive after it.
func (h *hostile) jail(rnd *rand.Rand) {
	if h.since.IsZero() {
		h.since = h.t.w.Now()
	}
	for _, c := range h.jailed {
		sec := deltasync.Section{Shape: shapeOf(c), Deltas: []deltasync.Delta{{
			Key: c.key, Until: h.t.w.Now().Add(time.Duration(rnd.Int64N(int64(60 * longestTerm)))).UnixNano(),
		}}}
		h.put(c.key.Lane(h.t.lanes), sec)
	}
}

// verifyTerm holds the end of a penalty that an aggregator tells to a bound: a day from
// when a PoP first told it, as far as who tells it can know when that was.
func (t *trial) verifyTerm(who string, c *counter, until int64) {
	if t.hostile == nil || !slices.Contains(t.hostile.jailed, c) || until == 0 {
		return
	}
	from := t.hostile.since
	if t.servers > 1 || t.crowds() || t.mayForget() || t.has[Leave] || t.regions > 1 || 2*c.charged >= c.rate.Limit {
		from = t.w.Now() // somebody has forgotten, or it was used
	}
	blur := time.Second
	if t.has[ServerClock] { // a day by its clock (seed 82001350)
		blur += mostSet
	}
	if most := from.Add(longestTerm + blur).UnixNano(); until > most {
		t.failf("hostile", "%s keeps %s (%s) out for %v, want %v from %v on", who, c.user, c.rate.Policy, time.Duration(until-t.w.Now().UnixNano()), longestTerm, from)
	}
}

// invent counts keys that nobody has.
func (h *hostile) invent(rnd *rand.Rand, shape deltasync.Shape, now int64) {
	sec := deltasync.Section{Shape: shape}
	for range 30 {
		key := deltasync.Key(rnd.Uint64())
		if key == 0 || key.Lane(h.t.lanes) != h.lane {
			continue
		}
		h.invents[key] = true
		sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key, Cells: []crdt.Cell{{Slice: crdt.Slice(now / int64(shape.Width)), Charges: 3}}})
	}
	h.put(h.lane, sec)
}

// put sends a frame that can be read.
func (h *hostile) put(lane int, sections ...deltasync.Section) {
	up := h.head
	h.head.Seq++
	up.Lane, up.Seq, up.SentAt, up.Sections = lane, h.head.Seq, h.t.w.Now().UnixNano(), sections
	frame, err := up.AppendBinary(nil)
	if err != nil {
		h.t.failf("hostile", "its frame cannot be written: %v", err)
		return
	}
	if lane == h.lane && len(h.own) < remembered {
		h.own = append(h.own, frame)
	}
	h.send(lane, frame)
}

// send sends what it likes, on the subject that is its own. It is muted once it
// has gone on for long enough.
func (h *hostile) send(lane int, frame []byte) {
	h.t.w.Inject(h.region, deltasync.EdgeSubject(h.region, lane, hostilePop, hostileName), frame, func(by *world.Server, reply []byte) {
		var down deltasync.Down
		if err := down.UnmarshalBinary(reply); err != nil {
			h.t.failf("hostile", "%s answers what cannot be read: %v", by.Name, err)
			return
		}
		if s := down.Status; s != deltasync.StatusUnsupported && (s != deltasync.StatusForbidden || len(down.Refused) > 0) {
			return
		}
		at := place{by.Name, deltasync.Key(by.Lives())}
		if h.t.w.Now().Sub(start) >= muted { // for now
			return
		}
		if h.refused[at]++; h.refused[at] > muteAfter && by.Aggregator() != nil && by.Aggregator().Stats(h.t.w.NowAtServer(by)).Muted == 0 && !h.t.has[ServerClock] { // the minutes that count begin anew when that is set back
			h.t.failf("hostile", "%s has refused %d frames, and still listens", by.Name, h.refused[at])
		}
	})
}

// overhears keeps frames of others.
func (h *hostile) overhears(up *deltasync.Up, frame []byte) {
	if h == nil || up.Lane != h.lane || len(up.Sections) == 0 || up.Region != h.region || len(h.heard) >= remembered {
		return
	}
	h.heard = append(h.heard, frame)
}

// is says that an entry in a region is the hostile PoP's.
func (h *hostile) is(region string, r crdt.Replica) bool {
	return h != nil && region == h.region && r.Node == h.head.Node
}

// invented says that a key is of its invention.
func (h *hostile) invented(key deltasync.Key) bool { return h != nil && h.invents[key] }

// spoils says how many counters last for longer than others do: a bucket that it
// has filled to the brim many times over takes as long to drain.
func (h *hostile) spoils() int {
	if h == nil {
		return 0
	}
	return len(h.inflated) + len(h.lied) + len(h.jailed)
}

// keepsOut says that it has told that a key is to be kept out.
func (h *hostile) keepsOut(c *counter) bool { return h != nil && slices.Contains(h.jailed, c) }

// keys is how many those are.
func (h *hostile) keys() int {
	if h == nil {
		return 0
	}
	return len(h.invents)
}

// verifyHostile holds what the hostile PoP could have counted of a key to a bound:
// so many times the limit in a window, all its lives together; and what it gives back
// of what others counted.
func (t *trial) verifyHostile(who, region string, c *counter, vectors []regional.Vector) {
	if t.hostile == nil {
		return
	}
	var all crdt.Vector
	for _, v := range vectors {
		if v.Source == regional.FromEdge && t.hostile.is(region, v.Replica) {
			if c.claimed == nil {
				t.failf("hostile", "%s has counts of %s, whom it does not name, from the hostile PoP", who, c.user)
				return
			}
			for _, cell := range v.Cells {
				all.Add(cell)
			}
		}
	}
	for _, l := range t.hostile.lied {
		if l == c {
			return // by a limit that it chose; it decides nothing but this key
		}
	}
	counted, lifted := uint64(0), uint64(0)
	for i := range all.Len() {
		cell := all.At(i)
		counted = crdt.SatAdd(counted, cell.Net())
		lifted = crdt.SatAdd(lifted, crdt.SatSub(cell.Refunds, cell.Charges))
	}
	if most := t.mostCounted(c); counted > most {
		t.failf("hostile", "%s has %d of %s (%s) from the hostile PoP, want %d at most", who, counted, c.user, c.rate.Policy, most)
	}
	if most := shapeOf(c).Limit * t.mostFactor() * t.forgetful(); lifted > most {
		t.failf("hostile", "%s lets the hostile PoP give back %d of what others counted of %s (%s), want %d at most", who, lifted, c.user, c.rate.Policy, most)
	}
}

// mostCounted is what an aggregator takes of one edge and key in a window.
func (t *trial) mostCounted(c *counter) uint64 {
	spend := c.rate.Limit * t.mostFactor()
	if s := shapeOf(c); s.Bucket() {
		spend = c.rate.Limit + s.Refill*(uint64(s.Window()/s.RefillPer)+1)
	}
	times := growth * t.forgetful()
	if spend > math.MaxUint64/times {
		return math.MaxUint64
	}
	return times * spend
}

// forgetful is how many times as much of a sender aggregators may take: who has
// forgotten, or never heard, what one life counted takes as much of another.
func (t *trial) forgetful() uint64 {
	if t.servers > 1 || t.crowds() || t.mayForget() || t.has[Leave] || t.has[Split] {
		return maxLives
	}
	return 1
}

// shapeOf is the shape that edges tell of a counter.
func shapeOf(c *counter) deltasync.Shape {
	r := c.rate
	return deltasync.Shape{
		Generation: r.Generation, Width: r.Width, Slices: r.Span, Limit: r.Limit,
		Refill: r.Drain.Refill, RefillPer: r.Drain.Per, Floor: r.Drain.Floor,
	}
}
