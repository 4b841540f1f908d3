package regional

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// Aggregator serves one region. Its methods may be called by many goroutines.
type Aggregator struct {
	cfg   Config
	store *parts
	inbox *deltasync.Inbox
	pops  pops
	self  deltasync.Up // head of frames to other regions
	lanes []*lane

	clock      clock
	share      share  // of the lanes
	legacy     legacy // of those that were gained
	watch      watch
	misfits    misfits
	hurry      atomic.Bool // some export or push should not wait
	pace       pace
	nodes      []uint64 // of Config.Peers
	links      links
	ties       ties
	leavers    leavers
	homes      homes
	audited    turns
	spoken     spoken
	tallies    tallies
	decided    *decided
	recastTold atomic.Int64      // when tellRecast last said something
	epoch      atomic.Uint64     // of the store and of this aggregator, as told to edges
	rights     *escrow.Authority // nil: no strict limits are granted here
	stats      stats
}

// lane is a part of the key space under one lock.
type lane struct {
	mu          sync.Mutex // guards what follows; never held across a call to the store
	counters    map[deltasync.Key]*counter
	order       []deltasync.Key            // of all counters
	guests      map[deltasync.Key]*counter // those that have no place; see guests.go
	room        room
	pops        map[uint64]*popBytes // who has how much of it
	terms       terms
	hand        int                  // the place in order that Tick goes on from
	contests    []deltasync.Key      // keys whose counters have one
	present     map[uint64]*presence // edges, by node
	contestHand int                  // the place there to go on from
	batches     uint64               // of keys that were written to the store
	retry       retries              // keys that the store refused or may have lost
	push        []deltasync.Key      // keys to push
	hot         []deltasync.Key      // keys that are to be told to all regions; see homes.go
	peers       []peer               // by Config.Peers
	forgot      uint64               // peers, a bit each, that keys were forgotten untold of
	scratch     []crdt.Cell          // see merged
	joined      crdt.Vector          // likewise
	slots       []slot               // see slotsOf
	given       []crdt.Cell          // see countedBy
	served      int64                // since when it is served here; 0: it is not
	lacks       bool                 // keys came since it was asked for their demands elsewhere; see lacks.go
	asked       int64                // when that was
	learnt      int64                // when enough is known for shares; 0: nobody has asked
	learned     bool                 // it was found to be, since
	answered    int64                // when an edge was last answered; see since

	snapshot snapshot // for edges that start
	truths   truths

	audits audits // with the store
}

// peer is one lane's exchange with another region.
type peer struct {
	outbox  *deltasync.Outbox
	epochs  []uint64        // seen of late in its replies
	store   uint64          // of its last reply
	sent    int64           // when the last frame left
	until   int64           // it is left alone before this instant
	again   []deltasync.Key // to be told with a later Tick: see tellLater
	round   round           // of what stood there
	refused []heir          // keys that it would not have, and that are in the store alone
	fails   int             // frames in a row that it did not answer
	heard   uint64          // Seq of the newest frame that it answered
	audits  audits
	failing int64 // since when
	// unstored says that it took something into memory alone, as its store is
	// away.
	unstored bool
	// lacks says that it has yet to hear that the lane was gained here, and what for.
	lacks bool
}

// New makes an aggregator over a store, which stays the caller's to close. It
// starts nothing: call Run.
func New(cfg Config, store Store) (*Aggregator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("aggregator config: %w", err)
	}
	if cfg.Incarnation == 0 {
		cfg.Incarnation = uint64(time.Now().UnixMilli())
	}
	a := &Aggregator{
		cfg: cfg, store: newParts(store), inbox: deltasync.NewInbox(cfg.Region, cfg.Lanes),
		self: deltasync.Up{
			Kind: deltasync.KindRegion, Region: cfg.Region, Name: cfg.Name,
			Node: deltasync.NodeID(cfg.Region, "", ""), Lanes: cfg.Lanes,
		},
		homes:   newHomes(cfg.Targets, cfg.Region, cfg.Peers),
		decided: newDecided(),
	}
	if a.homes.on {
		a.self.Features = deltasync.FeatureOthers
	}
	a.audited.peers, a.audited.complaints = make([]silence, len(cfg.Peers)), make([]complaint, len(cfg.Peers))
	a.links.waiting, a.links.unanswered, a.links.deaf = make([]atomic.Int64, len(cfg.Peers)), make([]atomic.Int64, len(cfg.Peers)), make([]atomic.Bool, len(cfg.Peers))
	a.links.hears, a.links.hearsAt, a.links.awake = make([]atomic.Uint64, len(cfg.Peers)), make([]atomic.Int64, len(cfg.Peers)), make([]atomic.Bool, len(cfg.Peers))
	a.links.held, a.links.since, a.links.allAt = make([]int64, len(cfg.Peers)), make([]int64, len(cfg.Peers)), make([]int64, len(cfg.Peers)+1)
	a.spoken.peers, a.ties.told = make([]voice, len(cfg.Peers)), make([]int64, len(cfg.Peers))
	a.links.again, a.links.back = make([]int64, len(cfg.Peers)), make([]int64, len(cfg.Peers))
	a.links.first, a.links.silent = make([]atomic.Int32, len(cfg.Peers)), make([]atomic.Uint64, len(cfg.Peers))
	a.links.ways, a.links.unheard, a.links.pauses = make([]int64, len(cfg.Peers)), make([]unheard, len(cfg.Peers)), make([]atomic.Int64, len(cfg.Peers))
	for _, p := range cfg.Peers {
		a.nodes = append(a.nodes, deltasync.NodeID(p, "", ""))
		a.links.budgets = append(a.links.budgets, deltasync.NewBudget(cfg.Budget))
	}
	for range cfg.Lanes {
		l := &lane{counters: map[deltasync.Key]*counter{}, present: map[uint64]*presence{}, retry: retries{store: a.store, keys: make([][]deltasync.Key, len(a.store.known))}}
		l.room = room{keys: math.MaxInt, bytes: cfg.laneBytes(), all: searches{enough: little}}
		if cfg.MaxKeys > 0 {
			l.room.keys = cfg.MaxKeys / cfg.Lanes
		}
		for range cfg.Peers {
			l.peers = append(l.peers, peer{outbox: deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: cfg.outboxDeltas(), Patience: cfg.Interval, Late: amends})})
		}
		a.lanes = append(a.lanes, l)
	}
	a.clock.CountSelf()
	a.share.members = newMembers(cfg.Region, cfg.Name, cfg.Incarnation, cfg.Lanes)
	a.share.settle(0)
	a.setEpoch()
	if cfg.Rules != nil {
		a.SetRules(cfg.Rules)
	}
	if cfg.Rights != nil {
		if a.rights, err = escrow.New(escrow.Config{
			Region: cfg.Region, Peers: cfg.Peers, Lanes: cfg.Lanes, Log: cfg.Rights, Lease: cfg.RightsLease, Timeout: cfg.StoreTimeout, Interval: cfg.Interval,
			Boot: cfg.Boot, Token: cfg.Token, Logger: cfg.Logger,
			Edges: func() int {
				return a.liveEvenly(a.clock.At(a.cfg.Now())) * (len(cfg.Peers) + 1)
			},
			Longest: func() time.Duration { return time.Duration(a.tallies.strict.Load()) },
		}); err != nil {
			return nil, fmt.Errorf("aggregator config: %w", err)
		}
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(newCollector(a))
	}
	return a, nil
}

// setEpoch tells edges and peers apart what they have told us from what they
// have not: a new store and a new aggregator both start without their counts.
func (a *Aggregator) setEpoch() {
	a.epoch.Store(deltasync.NodeID(a.cfg.Region, a.cfg.Name, fmt.Sprintf("%d/%d", a.cfg.Incarnation, a.store.epoch())))
}

// Handle answers one frame. It joins the counts, stores them, joins what the
// store knew besides, and replies; it waits for the store, for
// Config.StoreTimeout at most, however large the frame is.
func (a *Aggregator) Handle(ctx context.Context, now time.Time, subject string, payload []byte) []byte {
	t, begun := a.clock.At(now), a.cfg.Now()
	up, status, err := a.inbox.Admit(t, subject, payload)
	if err != nil {
		return a.refuse(subject, payload, status, err, t)
	}
	if j := slices.Index(a.nodes, up.Node); j >= 0 {
		hears := up.Features&deltasync.FeatureHears != 0 || up.Hears == 0 // builds before do not say
		a.links.heard(j, up.Features&deltasync.FeatureDeaf != 0, hears, a.cfg.Interval, t)
		a.links.says(j, up.Hears, t)
		a.links.silent[j].Store(up.Silent)
		a.spoken.heard(j, t)
	}
	l := a.lanes[up.Lane]
	m, stored := a.take(ctx, l, up, t, begun)
	if up.Features&deltasync.FeatureLacks != 0 {
		a.tellLacking(l, up.Node, t)
	}
	a.judge(subject, up, m, t)
	a.tellRecast(subject, m, t)
	// Or there is a backlog, be it of another part of the store: a sender that heard
	// now this and now that would tell everything again each time. What was refused
	// is named: the sender comes again with it in any case.
	if !stored || a.store.away.Load() > 0 {
		m.status = deltasync.StatusStoreDown
	}
	if m.status == deltasync.StatusOK && !a.Owns(up.Lane) { // all is taken; who owns the lane knows more
		m.status = deltasync.StatusNotOwner
	}
	down := a.reply(l, up, m.guests, t)
	down.Status, down.Refused = m.status, m.refused
	other, news := a.inbox.Estranged(t, up)
	if other {
		down.Mistake = deltasync.MistakeSecret
		if news && up.Kind == deltasync.KindEdge {
			a.cfg.Logger.Warn("an edge has another secret than most edges of the region, and counts keys of its own: give all edges one secret", "pop", up.Pop, "name", up.Name)
		}
	}
	if _, news := a.inbox.Namesake(t, up); news {
		a.cfg.Logger.Warn("two edges of a PoP live by one name, and are given one share, which both spend: give each edge a name of its own (--name)", "pop", up.Pop, "name", up.Name)
	}
	if up.Kind == deltasync.KindRegion && !other && !slices.Contains(a.cfg.Peers, up.Region) {
		down.Mistake = deltasync.MistakePeers
	} else if up.Kind == deltasync.KindRegion {
		down.Named = a.named(up.Lane, up.Region)
	}
	if up.Kind == deltasync.KindRegion { // equals compare what their own clocks show
		down.ReceivedAt = a.clock.Raw(now)
		a.compare(t, up, other)
	}
	took := a.cfg.Now().Sub(begun)
	a.pace.took(took)
	if up.Kind == deltasync.KindEdge {
		down.Pace = a.pace.asked()
	}
	down.SentAt = down.ReceivedAt + int64(took)
	return a.encode(down, payload)
}

// errVain is why an edge is muted of whose frames nothing can be taken. A key that has
// another width here is not meant: who is right is not known.
var errVain = errors.New("its counts lie in the future, or are of a shape that nobody keeps: see that its clock is right, and this one")

// judge has those muted who go on sending what nothing can be taken of.
func (a *Aggregator) judge(subject string, up *deltasync.Up, m *merged, now int64) {
	switch {
	case m.tells == 0: // it asks, or says that it lives
	case m.vain < m.tells:
		a.inbox.Took(up)
	default:
		if muted, is := errors.AsType[*deltasync.MutedError](a.inbox.Vain(now, up, errVain)); is {
			a.cfg.Logger.Warn("sender muted", "subject", subject, "for", muted.For, "err", muted.Err)
		}
	}
}

// refuse answers a frame that was not admitted.
func (a *Aggregator) refuse(subject string, payload []byte, status deltasync.Status, err error, now int64) []byte {
	down := &deltasync.Down{Status: status, Region: a.cfg.Region, Node: a.self.Node, ReceivedAt: now, SentAt: now}
	muted, lanes := (*deltasync.MutedError)(nil), (*deltasync.LanesError)(nil)
	if errors.As(err, &lanes) {
		down.Mistake, down.Lanes = deltasync.MistakeLanes, a.cfg.Lanes
		if lanes.Sender.Kind == deltasync.KindRegion {
			a.otherLanes(now, lanes.Sender.From, lanes.Lanes)
		}
	}
	switch {
	case errors.As(err, &muted):
		a.cfg.Logger.Warn("sender muted", "subject", subject, "for", muted.For, "err", muted.Err)
	case lanes != nil && lanes.News && lanes.Sender.Kind == deltasync.KindEdge:
		a.cfg.Logger.Warn("an edge has another number of lanes than the region, which takes nothing that it sends: set lanes alike at every edge and aggregator of the region",
			"pop", lanes.Sender.Pop, "name", lanes.Sender.Name, "lanes", lanes.Lanes, "region_lanes", a.cfg.Lanes)
	default:
		a.cfg.Logger.Debug("frame refused", "subject", subject, "err", err)
	}
	return a.encode(down, payload)
}

// encode writes a reply to what was asked, in the version of that. One that would
// be too large stops early: what it says of the first keys is good, and the sender
// asks again for the rest.
func (a *Aggregator) encode(down *deltasync.Down, asked []byte) []byte {
	down.Version = deltasync.AnswerVersion(asked)
	b, err := down.AppendBinary(nil)
	if errors.Is(err, deltasync.ErrTooLarge) {
		a.stats.cutShort.Add(1)
		down.Cut()
		b, err = down.AppendBinary(nil)
	}
	if err != nil { // our own bug
		a.cfg.Logger.Error("reply dropped", "seq", down.Seq, "err", err)
		return nil
	}
	return b
}

// reply tells the sender what everybody else did.
func (a *Aggregator) reply(l *lane, up *deltasync.Up, guests map[deltasync.Key]*counter, now int64) *deltasync.Down {
	edges, regions := a.live(now)
	if up.Kind == deltasync.KindEdge {
		edges = a.liveBeside(now, up.Node)
	}
	owns := a.Owns(up.Lane)
	knows := up.Kind == deltasync.KindEdge && up.HeardEpoch == a.epoch.Load() && up.SentAt <= now+int64(astray)
	down := &deltasync.Down{
		Status: deltasync.StatusOK, Region: a.cfg.Region, Node: a.self.Node, Seq: up.Seq,
		EchoSentAt: up.SentAt, ReceivedAt: now, SentAt: now,
		StoreEpoch: a.epoch.Load(), Store: a.store.identity(), LiveEdges: edges, LiveRegions: regions, Regions: len(a.cfg.Peers) + 1, Between: a.between(now),
	}
	if up.Kind == deltasync.KindRegion {
		down.Hears = a.hears(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = now
	for si := range up.Sections {
		sec := &up.Sections[si]
		oldest := reach(sec.Shape, now)
		for di := range sec.Deltas {
			var t deltasync.Totals
			c := l.counters[sec.Deltas[di].Key]
			from := oldest
			if c == nil {
				c = guests[sec.Deltas[di].Key]
			} else if knows {
				from = c.since(sec.Deltas[di].Heard, now)
			}
			if c != nil {
				if up.Kind == deltasync.KindRegion {
					t = l.totalsForRegion(c, oldest, now)
					if up.Features&deltasync.FeatureOthers != 0 && a.homes.own(sec.Deltas[di].Key) {
						t.Others = c.heardFor(up.Replica(0), oldest)
					}
					if own := c.regions.Of(up.Replica(0)); own != nil && sec.Deltas[di].Flags&deltasync.FlagOwn != 0 {
						t.Own = own.From(oldest, nil)
					}
				} else {
					t = l.totalsFor(up.Replica(sec.Life), c, from, now)
					if owns {
						t.Share = a.shareOf(l, c, now)
					}
				}
			}
			down.Totals = append(down.Totals, t)
		}
	}
	a.relieve(l, now) // what the store told of them may have made them larger, and what was being written may go now
	return down
}
