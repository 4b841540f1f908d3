package deltasync

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// OutboxConfig bounds an Outbox.
type OutboxConfig struct {
	// MaxDeltas is the number of deltas held, pending and in flight; 0: 65536.
	// More ride out a longer cut without the caller keeping records dirty, at
	// DeltaBytes each. One that takes more, as it has many slices, counts for
	// several.
	MaxDeltas int
	// ReserveOneIn says that of so many places one is for deltas with FlagFirst
	// alone; 0: none is.
	ReserveOneIn int
	// MaxInFlight is the number of frames under way; 0: 2. More hide the delay
	// of a far region, and let a slow one be swamped.
	MaxInFlight int
	// Patience is for how long what is under way holds up what is new: for each that
	// the oldest frame has waited one more may leave, up to MostInFlight. So a frame
	// that was lost, or a region that is far, makes news late by so much and no more,
	// and a slow one gets at most one frame each Patience. 0: it holds it up for good.
	Patience time.Duration
	// Late is for how long at least slices are told that have left every window, where
	// nothing got through before: to who judges them after the fact. For three windows,
	// where these are longer; 1024 slices of all at most. 0: they are not.
	Late time.Duration
	// MaxFrame is the largest encoded frame in bytes, 1024 to MaxFrame; 0:
	// MaxFrame. Whatever lies outside is brought inside.
	MaxFrame int
}

// MostInFlight is the number of frames under way however long they wait.
const MostInFlight = 8

const (
	defaultMaxDeltas   = 65536
	defaultMaxInFlight = 2
	// minFrame leaves room for the largest head, a section and some cells, so
	// that each frame makes progress.
	minFrame = 1024
	// DeltaBytes is what a delta with a few slices takes in an Outbox, at most, and
	// entryBytes what it takes without them.
	DeltaBytes = 256
	entryBytes = 192
	// spareBytes is the largest memory that an entry keeps while it is spare.
	spareBytes = DeltaBytes - entryBytes
)

// Outbox holds the deltas of one sender and lane until they are acknowledged:
// bounded, and coalescing, so that after a cut the newest count goes out once.
// Urgent deltas go first, before them those with FlagFirst, but for a part of
// each frame that is for who comes behind them; those of one kind first in first
// out. Nothing in it depends on the order of a map. It is not safe for concurrent
// use; its owner has the lock.
type Outbox struct {
	cfg      OutboxConfig
	open     int // of MaxDeltas, those that are not kept for FlagFirst
	sections map[sectionID]*section
	last     *section // the one that was looked up last; may be nil
	entries  index
	queues   [ranks]queue
	flights  []*flight // oldest first
	inFlight int       // deltas in flights
	flying   int       // and the places that they take
	seq      uint64
	begun    *filling // the next frame, of what went straight into it; nil: it is not begun
	free     *entry   // spare entries, linked by next; never more than MaxDeltas
	spare    spareRoom
	cells    []crdt.Cell // of the entry that goes into a frame
}

// entry is the pending delta of one key. Its cells are packed: see fewCells.
type entry struct {
	lifeKey
	section    *section
	places     uint32 // that it takes of MaxDeltas
	flags      Flags
	cells      fewCells
	carry      crdt.Carry
	until      int64
	heard      crdt.Slice
	demand     *Demand
	prev, next *entry
}

// NewOutbox makes an empty Outbox.
func NewOutbox(cfg OutboxConfig) *Outbox {
	if cfg.MaxDeltas <= 0 {
		cfg.MaxDeltas = defaultMaxDeltas
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = defaultMaxInFlight
	}
	if cfg.MaxFrame <= 0 {
		cfg.MaxFrame = MaxFrame
	}
	cfg.MaxFrame = min(max(cfg.MaxFrame, minFrame), MaxFrame)
	o := &Outbox{cfg: cfg, open: cfg.MaxDeltas, sections: map[sectionID]*section{}, entries: newIndex()}
	if cfg.ReserveOneIn > 0 {
		o.open -= cfg.MaxDeltas / cfg.ReserveOneIn
	}
	return o
}

// Put joins d, which it keeps no part of, with what is pending for the same
// key and life, under the shape that it came with last: a limit may have
// changed. Of carries and of penalties it keeps the later. It is
// false when the outbox is full and the key, or a slice, is not in it, or when d
// could not be encoded: then the caller keeps its record dirty and comes again.
func (o *Outbox) Put(shape Shape, life uint32, d Delta) bool {
	o.Hold()
	id := sectionID{shape, life}
	return o.takes(&id, &d) && o.put(&id, &d)
}

// takes says that d could be encoded.
func (o *Outbox) takes(id *sectionID, d *Delta) bool {
	if !o.atHand(id) { // else both were checked
		if id.life > MaxLife || id.shape.check() != nil {
			return false
		}
	}
	return d.Key != 0 && checkCells(d.Cells) == nil && checkCarry(d.Carry) == nil && checkUntil(d.Until) == nil && checkHeard(d.Heard) == nil
}

// put has what could be encoded wait in a queue, whether a frame is begun or not.
func (o *Outbox) put(id *sectionID, d *Delta) bool {
	name := id.of(d.Key)
	e := o.entries.find(&name)
	switch {
	case e == nil && !o.hasRoom(d.Flags):
		return false
	case e != nil && o.Crammed() && e.grows(d.Cells):
		return false // or keys that wait for long would take what they like
	}
	o.join(id, e, d)
	return true
}

// hasRoom says that one more key finds a place.
func (o *Outbox) hasRoom(f Flags) bool {
	if f&FlagFirst != 0 {
		return !o.Crammed()
	}
	return !o.Full()
}

// join puts d into the queue, where it may stand already, as e.
func (o *Outbox) join(id *sectionID, e *entry, d *Delta) {
	if e == nil {
		e = o.take()
		e.lifeKey, e.flags, e.places = id.of(d.Key), 0, 1
		e.carry, e.until, e.heard, e.demand = crdt.Carry{}, 0, d.Heard, nil
		o.entries.add(e)
		o.queue(d.Flags).push(e)
	} else if from, to := o.queue(e.flags), o.queue(e.flags|d.Flags); from != to {
		from.remove(e)
		to.push(e)
	}
	if s := o.section(id); s != e.section {
		s.entries++
		o.leave(e)
		e.section = s
	}
	for _, c := range d.Cells {
		e.cells.join(c)
	}
	// While nothing gets through slices grow old. What has left every window
	// is dropped; the count bounds memory even if a clock jumped.
	if n := e.cells.len(); n > id.shape.Slices {
		if over := n - o.keep(id.shape); over > 0 {
			e.cells.dropFirst(over)
		}
	}
	// Both carries are lower bounds of one truth, and the one with the later
	// boundary was made by who knew all that went into the older.
	if id.shape.Bucket() && d.Carry.Level > 0 {
		e.carry = e.carry.Later(d.Carry)
	}
	e.until = max(e.until, d.Until)
	if e.heard == 0 || d.Heard == 0 { // whoever is to hear all is told all
		e.heard = 0
	} else {
		e.heard = min(e.heard, d.Heard)
	}
	if d.Demand != nil {
		e.demand = d.Demand
	}
	if e.flags |= d.Flags; e.tells() {
		e.flags &^= FlagTouch
	}
	o.weigh(e)
}

// weigh brings what is known of an entry's size up to date.
func (o *Outbox) weigh(e *entry) {
	places := placesOf(e.cells.more.Bytes())
	o.queue(e.flags).waits += places - int(e.places)
	e.places = uint32(places)
}

// placesOf is how many places a delta takes whose slices take so many bytes.
func placesOf(bytes int) int { return (entryBytes + bytes + DeltaBytes - 1) / DeltaBytes }

// grows says that some of the cells, which ascend, are of slices that are not there.
func (e *entry) grows(cells []crdt.Cell) bool {
	for _, c := range cells {
		if !e.cells.has(c.Slice) {
			return true
		}
	}
	return false
}

// tells is Delta.Tells of what is pending.
func (e *entry) tells() bool { return e.cells.len() > 0 || !e.carry.Zero() || e.until != 0 }

// keep is the number of slices of a shape that anybody may still ask for: those
// of a window, the one that leaves it, and on both sides as many as a store
// keeps longer, which is a second or two slices; and late ones.
func (o *Outbox) keep(s Shape) int {
	slack := max(2, int((time.Second+s.Width-1)/s.Width))
	late := 0
	if o.cfg.Late > 0 {
		late = min(max(3*s.Slices, int(o.cfg.Late/s.Width)), max(0, mostLate-s.Slices))
	}
	return min(s.Slices+1+2*slack+late, maxCells)
}

// mostLate is how many slices of a key anybody judges.
const mostLate = 1024

// engaged says that as many frames are under way as may be at an instant.
func (o *Outbox) engaged(now int64) bool {
	n := len(o.flights)
	if n < o.cfg.MaxInFlight || o.cfg.Patience <= 0 {
		return n >= o.cfg.MaxInFlight
	}
	waited := time.Duration(now - o.flights[0].SentAt)
	return n >= MostInFlight || n >= o.cfg.MaxInFlight+int(waited/o.cfg.Patience)
}

// Next is a frame of what is pending, with what head says of the sender, or nil
// when nothing is or as many frames are under way as may be. It fits in MaxFrame. The
// outbox keeps the frame until Done or Lost names its Seq: do not change it.
func (o *Outbox) Next(head Up) *Up {
	if o.Pending() == 0 || o.engaged(head.SentAt) {
		return nil
	}
	f := o.begun
	if o.begun = nil; f == nil {
		f = o.newFilling()
	}
	o.seq++
	head.Seq, head.Sections = o.seq, f.frame.Sections
	*f.frame = head
	f.lead()
	o.unbook(f)
	o.fillAll(f)
	if cap(o.cells) > o.worthKeeping() {
		o.cells = nil
	}
	o.close(f)
	o.inFlight += f.deltas
	o.flying += f.places
	o.flights = append(o.flights, &flight{Up: f.frame, places: f.places})
	return f.frame
}

// Takes says whether a delta with such flags should be put in: while less than half
// of all places are taken, or less than so many eighths of them by those that wait
// with the same haste. So nobody is kept out by how many others there are.
func (o *Outbox) Takes(f Flags, eighths int) bool {
	switch {
	case f&FlagFirst != 0:
		return !o.Crammed()
	case o.Full():
		return false
	}
	return 2*o.taken() < o.cfg.MaxDeltas || 8*o.queue(f).waits < eighths*o.cfg.MaxDeltas
}

// HearAll has all that waits answered in full: whoever answers is another.
func (o *Outbox) HearAll() {
	for _, q := range o.queues {
		for e := q.first; e != nil; e = e.next {
			e.heard = 0
		}
	}
	if o.begun != nil {
		o.begun.each(func(_ *Section, d *Delta) { d.Heard = 0 })
	}
}

// Full says that no further key would be taken, but with FlagFirst.
func (o *Outbox) Full() bool {
	return o.taken() >= o.open
}

// Crammed says that no further key would be taken at all.
func (o *Outbox) Crammed() bool { return o.taken() >= o.cfg.MaxDeltas }

// HalfFull says that what can wait should, and leave the rest of the room to
// what cannot.
func (o *Outbox) HalfFull() bool { return 2*o.taken() >= o.cfg.MaxDeltas }

// Deltas is the number of deltas of the frame under way with that Seq; known is
// false where there is none.
func (o *Outbox) Deltas(seq uint64) (n int, known bool) {
	for _, up := range o.flights {
		if up.Seq == seq {
			for i := range up.Sections {
				n += len(up.Sections[i].Deltas)
			}
			return n, true
		}
	}
	return 0, false
}

// Beat is an empty frame, so that sender and receiver hear of each other while
// there is nothing to tell; nil while a frame is under way, which does as well but where
// this one takes leave.
func (o *Outbox) Beat(head Up) *Up {
	if len(o.flights) > 0 && head.Features&FeatureLeaves == 0 {
		return nil
	}
	o.seq++
	head.Seq, head.Sections = o.seq, nil
	o.flights = append(o.flights, &flight{Up: &head})
	return &head
}

// fillAll moves what waits into the frame. Each rank leaves a part to those behind,
// and what they leave goes to the first.
func (o *Outbox) fillAll(f *filling) {
	for rank := range ranks {
		if !o.fill(f, &o.queues[rank], o.kept(rank)) {
			return
		}
	}
	for rank := range ranks - 1 {
		if !o.fill(f, &o.queues[rank], 0) {
			return
		}
	}
}

// fill moves deltas of q into the frame, as long as it has more room than is to
// be kept, and says whether the frame takes more.
func (o *Outbox) fill(f *filling, q *queue, keep int) bool {
	for q.first != nil && f.room > keep {
		e := q.first
		o.cells = e.cells.appendTo(o.cells[:0])
		d := Delta{Key: e.key, Flags: e.flags, Cells: o.cells, Carry: e.carry, Until: e.until, Heard: e.heard, Demand: e.demand}
		switch n := f.add(e.section, &d); {
		case n == len(o.cells):
			o.drop(q, e)
		case n > 0:
			e.cells.dropFirst(n) // the rest goes with the next frame
			o.weigh(e)
			return false
		default:
			return false
		}
	}
	return true
}

// Done takes note that the frame was answered and returns it, so that the
// totals can be aligned with its deltas. It is nil where the frame is unknown
// or was answered or given up before.
func (o *Outbox) Done(seq uint64) *Up {
	f, older := o.land(seq)
	if f == nil {
		return nil
	}
	for _, o := range older {
		o.overtaken(f)
	}
	return f.Up
}

// land takes a frame off those under way. older are those that left before it.
func (o *Outbox) land(seq uint64) (f *flight, older []*flight) {
	i := slices.IndexFunc(o.flights, func(f *flight) bool { return f.Seq == seq })
	if i < 0 {
		return nil, nil
	}
	f = o.flights[i]
	o.flights = slices.Delete(o.flights, i, i+1)
	o.inFlight -= deltas(f.Up)
	o.flying -= f.places
	return f, o.flights[:i]
}

// Lost takes note that the frame was given up: what its deltas told that no
// newer frame did is pending again, joined with newer ones. They go behind the
// others, so that a frame that never gets through holds nobody up.
func (o *Outbox) Lost(seq uint64) {
	o.Hold()
	f, older := o.land(seq)
	if f == nil {
		return
	}
	newer := o.flights[len(older):]
	f.each(func(s *Section, d *Delta) {
		if left, shape, any := f.left(s, *d, newer); any {
			left.Heard = 0 // whoever answers may be another
			name := lifeKeyOf(s, d)
			e := o.entries.find(&name)
			if e != nil { // it came since
				shape = e.section.shape
				if e.demand != nil {
					left.Demand = nil
				}
			}
			o.join(&sectionID{shape, s.Life}, e, &left)
		}
	})
}

// GiveUp takes all frames in flight for lost.
func (o *Outbox) GiveUp() {
	for len(o.flights) > 0 {
		o.Lost(o.flights[0].Seq)
	}
}

func (o *Outbox) queue(f Flags) *queue { return &o.queues[rankOf(f)] }

func (o *Outbox) take() *entry {
	if e := o.free; e != nil {
		o.free, e.next = e.next, nil
		return e
	}
	return &entry{}
}

// drop forgets e, which is pending in q, and keeps its memory for another.
func (o *Outbox) drop(q *queue, e *entry) {
	q.remove(e)
	o.entries.remove(e)
	o.leave(e)
	e.cells.reset(spareBytes)
	e.section, e.next, o.free = nil, o.free, e // join sets the rest anew
}

func deltas(u *Up) int {
	n := 0
	for i := range u.Sections {
		n += len(u.Sections[i].Deltas)
	}
	return n
}
