package regional

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// Outgoing is a frame for another region, to be sent as a request. Its reply
// goes to Receive, its loss to Lost.
type Outgoing struct {
	Peer    string
	Lane    int
	Seq     uint64
	Subject string
	Payload []byte
}

// Push is a message for all edges of the region, to be published.
type Push struct {
	Subject string
	Payload []byte
}

// Urgent says that some export or push should not wait for the next interval.
func (a *Aggregator) Urgent() bool { return a.hurry.Load() }

// Exports hands out frames with the subtotals that changed, as many as may be
// in flight and as Config.Budget has bytes for. Call it every Interval.
func (a *Aggregator) Exports(now time.Time) []Outgoing { return a.exports(now, false) }

// ExportsUrgent is Exports of lanes that have something urgent for a peer. Call it
// when Urgent, but not more often than every Config.Urgent.
func (a *Aggregator) ExportsUrgent(now time.Time) []Outgoing { return a.exports(now, true) }

func (a *Aggregator) exports(now time.Time, urgent bool) []Outgoing {
	a.hurry.Store(false)
	t := a.clock.At(now)
	hears := a.compareHearing(t)
	for lane, l := range a.lanes {
		l.mu.Lock()
		if !a.Serves(lane) {
			l.learnt, l.served = 0, 0 // who gets it back has to learn anew
			l.loseSight()
		} else if l.served == 0 || l.served > t { // or a clock was set back
			l.served, l.asked, l.lacks = t, 0, len(l.contests) > 0
		}
		if l.served != 0 && l.lacks && passed(l.asked, t, int64(lackAgain)) {
			l.lack(t)
		}
		if !urgent {
			a.republishAll(l, t)
		}
		a.spread(l, t)
		l.mu.Unlock()
	}
	var out []Outgoing
	for j := range a.cfg.Peers {
		if a.links.awake[j].Swap(false) {
			a.wake(j)
		}
		out = a.exportsTo(out, j, hears, t, a.clock.Raw(now), urgent)
	}
	return out
}

// wake has all lanes tell a peer what was lost, that was heard after a silence: each rests by
// itself, and waits for answers to what it told.
func (a *Aggregator) wake(j int) {
	for _, l := range a.lanes {
		l.mu.Lock()
		p := &l.peers[j]
		p.until, p.fails = 0, 0
		p.outbox.GiveUp()
		l.mu.Unlock()
	}
}

// exportsTo takes what all lanes have for one peer. Where bytes run short every lane has
// a turn: next time the first is the one that got nothing through.
func (a *Aggregator) exportsTo(out []Outgoing, j int, hears uint64, now, raw int64, urgent bool) []Outgoing {
	head := a.self
	head.SentAt, head.Left, head.Hears, head.Silent = raw, a.cfg.Boot(), hears, a.silentNodes(now)
	if a.hearsNothing(j, now) {
		head.Features |= deltasync.FeatureDeaf
	} else if a.spoken.read(j).last != 0 {
		head.Features |= deltasync.FeatureHears
	}
	first, turn := int(a.links.first[j].Load()), false
	for i := range a.lanes {
		lane := (first + i) % len(a.lanes)
		l := a.lanes[lane]
		l.mu.Lock()
		if p := &l.peers[j]; (now >= p.until || p.until-now > int64(time.Second)) && (!urgent || p.outbox.Urgent()) { // longer: a clock was set back
			var starves bool
			if out, starves = a.frames(out, lane, j, now, head); starves && !turn {
				a.links.first[j].Store(int32(lane))
				turn = true
			}
		}
		l.mu.Unlock()
	}
	return out
}

// An aggregator with nothing to tell keeps silent for some intervals. It then tells each
// region on the first of its lanes that it lives, and hears what the time is there; and,
// more seldom, on others that it counts in, where it hears of one that started anew and
// lacks what was told to the one before; and on all, once it has heard of a time when it was not
// named there, until each one's owner has said that he does, and since when.
const (
	beat      = 5
	quietBeat = 10 * beat
)

// frames takes what one lane has for one peer. Not all of it leaves where the link has no bytes left; the lane starves if none does.
func (a *Aggregator) frames(out []Outgoing, lane, j int, now int64, head deltasync.Up) (_ []Outgoing, starves bool) {
	p := &a.lanes[lane].peers[j]
	box := p.outbox
	if head.Lane = lane; p.lacks {
		head.Features |= deltasync.FeatureLacks
	}
	if lane == 0 { // as edges do, who tell it to whoever owns that lane
		head.SecretCheck = a.inbox.Secret(now)
	}
	told := false
	next := func() *deltasync.Up {
		h := deltasync.Regular
		if box.Urgent() {
			h = deltasync.Pressing
		}
		if box.Pending() > 0 && !a.links.allows(j, now, h) {
			a.stats.overBudget.Add(1)
			starves = !told
			return nil
		}
		return box.Next(head)
	}
	up := next()
	if up == nil && a.beats(lane, j, now) {
		up = box.Beat(head)
	}
	for ; up != nil; up = next() {
		p.sent, told = now, told || len(up.Sections) > 0
		a.links.sent(j, now)
		a.lanes[lane].noteExport(up, now)
		payload, err := up.AppendBinary(nil)
		if err != nil { // our own bug: the outbox fits frames to size
			box.Done(up.Seq)
			a.cfg.Logger.Error("export dropped", "lane", lane, "seq", up.Seq, "err", err)
			continue
		}
		a.stats.framesSent.Add(1)
		a.stats.bytesSent.Add(uint64(len(payload)))
		a.links.spend(j, len(payload))
		to := a.cfg.Peers[j]
		out = append(out, Outgoing{Peer: to, Lane: lane, Seq: up.Seq, Payload: payload,
			Subject: deltasync.RegionSubject(to, lane, a.cfg.Region)})
	}
	return out, starves
}

// beats says that a peer was told nothing in a lane for long enough.
func (a *Aggregator) beats(lane, j int, now int64) bool {
	p := &a.lanes[lane].peers[j]
	silent := now - p.sent
	switch {
	case silent < 0, p.lacks: // a clock was set back, or it is to be asked; see lacks.go
		return true
	case lane == a.firstOwned() || p.unstored || len(a.lanes[lane].contests) > 0: // see tellDemands
		return silent >= int64(beat*a.cfg.Interval)
	default:
		return silent >= int64(quietBeat*a.cfg.Interval) && (len(a.lanes[lane].counters) > 0 || a.rights != nil && a.rights.Asks(lane, a.cfg.Peers[j]))
	}
}

// takeover is how long after the first loss a peer is tried again and again: one
// of its aggregators that died is replaced within a second.
const takeover = 2 * time.Second

// Lost takes back an export that nobody answered. Where the peer answers none it rests
// a little, for as long as it takes others to take the lane over, and then longer; what
// got lost between frames that it answered says nothing of the next.
func (a *Aggregator) Lost(now time.Time, o Outgoing) {
	l := a.lanes[o.Lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.peers[slices.Index(a.cfg.Peers, o.Peer)]
	p.outbox.Lost(o.Seq)
	a.stats.framesLost.Add(1)
	if o.Seq < p.heard {
		return
	}
	t := a.clock.At(now)
	if p.fails == 0 {
		p.failing = t
	}
	longer := min(p.fails, 1)
	if since := t - p.failing; since > int64(takeover) || since < 0 {
		longer = min(p.fails, 4)
	}
	p.until = t + int64(min(a.cfg.Interval<<longer, time.Second))
	p.fails++
}

// Receive takes in a peer's reply to an export: the peer's own subtotals of
// the same keys. An error says that the reply cannot be used; the export then
// counts as lost.
func (a *Aggregator) Receive(now time.Time, o Outgoing, payload []byte) error {
	var down deltasync.Down
	if err := down.UnmarshalBinary(payload); err != nil {
		return fmt.Errorf("reply of %s: %w", o.Peer, err)
	}
	if want := deltasync.NodeID(o.Peer, "", ""); down.Node != want {
		return fmt.Errorf("reply of %s: it speaks for region %q", o.Peer, down.Region)
	}
	t, j := a.clock.At(now), slices.Index(a.cfg.Peers, o.Peer)
	a.noteMistake(t, o.Peer, &down)
	a.noteNamed(o.Lane, j, &down)
	// A refusal that names deltas is about them; another is of the frame.
	if down.Status == deltasync.StatusUnsupported || down.Status == deltasync.StatusForbidden && len(down.Refused) == 0 {
		return fmt.Errorf("reply of %s: it refused the frame: %s %s", o.Peer, down.Status, down.Mistake)
	}
	if down.Seq != o.Seq {
		return fmt.Errorf("reply of %s: it answers frame %d, this was frame %d", o.Peer, down.Seq, o.Seq)
	}
	l := a.lanes[o.Lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	a.links.spend(j, len(payload))
	p := &l.peers[j]
	if deltas, known := p.outbox.Deltas(down.Seq); known && len(down.Totals) > deltas {
		return fmt.Errorf("reply of %s: %d totals for %d keys", o.Peer, len(down.Totals), deltas)
	}
	up := p.outbox.Done(down.Seq)
	if up == nil {
		return nil // answered twice, or given up: the counts went out again
	}
	p.until, p.fails, p.heard = 0, 0, max(p.heard, up.Seq)
	p.lacks = p.lacks && up.Features&deltasync.FeatureLacks == 0
	a.links.answered(j, t-int64(a.cfg.Boot()-up.Left), a.cfg.Interval, t)
	a.links.says(j, down.Hears, t)
	a.spoken.heard(j, t)
	arrived := a.clock.Raw(now)
	a.heardAfter(j, arrived-up.SentAt-(down.SentAt-down.ReceivedAt))
	a.stats.heard(o.Peer, t)
	if down.EchoSentAt == up.SentAt {
		sent := arrived - int64(a.cfg.Boot()-up.Left) // as the clock would have shown then: it may have been set meanwhile
		a.tellClock(down.Node, down.StoreEpoch, sent, down.ReceivedAt, down.SentAt, arrived)
	}
	a.learnEpoch(l, j, &down, t)
	switch {
	case down.Status == deltasync.StatusStoreDown:
		p.unstored = true
	case p.unstored: // whatever it refused: what it took is stored
		p.unstored, p.round = false, round{}
	}
	i := 0
	for si := range up.Sections {
		sec := &up.Sections[si]
		oldest := retirement(sec.Shape, t)
		horizon := sliceAt(sec.Shape, t+int64(maxAhead))
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			c := l.counters[d.Key]
			if c == nil && i < len(down.Totals) {
				c = a.meet(l, j, d, sec.Shape, &down.Totals[i], t)
			}
			if c != nil && c.shape.Width != sec.Shape.Width { // that lost meanwhile: see width.go
				i++
				continue
			}
			if c != nil && c.guest && i < len(down.Totals) && !more(down.Totals[i].Own, d.Cells) {
				down.Totals[i].Own = nil // no news, and what edges told is not here to compare
			}
			switch {
			case c == nil: // retired meanwhile
			case i < len(down.Totals):
				a.hear(l, d.Key, c, crdt.Replica{Node: down.Node}, &down.Totals[i], oldest, horizon, t)
			default: // the reply was full: ask for the rest
				// The frame has left the room that this takes. Only where a new
				// epoch filled it is there none, and then the key is told anyhow.
				p.outbox.Put(sec.Shape, sec.Life, deltasync.Delta{Key: d.Key, Flags: deltasync.FlagTouch | d.Flags&deltasync.FlagOwn})
			}
			// What a peer took without its store is gone if it dies first. It is
			// told again too, once that is back or in a while.
			switch {
			case !d.Tells() || down.Took(i) && !p.unstored:
			case c == nil || c.guest:
				if n := len(d.Cells); n > 0 && d.Cells[n-1].Slice >= oldest {
					a.stats.evictedUnexported.Add(1)
				}
				if d.Flags&deltasync.FlagRefresh != 0 {
					p.round.refused++
				}
				l.forgetsTold(j, d.Key, sec.Shape) // the store has it
			default:
				a.tellLater(l, j, d.Key, c)
				if d.Flags&deltasync.FlagRefresh != 0 {
					p.round.refused++
				}
			}
			i++
		}
	}
	return nil
}

// hear joins a peer's subtotal, what it heard of others, and the penalty, that
// came with a reply.
func (a *Aggregator) hear(l *lane, key deltasync.Key, c *counter, region crdt.Replica, t *deltasync.Totals, oldest, horizon crdt.Slice, now int64) {
	cells, _ := within(t.Peers, horizon)
	l.arm(c, now)
	from, rose := c.join(FromRegion, region, cells, oldest, now)
	asked := a.homes.on && len(t.Others) > 0
	switch {
	case rose && asked && !a.homes.own(key):
		c.far().unkept = min(c.far().unkept, from)
	case rose:
		c.lacks(FromRegion, region, from)
		l.again(key, c)
	}
	if asked && c.hearOthers(t, oldest, horizon, now) {
		rose = true
	}
	if rose && asked && (c.guest || l.tight()) { // or it is forgotten before anybody asks again
		l.again(key, c)
	}
	if l.hear(c, t.Carry, fill(c.shape, 1), now) || rose {
		a.changed(l, key, c, now)
	}
	own, _ := within(t.Own, horizon)
	a.takeBack(l, key, c, own, oldest, now)
	if c.guest && l.remember(c, now) { // no Tick looks at it
		l.again(key, c)
	}
	if a.punish(l, key, c, t.Until, now) {
		c.penalty.lacks = true
		l.again(key, c)
	}
	l.weigh(c)
}

// Pushes hands out the totals of keys whose edges should hear at once, of the
// lanes that are served here: of others somebody else knows more. Should they be
// this aggregator's again, it may be the only one who knows.
func (a *Aggregator) Pushes(now time.Time) []Push {
	t := a.clock.At(now)
	var out []Push
	for i, l := range a.lanes {
		l.mu.Lock()
		if a.Serves(i) {
			out = a.pushes(out, i, l, t)
		} else if l.seeAllOff(); len(l.push) > 2*len(l.counters) {
			l.clearPush()
		}
		l.mu.Unlock()
	}
	return out
}

// clearPush drops from the list of keys to push what was forgotten since, and second
// places of what came back.
func (l *lane) clearPush() {
	l.push = slices.DeleteFunc(l.push, func(key deltasync.Key) bool {
		c := l.find(key)
		if c == nil || !c.pushed {
			return true
		}
		c.pushed = false
		return false
	})
	for _, key := range l.push {
		l.find(key).pushed = true
	}
}

// pushes empties one lane's list into messages of at most MaxFrame.
func (a *Aggregator) pushes(out []Push, lane int, l *lane, now int64) []Push {
	if len(l.push) == 0 {
		return out
	}
	_, regions := a.live(now)
	hot := deltasync.Hot{Region: a.cfg.Region, Lane: lane, SentAt: now, LiveRegions: regions}
	size := hotFrame
	send := func() {
		payload, err := hot.AppendBinary(nil)
		if err != nil { // our own bug
			a.cfg.Logger.Error("push dropped", "lane", lane, "err", err)
		} else {
			a.stats.pushed.Add(1)
			out = append(out, Push{Subject: deltasync.HotSubject(a.cfg.Region, lane), Payload: payload})
		}
		hot.Sections, size = nil, hotFrame
	}
	keys := l.push
	l.push = nil
	slices.SortFunc(keys, func(x, y deltasync.Key) int { // keys of a shape in one section, the same order every run
		cx, cy := l.find(x), l.find(y)
		if cx == nil || cy == nil {
			return cmp.Compare(x, y)
		}
		return cmp.Or(cmp.Compare(cx.shape.Generation, cy.shape.Generation), cmp.Compare(x, y))
	})
	for _, key := range keys {
		c := l.find(key)
		if c == nil {
			continue
		}
		c.pushed = false
		l.crossing(c, now) // what has fallen since is told as it is, and may cross again
		l.watchTruth(key, c, now)
		hk := deltasync.HotKey{Key: key, Totals: l.pushOf(c, now)}
		if a.Owns(lane) {
			hk.Share = a.shareOf(l, c, now)
		}
		takes := hotKey + hotCell*(len(hk.Others)+len(hk.Peers))
		if hk.Share != nil {
			takes += hotShare
		}
		if size+hotHead+takes > deltasync.MaxFrame && len(hot.Sections) > 0 {
			send()
		}
		if n := len(hot.Sections); n == 0 || hot.Sections[n-1].Shape != c.shape {
			hot.Sections = append(hot.Sections, deltasync.HotSection{Shape: c.shape})
			size += hotHead
		}
		sec := &hot.Sections[len(hot.Sections)-1]
		sec.Keys = append(sec.Keys, hk)
		l.seeOff(key, c)
		if size += takes; size > deltasync.MaxFrame/2 {
			send()
		}
	}
	if len(hot.Sections) > 0 {
		send()
	}
	return out
}

// Upper bounds of what a section, a key and a cell take in a push, in bytes.
// A key has at most 2 × 1026 cells, which fit in a frame with the head and a section.
const (
	hotFrame = 256 // the head
	hotHead  = 160
	hotKey   = 62
	hotCell  = 24
	hotShare = 50
)
