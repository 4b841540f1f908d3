package regional

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
// What is lacking here is drift, and is joined as if it had come by the exchange,
// unless keys compete for places; hits under way are drift too. Hits that are
// believed here of a region that does not know them itself are counted apart, once:
// that region has lost them, or it is a bug of ours. With each answer comes what the
// other region holds of this one, by which such losses are made good: see taken.go.

const (
	// AuditEvery is how often to call Audits and AuditStore.
	AuditEvery = time.Second
	// auditKeys is how many keys an audit compares: with 40 slices each the answer
	// has about a kilobyte. mostNear of them are near their limit, that the others
	// have a turn too. mostAudited is how many one may ask about.
	auditKeys   = 8
	mostNear    = 6
	mostAudited = 64
	// complainEvery is how often it is logged what a peer has lost.
	complainEvery = time.Minute
)

// Audit is a question to another region, to be sent as a request. Its reply goes to
// ReceiveAudit, its loss to LostAudit.
type Audit struct {
	Outgoing
	sections []deltasync.Section
	believed map[deltasync.Key][]crdt.Cell // when it was asked
}

// turns is what audits of an aggregator have in common.
type turns struct {
	regions, store atomic.Int32 // the lanes that are next
	seq            atomic.Uint64

	mu         sync.Mutex  // guards what follows; taken with a lane's held
	peers      []silence   // by Config.Peers
	complaints []complaint // likewise
}

// complaint is what a peer has lost that is yet to be logged.
type complaint struct {
	hits  uint64
	worst Compared
	at    int64 // when it was last logged
}

// complains adds what an audit found, and says what to log, if it is time.
func (t *turns) complains(peer int, hits uint64, worst Compared, now int64) (complaint, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.complaints[peer]
	c.hits = crdt.SatAdd(c.hits, hits)
	if worst.Ahead > c.worst.Ahead {
		c.worst = worst
	}
	if c.hits == 0 || !passed(c.at, now, int64(complainEvery)) {
		return complaint{}, false
	}
	log := *c
	*c = complaint{at: now}
	return log, true
}

// silence is how often in a row a peer has not answered, and when it is asked again.
// Where servers have the permissions of before, NATS complains of each question.
type silence struct {
	losses int
	until  int64
}

// longestSilence is how long a peer that does not answer is left alone at most.
const longestSilence = time.Minute

// LostAudit takes back an audit that nobody answered.
func (a *Aggregator) LostAudit(now time.Time, x Audit) {
	a.audited.mu.Lock()
	defer a.audited.mu.Unlock()
	s := &a.audited.peers[slices.Index(a.cfg.Peers, x.Peer)]
	s.losses = min(s.losses+1, 10)
	s.until = a.clock.At(now) + int64(min(AuditEvery<<s.losses, longestSilence))
}

// answers says that a peer may be asked.
func (t *turns) answers(peer int, now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := t.peers[peer].until - now
	return wait <= 0 || wait > int64(longestSilence) // a clock was set back
}

func (t *turns) answered(peer int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers[peer] = silence{}
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
	for j := range l.peers {
		p := &l.peers[j]
		if p.fails > 0 || !a.audited.answers(j, t) || !a.links.allows(j, t, deltasync.Regular) {
			continue
		}
		audit := Audit{believed: map[deltasync.Key][]crdt.Cell{}}
		asks := func(key deltasync.Key, c *counter) bool { return !c.shape.Regional && a.auditors(key).has(j) }
		for _, key := range l.sample(&p.audits, t, asks) {
			c := l.counters[key]
			audit.believed[key] = a.believed(c, key, j, reach(c.shape, t))
			audit.add(c.shape, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch | deltasync.FlagOwn})
		}
		if len(audit.sections) == 0 {
			p.audits.at = 0 // there is nothing to compare any more
			continue
		}
		up := a.self
		up.Lane, up.SentAt, up.Seq, up.Sections = lane, a.clock.Raw(now), a.audited.seq.Add(1), audit.sections
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

// sample is some of the lane's keys that somebody can be asked about, those near their
// limit first: others each time. Each whom it is for has hands of its own, as hands in
// common would show the same keys to the same one again and again.
func (l *lane) sample(s *audits, now int64, asks func(deltasync.Key, *counter) bool) (keys []deltasync.Key) {
	n := len(l.order)
	looks := 0
	for ; looks < min(strides, n) && len(keys) < mostNear; looks++ {
		key := l.order[(s.near+looks)%n]
		if c := l.counters[key]; asks(key, c) && l.warms(c, now) {
			keys = append(keys, key)
		}
	}
	s.near = (s.near + looks) % max(1, n)
	for looks = 0; looks < min(strides, n) && len(keys) < auditKeys; looks++ {
		key := l.order[s.any%n]
		s.any = (s.any + 1) % n
		if asks(key, l.counters[key]) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
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

// AnswerAudit answers the question of another region; one that cannot be understood
// with its status alone.
// It is answered by what the store has, too, for Config.StoreTimeout at most: what is
// in memory may be of before others had the lane.
func (a *Aggregator) AnswerAudit(ctx context.Context, now time.Time, payload []byte) []byte {
	t, begun := a.clock.At(now), a.cfg.Now()
	up, status, err := a.readAudit(payload)
	if err != nil {
		a.stats.badAudits.Add(1)
		return a.refuse("audit", payload, status, err, t)
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
	return a.encode(down, payload)
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
func (a *Aggregator) readAudit(payload []byte) (*deltasync.Up, deltasync.Status, error) {
	up := new(deltasync.Up)
	if err := up.UnmarshalBinary(payload); err != nil {
		return nil, deltasync.StatusUnsupported, err
	}
	keys := 0
	for i := range up.Sections {
		for j := range up.Sections[i].Deltas {
			d := &up.Sections[i].Deltas[j]
			if d.Tells() || d.Key.Lane(len(a.lanes)) != up.Lane {
				return nil, deltasync.StatusForbidden, fmt.Errorf("key %016x: it tells something, or is of another lane", uint64(d.Key))
			}
			keys++
		}
	}
	switch {
	case up.Kind != deltasync.KindRegion || up.Region == a.cfg.Region || up.Node != deltasync.NodeID(up.Region, "", ""):
		return nil, deltasync.StatusForbidden, fmt.Errorf("it is not of another region, but of %q", up.Region)
	case up.Lanes != len(a.lanes):
		return nil, deltasync.StatusUnsupported, fmt.Errorf("the sender has %d lanes, this aggregator %d: set the same number everywhere", up.Lanes, len(a.lanes))
	case keys > mostAudited:
		return nil, deltasync.StatusForbidden, fmt.Errorf("it asks about %d keys, want at most %d", keys, mostAudited)
	}
	return up, deltasync.StatusOK, nil
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
	a.audited.answered(j)
	// Who lacks what is stored, or owns the lane, may know less than its region.
	sure := down.Status == deltasync.StatusOK
	var compared []Compared
	var worst Compared // of those that lost something since they were last compared
	l.mu.Lock()
	p := &l.peers[j].audits
	ahead, i := p.ahead, -1
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
			} else if p.loses(l, k) && k.Ahead > worst.Ahead {
				worst = k
			}
			compared = append(compared, k)
			if !l.crowded() { // else it would keep its place, until it is written, from others
				a.hear(l, d.Key, c, crdt.Replica{Node: down.Node}, told, oldest, horizon, t)
			}
		}
	}
	p.done(t, compared)
	lost := p.ahead - ahead
	l.mu.Unlock()
	if c, log := a.audited.complains(j, lost, worst, t); log {
		a.cfg.Logger.Warn("a region does not know hits that it has told: it has lost them, or this is a bug; told once a minute, with the worst key",
			"region", x.Peer, "hits", c.hits, "key", fmt.Sprintf("%016x", uint64(c.worst.Key)), "lane", c.worst.Key.Lane(len(a.lanes)), "believed", c.worst.Believed, "counted", c.worst.Counted)
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
	for _, key := range l.sample(&l.audits, t, func(deltasync.Key, *counter) bool { return true }) {
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
