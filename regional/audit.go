package regional

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// An audit asks, of a few keys, what a region has counted, and compares that with
// what is believed of it here. The exchange tells what changed, and would not
// notice what it lost for good; an audit looks at what is there. Each second the
// owner of lanes audits one of them, keys near their limit first: with each other
// region, and with the store, where another aggregator of the region may have
// written what was not heard of here.
//
// What is lacking here is drift, and is joined as if it had come by the exchange;
// hits under way are drift too. Hits that are believed here of a region that does
// not know them itself are counted apart: that region has lost them, or it is a bug
// of ours. With each answer comes what the other region holds of this one, by which
// such losses are made good: see taken.go.

const (
	// AuditEvery is how often to call Audits and AuditStore.
	AuditEvery = time.Second
	// auditKeys is how many keys an audit compares: with 40 slices each the answer
	// has about a kilobyte. mostAudited is how many one may ask about.
	auditKeys   = 8
	mostAudited = 64
)

// Audit is a question to another region, to be sent as a request. Its reply goes to
// ReceiveAudit; if there is none nothing need be done.
type Audit struct {
	Outgoing
	sections []deltasync.Section
	believed map[deltasync.Key][]crdt.Cell // when it was asked
}

// turns is what audits of an aggregator have in common.
type turns struct {
	regions, store atomic.Int32 // the lanes that are next
	seq            atomic.Uint64
}

// audits is what came of a lane's audits with somebody.
type audits struct {
	at     int64
	keys   int      // that the last one compared
	behind uint64   // hits that it found lacking here
	worst  Compared // the key that lacks most
	all    uint64   // keys compared since the start
	ahead  uint64   // hits that are believed here alone, since the start
}

// done notes an audit.
func (s *audits) done(now int64, compared []Compared) {
	s.at, s.keys, s.behind, s.worst = now, len(compared), 0, Compared{}
	s.all += uint64(len(compared))
	for _, k := range compared {
		s.behind = crdt.SatAdd(s.behind, k.Behind)
		s.ahead = crdt.SatAdd(s.ahead, k.Ahead)
		if k.Behind > 0 && k.Ratio() >= s.worst.Ratio() {
			s.worst = k
		}
	}
}

// Compared is a key of an audit: the hits in its window of one region, or, of one
// that is told by a home, of all others.
type Compared struct {
	Key      deltasync.Key `json:"key,string"`
	Limit    uint64        `json:"limit"`
	Believed uint64        `json:"believed"` // here
	Counted  uint64        `json:"counted"`  // as the region says
	Behind   uint64        `json:"behind"`   // counted there and not believed here, slice by slice
	Ahead    uint64        `json:"ahead"`    // and the reverse
}

// Ratio is how far behind a key is, as a part of its limit.
func (k *Compared) Ratio() float64 {
	if k.Limit == 0 {
		return 0
	}
	return float64(k.Behind) / float64(k.Limit)
}

// compare compares the slices from one on to another; both lists ascend.
func (k *Compared) compare(believed, counted []crdt.Cell, from, to crdt.Slice) {
	add := func(here, there crdt.Cell) {
		lacks, more := there.Less(here), here.Less(there)
		k.Believed, k.Counted = crdt.SatAdd(k.Believed, here.Net()), crdt.SatAdd(k.Counted, there.Net())
		k.Behind = crdt.SatAdd(k.Behind, crdt.SatAdd(lacks.Charges, lacks.Refunds))
		k.Ahead = crdt.SatAdd(k.Ahead, crdt.SatAdd(more.Charges, more.Refunds))
	}
	for _, there := range counted {
		if there.Slice >= from && there.Slice <= to && !there.Zero() {
			add(cellOf(believed, there.Slice), there)
		}
	}
	for _, here := range believed {
		if here.Slice >= from && here.Slice <= to && cellOf(counted, here.Slice).Zero() {
			add(here, crdt.Cell{})
		}
	}
}

// cellOf is the cell of a slice in an ascending list.
func cellOf(cells []crdt.Cell, s crdt.Slice) crdt.Cell {
	i, has := slices.BinarySearchFunc(cells, s, func(c crdt.Cell, s crdt.Slice) int { return cmp.Compare(c.Slice, s) })
	if !has {
		return crdt.Cell{}
	}
	return cells[i]
}

// Audits asks other regions about some keys of the next lane that is this
// aggregator's; whoever does not answer, or has no bytes left, is left out. Call it
// every AuditEvery.
func (a *Aggregator) Audits(now time.Time) (out []Audit) {
	lane := a.turn(&a.audited.regions)
	if lane < 0 || len(a.cfg.Peers) == 0 {
		return nil
	}
	t, l := a.clock.At(now), a.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := l.sample(t)
	for j := range l.peers {
		p := &l.peers[j]
		if p.fails > 0 || !a.links.allows(j, t, deltasync.Regular) {
			continue
		}
		audit := Audit{believed: map[deltasync.Key][]crdt.Cell{}}
		for _, key := range keys {
			c := l.counters[key]
			if c.shape.Regional || !a.auditors(key).has(j) {
				continue
			}
			audit.believed[key] = a.believed(c, key, j, reach(c.shape, t))
			audit.add(c.shape, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch | deltasync.FlagOwn})
		}
		if len(audit.sections) == 0 {
			p.audits.at = 0 // there is nothing to compare any more
			continue
		}
		up := a.self
		up.Lane, up.SentAt, up.Seq, up.Sections = lane, now.UnixNano(), a.audited.seq.Add(1), audit.sections
		payload, err := up.AppendBinary(nil)
		if err != nil { // our own bug
			a.cfg.Logger.Error("audit dropped", "lane", lane, "err", err)
			continue
		}
		a.stats.bytesSent.Add(uint64(len(payload)))
		a.links.spend(j, len(payload))
		audit.Outgoing = Outgoing{Peer: a.cfg.Peers[j], Lane: lane, Seq: up.Seq, Payload: payload, Subject: deltasync.AuditSubject(a.cfg.Peers[j], lane)}
		out = append(out, audit)
	}
	return out
}

func (x *Audit) add(shape deltasync.Shape, d deltasync.Delta) {
	for i := range x.sections {
		if x.sections[i].Shape == shape {
			x.sections[i].Deltas = append(x.sections[i].Deltas, d)
			return
		}
	}
	x.sections = append(x.sections, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{d}})
}

// turn is the lane whose turn it is; -1: none is this aggregator's.
func (a *Aggregator) turn(next *atomic.Int32) int {
	first := int(next.Load())
	for i := range a.lanes {
		if lane := (first + i) % len(a.lanes); a.Owns(lane) {
			next.Store(int32(lane + 1))
			return lane
		}
	}
	return -1
}

// sample is some of the lane's keys, those near their limit first: others each time.
func (l *lane) sample(now int64) []deltasync.Key {
	var near, far []deltasync.Key
	var places []int // of far ones
	looks := min(strides, len(l.order))
	for i := range looks {
		key := l.order[(l.auditHand+i)%len(l.order)]
		if l.warms(l.counters[key], now) {
			near = append(near, key)
		} else if len(far) < auditKeys {
			far, places = append(far, key), append(places, i)
		}
		if len(near) == auditKeys {
			looks = i + 1
			break
		}
	}
	far = far[:min(len(far), auditKeys-len(near))]
	if looks == len(l.order) && len(far) > 0 { // all of them: go on after those that had a turn
		looks = places[len(far)-1] + 1
	}
	l.auditHand = (l.auditHand + looks) % max(1, len(l.order))
	return append(near, far...)
}

// auditors are the peers that know of a key what they tell this region: all, or,
// where it is no home of the key, those that are.
func (a *Aggregator) auditors(key deltasync.Key) peerSet {
	if a.homes.on && a.homes.own(key) {
		return a.homes.all
	}
	return a.homes.targets(key)
}

// believed is what is known here of what a peer tells of a key: its own counts,
// or, where it is a home and this region is not, those of all others.
func (a *Aggregator) believed(c *counter, key deltasync.Key, j int, from crdt.Slice) []crdt.Cell {
	if a.toldByHome(key) {
		return c.others(from)
	}
	if v := c.regions.Of(crdt.Replica{Node: deltasync.NodeID(a.cfg.Peers[j], "", "")}); v != nil {
		return v.From(from, nil)
	}
	return nil
}

func (a *Aggregator) toldByHome(key deltasync.Key) bool { return a.homes.on && !a.homes.own(key) }

// AnswerAudit answers the question of another region; nil: it cannot be understood.
// It is answered by what the store has, too, for Config.StoreTimeout at most: what is
// in memory may be of before others had the lane.
func (a *Aggregator) AnswerAudit(ctx context.Context, now time.Time, payload []byte) []byte {
	t, begun := a.clock.At(now), a.cfg.Now()
	up, err := a.readAudit(payload)
	if err != nil {
		a.stats.badAudits.Add(1)
		a.cfg.Logger.Debug("audit refused", "err", err)
		return nil
	}
	l := a.lanes[up.Lane]
	m, stored := a.take(ctx, l, up, t, begun)
	stored = a.writeFrame(ctx, l, l.outdated(up, t), t) && stored
	switch {
	case !stored || a.store.away.Load() > 0:
		m.status = deltasync.StatusStoreDown
	case m.status == deltasync.StatusOK && !a.Owns(up.Lane):
		m.status = deltasync.StatusNotOwner
	}
	down := a.reply(l, up, m.guests, t)
	down.Status, down.Refused = m.status, m.refused
	return a.encode(down)
}

// outdated is the keys of a question of which the store was not asked just now.
func (l *lane) outdated(up *deltasync.Up, now int64) *merged {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &merged{displaced: l.room.displaced}
	for i := range up.Sections {
		for _, d := range up.Sections[i].Deltas {
			if c := l.counters[d.Key]; c != nil && c.asked != now {
				m.told = append(m.told, told{key: d.Key, source: FromRegion})
			}
		}
	}
	return m
}

// readAudit reads a question. It asks and tells nothing: of whom it is does not
// matter, but to the answer.
func (a *Aggregator) readAudit(payload []byte) (*deltasync.Up, error) {
	up := new(deltasync.Up)
	if err := up.UnmarshalBinary(payload); err != nil {
		return nil, err
	}
	keys := 0
	for i := range up.Sections {
		for j := range up.Sections[i].Deltas {
			d := &up.Sections[i].Deltas[j]
			if d.Tells() || d.Key.Lane(len(a.lanes)) != up.Lane {
				return nil, fmt.Errorf("key %016x: it tells something, or is of another lane", uint64(d.Key))
			}
			keys++
		}
	}
	switch {
	case up.Kind != deltasync.KindRegion || up.Region == a.cfg.Region || up.Node != deltasync.NodeID(up.Region, "", ""):
		return nil, fmt.Errorf("it is not of another region, but of %q", up.Region)
	case up.Lanes != len(a.lanes):
		return nil, fmt.Errorf("the sender has %d lanes, this aggregator %d: set the same number everywhere", up.Lanes, len(a.lanes))
	case keys > mostAudited:
		return nil, fmt.Errorf("it asks about %d keys, want at most %d", keys, mostAudited)
	}
	return up, nil
}

// ReceiveAudit takes in the reply to an audit: it is compared with what was
// believed, and joined. An error says that it cannot be used.
func (a *Aggregator) ReceiveAudit(now time.Time, x Audit, payload []byte) error {
	var down deltasync.Down
	if err := down.UnmarshalBinary(payload); err != nil {
		return fmt.Errorf("audit of %s: %w", x.Peer, err)
	}
	switch {
	case down.Status == deltasync.StatusUnsupported || down.Status == deltasync.StatusForbidden && len(down.Refused) == 0:
		return fmt.Errorf("audit of %s: it refused the question: %s", x.Peer, down.Status)
	case down.Node != deltasync.NodeID(x.Peer, "", "") || down.Seq != x.Seq:
		return fmt.Errorf("audit of %s: the answer is of %q, to question %d", x.Peer, down.Region, down.Seq)
	case len(down.Totals) > len(x.believed):
		return fmt.Errorf("audit of %s: %d totals for %d keys", x.Peer, len(down.Totals), len(x.believed))
	}
	t, l, j := a.clock.At(now), a.lanes[x.Lane], slices.Index(a.cfg.Peers, x.Peer)
	a.links.spend(j, len(payload))
	// Who lacks what is stored, or owns the lane, may know less than its region.
	sure := down.Status == deltasync.StatusOK
	var compared []Compared
	l.mu.Lock()
	defer l.mu.Unlock()
	i := -1
	for si := range x.sections {
		for _, d := range x.sections[si].Deltas {
			if i++; i >= len(down.Totals) {
				break
			}
			c := l.counters[d.Key]
			if c == nil || !down.Took(i) {
				continue
			}
			told := &down.Totals[i]
			oldest, horizon := retirement(c.shape, t), sliceAt(c.shape, t+int64(maxAhead))
			k := Compared{Key: d.Key, Limit: c.shape.Limit}
			k.compare(x.believed[d.Key], a.counted(d.Key, told), reach(c.shape, t+int64(maxAhead)), horizon)
			if !sure || a.toldByHome(d.Key) { // each home knows less than both
				k.Ahead = 0
			}
			compared = append(compared, k)
			if !l.crowded() { // else it would keep its place, until it is written, from others
				a.hear(l, d.Key, c, crdt.Replica{Node: down.Node}, told, oldest, horizon, t)
			}
		}
	}
	p := &l.peers[j].audits
	ahead := p.ahead
	p.done(t, compared)
	if p.ahead > ahead {
		a.cfg.Logger.Warn("a region does not know hits that it has told: it has lost them, or this is a bug", "region", x.Peer, "lane", x.Lane, "hits", p.ahead-ahead)
	}
	return nil
}

// counted is what an answer says of what believed is about.
func (a *Aggregator) counted(key deltasync.Key, told *deltasync.Totals) []crdt.Cell {
	if !a.toldByHome(key) {
		return told.Peers
	}
	var all crdt.Vector
	for _, cells := range [][]crdt.Cell{told.Peers, told.Others} {
		for _, cell := range cells {
			all.Add(cell)
		}
	}
	return all.Cells(nil)
}

// AuditStore compares some keys with what the store has of them, of a lane that is
// this aggregator's: what it has more is read. Call it every AuditEvery; it waits
// for the store, for Config.StoreTimeout at most.
func (a *Aggregator) AuditStore(ctx context.Context, now time.Time) error {
	lane := a.turn(&a.audited.store)
	if lane < 0 || a.store.away.Load() > 0 {
		return nil
	}
	t, l := a.clock.At(now), a.lanes[lane]
	l.mu.Lock()
	var items []Item
	for _, key := range l.sample(t) {
		it := stored(l.counters[key].shape)
		it.Key = key
		items = append(items, it)
	}
	if len(items) == 0 {
		l.audits.at = 0
	}
	l.mu.Unlock()
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	start := time.Now()
	answer, err := a.store.Load(ctx, items)
	a.stats.stored(time.Since(start), err)
	if err == nil && len(answer) != len(items) {
		err = fmt.Errorf("%w: %d answers to %d keys", ErrStore, len(answer), len(items))
	}
	if err != nil { // Sync finds out what that means
		return fmt.Errorf("audit the store: %w", err)
	}
	var compared []Compared
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range answer {
		c := l.counters[items[i].Key]
		if c == nil {
			continue
		}
		k := Compared{Key: items[i].Key, Limit: c.shape.Limit}
		from, to := reach(c.shape, t), sliceAt(c.shape, t+int64(maxAhead))
		for _, v := range answer[i].Vectors {
			var has []crdt.Cell
			if own := c.of(v.Source).Of(v.Replica); own != nil {
				has = own.From(from, nil)
			}
			k.compare(has, v.Cells, from, to)
		}
		k.Ahead = 0 // that is about to be written, and known by another metric
		if compared = append(compared, k); k.Behind > 0 && !l.crowded() {
			l.again(k.Key, c) // with the next Sync it is read
		}
	}
	l.audits.done(t, compared)
	return nil
}

// Drift is what was found of a region by the audits of late, or, of the own one,
// with its store.
type Drift struct {
	Region   string     `json:"region"`
	Audited  time.Time  `json:"audited"` // the last time
	Keys     int        `json:"keys"`    // that were compared
	Behind   uint64     `json:"behind"`  // hits of the region that were not believed here
	Ratio    float64    `json:"ratio"`   // of the worst key, as a part of its limit
	Worst    []Compared `json:"worst"`   // the worst key of each lane, if it is behind
	Compared uint64     `json:"compared_total"`
	Ahead    uint64     `json:"ahead_total"` // hits that were believed here and are unknown there
}

// auditKept is how long the last audit of a lane counts: all have had a turn by
// then. Of who has not answered since nothing is known.
func (a *Aggregator) auditKept() int64 {
	return int64(max(10*AuditEvery, 2*AuditEvery*time.Duration(len(a.lanes))))
}

// Drift is what the last audits found: of each other region, and of this one.
func (a *Aggregator) Drift(now time.Time) []Drift {
	t := a.clock.At(now)
	out := make([]Drift, len(a.cfg.Peers)+1)
	for j, peer := range a.cfg.Peers {
		out[j].Region = peer
	}
	out[len(a.cfg.Peers)].Region = a.cfg.Region
	for _, l := range a.lanes {
		l.mu.Lock()
		for j := range l.peers {
			out[j].add(&l.peers[j].audits, t, a.auditKept())
		}
		out[len(l.peers)].add(&l.audits, t, a.auditKept())
		l.mu.Unlock()
	}
	for i := range out {
		slices.SortStableFunc(out[i].Worst, func(x, y Compared) int { return cmp.Compare(y.Ratio(), x.Ratio()) })
	}
	return out
}

func (d *Drift) add(s *audits, now, kept int64) {
	d.Compared += s.all
	d.Ahead = crdt.SatAdd(d.Ahead, s.ahead)
	if s.at == 0 || passed(s.at, now, kept) {
		return
	}
	if at := time.Unix(0, s.at).UTC(); at.After(d.Audited) {
		d.Audited = at
	}
	d.Keys += s.keys
	d.Behind = crdt.SatAdd(d.Behind, s.behind)
	if s.worst.Behind > 0 {
		d.Ratio = max(d.Ratio, s.worst.Ratio())
		d.Worst = append(d.Worst, s.worst)
	}
}
