package edge

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Outgoing is a frame to be sent as a request. Its reply goes to Receive, its
// loss to Lost.
type Outgoing struct {
	Lane    int
	Seq     uint64
	Subject string
	Payload []byte
}

// Urgent says that some key should not wait for the next regular Flush.
func (n *Node) Urgent() bool { return n.hurry.Load() }

// Flush hands out frames with the counts that changed since the last one, as
// many as may be in flight: all that rose by much or are urgent, and of the
// others those whose second has come. Call it every Interval.
func (n *Node) Flush(now time.Time) []Outgoing { return n.flush(n.clock.Present(now), hot) }

// FlushUrgent is Flush of what is urgent alone. Call it when Urgent, but not
// more often than every Config.Urgent.
func (n *Node) FlushUrgent(now time.Time) []Outgoing { return n.flush(n.clock.Present(now), urgently) }

// flushAll is Flush of everything, whether its time has come or not.
func (n *Node) flushAll(now time.Time) []Outgoing { return n.flush(n.clock.Present(now), cold) }

// flush drains the classes up to one, and of the cold ones what is due. What
// there is no room or budget for stays dirty in the ledger.
func (n *Node) flush(now int64, upTo class) []Outgoing {
	n.hurry.Store(false)
	n.cluster.joined.Store(true)
	b := n.spare.Swap(nil)
	if b == nil {
		b = new(drained)
	}
	waiting, some := n.waiting()
	for c := pressing; c <= cold; c++ {
		if c > upTo && (c != cold || upTo == urgently) {
			break
		}
		wave, from, room := n.begin(now, c, some&(1<<c) != 0)
		done := 0
		for ; room && some&(1<<c) != 0 && done < shards; done++ {
			at := (from + done) % shards
			if waiting[at]&(1<<c) == 0 {
				continue
			}
			tick := anyTick
			if c == cold && upTo < cold {
				tick = coldTick(now, at)
			}
			for s, left := &n.shards[at], all; room && left > 0; {
				if left = s.drain(c, now, wave, tick, left, b); len(b.news) >= drainStretch {
					room = n.enqueue(c, b)
				}
			}
		}
		if len(b.news) > 0 {
			n.enqueue(c, b)
		}
		n.resume(c, from, done)
	}
	n.bounds.note(b.bounds, now)
	b.bounds = b.bounds[:0]
	b.rate, b.heard, b.reaches = nil, instant{}, instant{} // rules come and go
	if cap(b.cells) <= mostSpare {
		n.spare.Store(b)
	}
	return n.frames(now)
}

// waiting says of which classes shards have dirty records, a bit each, and of
// which any has.
func (n *Node) waiting() (of [shards]uint8, some uint8) {
	for i := range of {
		of[i] = uint8(n.shards[i].waits.Load())
		some |= of[i]
	}
	return of, some
}

// drained is deltas on their way from the ledger to outboxes.
type drained struct {
	news  []pending
	cells []crdt.Cell // of the deltas
	rate  *limit.Rate // that shape is of: deltas of one come in rows
	shape deltasync.Shape
	seen  *distinctKeys // likewise

	heard, reaches instant // as last asked for

	bounds []ruleBound // of some keys that are near their limits
}

type pending struct {
	rate  *limit.Rate
	life  uint32
	delta deltasync.Delta
	heard int64 // block.heardAt, where the delta says so

	denied bool // it was of late
}

const (
	// mostSpare is how many cells are kept for the next flush: a stretch of keys
	// with long windows has many more.
	mostSpare = 1024

	all     = math.MaxInt     // that is dirty by the time that a flush comes to a shard
	anyTick = int64(-1 << 63) // all are due
)

// drainStretch is how many records are drained under one lock: what a decision
// waits for shall be over before it gives up its processor.
const drainStretch = 16

// drain takes the deltas of the records of a class that have been dirty for
// longest, and returns how many of those that were to be taken are left: what
// comes meanwhile goes with the next flush. Cold ones are drained once a tick.
func (s *shard) drain(c class, now int64, wave uint32, tick int64, left int, b *drained) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.dirty[c]
	if left == all && len(list) > 0 && tick != anyTick {
		if s.coldTick == tick {
			return 0
		}
		s.coldTick = tick
	}
	s.wave = uint16(wave)
	left = min(left, len(list))
	keys := list[:min(drainStretch, left)]
	for _, key := range keys {
		r := s.find(key)
		if r == nil || r.flags&dirty == 0 {
			continue // forgotten, or drained under an earlier entry
		}
		if c >= hot && r.flags&urgent != 0 {
			continue // it stands in a sooner list too, and takes no turn of others
		}
		b.news = append(b.news, pending{})
		p := &b.news[len(b.news)-1]
		p.delta.Key = key
		if r.sparse() {
			s.newsOfSparse(r, now, b)
		} else {
			s.news(r, now, b)
		}
		d := &p.delta
		switch {
		case d.Tells():
		case r.flags&touch != 0:
			d.Flags |= deltasync.FlagTouch
		default:
			r.flags &= lasting
			b.news = b.news[:len(b.news)-1]
			continue
		}
		if r.flags&urgent != 0 {
			d.Flags |= deltasync.FlagUrgent
			if len(b.bounds) < boundsAFlush {
				b.bounds = append(b.bounds, ruleBound{r.block.rate.Generation, s.boundRatios(r, now)})
			}
		}
		d.Flags |= hurries[c]
		if r.flags&again != 0 {
			d.Flags |= deltasync.FlagRefresh
		}
		p.rate, p.life, p.denied = r.block.rate, r.life(), r.flags&refused != 0
		d.Heard, p.heard = b.heardIn(r)
		if sh := r.block.share; sh != nil && s.shares(r.block.rate) {
			d.Demand = sh.report(r.block, r.fresh, now)
		}
		r.flags &= lasting
	}
	left -= len(keys)
	if s.dirty[c] = append(list[:0], list[len(keys):]...); len(s.dirty[c]) == 0 {
		s.waits.And(^uint32(1 << c))
	}
	return left
}

func shapeOf(rate *limit.Rate) deltasync.Shape {
	return deltasync.Shape{
		Generation: rate.Generation, Width: rate.Width, Slices: rate.Span,
		Limit: rate.Limit, Regional: rate.Scope == limit.ScopeRegion, Eager: rate.Eager,
		Refill: rate.Drain.Refill, RefillPer: rate.Drain.Per, Floor: rate.Drain.Floor,
	}
}

// enqueue puts deltas into their lanes' outboxes, and says whether any has room
// left. What does not fit stays dirty in the ledger: it waits, it is not lost.
func (n *Node) enqueue(c class, b *drained) bool {
	n.mu.Lock()
	refused := b.news[:0]
	for i := range b.news {
		p := &b.news[i]
		if p.rate != b.rate {
			b.rate, b.shape, b.seen = p.rate, shapeOf(n.inForce(p.rate)), n.distinct.of(p.rate)
		}
		b.seen.note(p)
		if p.delta.Until != 0 && n.clock.Unsure() && !n.withhold(&p.delta) {
			continue
		}
		lane := p.delta.Key.Lane(n.cfg.Lanes)
		if p.heard <= n.lanes[lane].since {
			p.delta.Heard = 0
		}
		if !n.outboxes[lane].Tell(&b.shape, p.life, &p.delta) {
			refused = append(refused, *p)
		}
	}
	room := n.anyRoom(c)
	n.mu.Unlock()
	for i := range refused {
		n.putBack(refused[i].life, &refused[i].delta)
	}
	b.news, b.cells = b.news[:0], b.cells[:0]
	return room
}

// inForce is what a rate is by the rules of now, for the same tenant: that is what
// aggregators are to hear. A key that rests was folded under what it was before.
func (n *Node) inForce(rate *limit.Rate) *limit.Rate {
	if set := n.rules.Load(); set == nil || set.Has(rate) {
		return rate
	}
	if now := (*n.rates.Load())[rate.Generation]; now != nil {
		return now.As(rate)
	}
	return rate
}

// putBack is restore of the record in its shard.
func (n *Node) putBack(life uint32, d *deltasync.Delta) {
	s := n.shard(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restore(life, d)
}

// restore marks as unsent what was drained in vain.
func (s *shard) restore(life uint32, d *deltasync.Delta) {
	r := s.living(d.Key, life)
	if r == nil {
		return
	}
	if !d.Tells() {
		s.mark(r, touch)
		return
	}
	if d.Until != 0 {
		s.mark(r, untold)
	}
	if len(d.Cells) > 0 {
		if b := r.block; !r.sparse() {
			b.unsent = min(b.unsent, d.Cells[0].Slice)
		}
		s.mark(r, charged)
	}
	if d.Flags&deltasync.FlagRefresh != 0 {
		r.flags |= again // the aggregator is to export it, changed or not
	}
}

// tellsDemand says that a frame tells what is asked for of some key.
func tellsDemand(up *deltasync.Up) bool {
	for i := range up.Sections {
		if slices.ContainsFunc(up.Sections[i].Deltas, func(d deltasync.Delta) bool { return d.Demand != nil }) {
			return true
		}
	}
	return false
}

// beat is how many intervals an edge with nothing to tell keeps silent.
const beat = 5

// frames takes what the outboxes have to send.
func (n *Node) frames(now int64) []Outgoing {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Outgoing
	defer n.hold()
	if n.budget.Allows(now, deltasync.Regular) {
		n.cluster.backlog.goes(now)
	}
	first, left, turn, deaf := n.firstLane, n.cfg.Boot(), false, n.cluster.silent(now)
	for i := range n.outboxes {
		lane := (first + i) % len(n.outboxes)
		box := n.outboxes[lane]
		if resting(now, n.paused[lane].until) {
			continue
		}
		head := n.self
		head.Lane, head.SentAt, head.Left, head.HeardEpoch = lane, now, left, n.lanes[lane].epoch
		if n.leaves {
			head.Features |= deltasync.FeatureLeaves
		}
		if deaf {
			head.Features |= deltasync.FeatureDeaf
		}
		if lane == 0 { // one that everybody serves and hears beats of
			head.SecretCheck = n.secret
		}
		told, short := false, false
		next := func() *deltasync.Up {
			h := deltasync.Regular
			if box.First() {
				h = deltasync.Pressing
			}
			if n.budget.Allows(now, h) {
				return box.Next(head)
			}
			if box.Pending() > 0 {
				n.cluster.backlog.waits(now)
				short = true
			}
			return nil
		}
		up := next()
		l := &n.lanes[lane]
		if up == nil && l.speaks(now, lane, n.cfg.Interval, n.leaves) {
			up = box.Beat(head)
		}
		for ; up != nil; up = next() {
			if l.sent = now; n.leaves {
				l.bye = now
			}
			if len(up.Sections) > 0 {
				l.told, told = now, true
			}
			if tellsDemand(up) {
				l.shared = now
			}
			payload, err := up.AppendBinary(nil)
			if err != nil { // our own bug: the outbox fits frames to size
				box.Done(up.Seq)
				n.stats.unencodable.Add(1)
				n.cfg.Logger.Error("frame dropped", "lane", lane, "seq", up.Seq, "err", err)
				continue
			}
			n.cluster.sent(now)
			n.stats.framesSent.Add(1)
			n.stats.bytesSent.Add(uint64(len(payload)))
			n.budget.Spend(len(payload))
			out = append(out, Outgoing{
				Lane: lane, Seq: up.Seq, Payload: payload,
				Subject: deltasync.EdgeSubject(n.cfg.Region, lane, n.cfg.Pop, n.cfg.Name),
			})
		}
		if short && !told && !turn { // everybody has a turn
			n.firstLane, turn = lane, true
		}
	}
	return out
}

// hold has what no frame was sent for wait; n.mu is held.
func (n *Node) hold() {
	for _, box := range n.outboxes {
		box.Hold()
	}
}

// Lost takes back a frame that nobody answered: its counts go out again, with
// what was added since. Where none is answered the lane rests a little, for as long as
// it takes others to take it over, and then longer.
func (n *Node) Lost(now time.Time, lane int, seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outboxes[lane].Lost(seq)
	n.paused[lane].lost(seq, n.clock.At(now), n.cfg.Interval)
	n.stats.framesLost.Add(1)
}

// Receive takes in the reply to a frame. An error says that the reply cannot be
// used; the frame then counts as lost.
func (n *Node) Receive(now time.Time, lane int, payload []byte) error {
	reader := n.reader.Swap(nil)
	if reader == nil {
		reader = new(deltasync.Reader)
	}
	defer n.reader.Store(reader)
	down, err := reader.Down(payload)
	if err != nil {
		n.stats.unread(err, &n.stats.badReplies)
		return fmt.Errorf("reply on lane %d: %w", lane, err)
	}
	if down.Region != n.cfg.Region || down.Node != n.region {
		n.stats.foreign.Add(1)
		return fmt.Errorf("reply on lane %d: it is of region %q, want %q", lane, down.Region, n.cfg.Region)
	}
	t := n.clock.At(now)
	n.mu.Lock()
	n.budget.Spend(len(payload))
	n.noteMistake(lane, down.Mistake, down.Lanes)
	// A refusal that names deltas is about them; another is of the frame.
	if down.Status == deltasync.StatusUnsupported || down.Status == deltasync.StatusForbidden && len(down.Refused) == 0 {
		n.mu.Unlock()
		n.stats.refused(t, down.Status)
		return fmt.Errorf("reply on lane %d: aggregator of %s refused the frame: %s", lane, down.Region, down.Status)
	}
	deltas, known := n.outboxes[lane].Deltas(down.Seq)
	if known && len(down.Totals) > deltas {
		n.mu.Unlock()
		n.stats.badReplies.Add(1)
		return fmt.Errorf("reply on lane %d: %d totals for %d keys", lane, len(down.Totals), deltas)
	}
	up := n.outboxes[lane].Done(down.Seq)
	if up != nil {
		n.paused[lane].answer(up.Seq)
		if down.EchoSentAt == up.SentAt {
			arrived := n.clock.Raw(now)
			sent := arrived - int64(n.cfg.Boot()-up.Left) // as the clock would have shown then: it may have been set meanwhile
			n.clock.Heard(down.StoreEpoch, down.StoreEpoch, sent, down.ReceivedAt, down.SentAt, arrived)
		}
		n.pace = down.Pace
		if up.Features&deltasync.FeatureLeaves != 0 && down.Status != deltasync.StatusNotOwner {
			n.lanes[lane].left = true
		}
		n.heardBy(t, lane, down)
		n.heardFrom(t, lane, down, up.SentAt)
	}
	outages, said, anew, patience := n.lanes[lane].outages, n.lanes[lane].saidAt, n.lanes[lane].anew, time.Duration(0)
	if up != nil && down.Status != deltasync.StatusOK && refuses(up, down) {
		patience = n.refusals[lane].patience(t)
	}
	n.mu.Unlock()
	n.cluster.heard(down, t)
	n.stats.replied(t, down.Status)
	if up == nil {
		n.stats.lateReplies.Add(1)
		return nil // answered twice, or given up: the counts went out again
	}
	h := hearing{now: t, left: up.SentAt, regions: uint16(min(down.LiveRegions, 1<<16-1)), told: down.SentAt, stored: down.Status == deltasync.StatusOK && down.Store != 0, anew: anew}
	i := 0
	for si := range up.Sections {
		sec := &up.Sections[si]
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			if next := di + fetchAhead; next < len(sec.Deltas) {
				key := sec.Deltas[next].Key
				n.fetch(deltasync.Hash(key), 1) // it looks at bits that both have in common
			}
			if i < len(down.Totals) {
				n.hear(&h, d, sec.Life, &sec.Shape, &down.Totals[i])
			} else {
				n.putBack(sec.Life, &deltasync.Delta{Key: d.Key}) // the reply was full: ask for the rest
			}
			switch {
			case !d.Tells():
			case !down.Took(i):
				n.tellAgain(t, d, sec.Life, patience)
			case outages:
				n.noteStored(d, sec.Life, down.Status, up.SentAt, said)
			}
			i++
		}
	}
	n.mu.Lock()
	n.outboxes[lane].Reuse(up)
	n.mu.Unlock()
	return nil
}
