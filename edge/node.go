package edge

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// shards of the ledger. Each is locked for one decision at a time, so a few
// hundred keep two decisions from meeting.
const shards = 256

// Node decides and counts. Its methods may be called by many goroutines.
type Node struct {
	shards [shards]shard
	wheres [shards]where // the tables are, by shard

	cfg    Config
	keyer  deltasync.Keyer
	self   deltasync.Up // head of every frame
	secret uint64       // tells that of the cluster from others
	region uint64       // the node that its aggregators speak for

	rules   atomic.Pointer[limit.Set]
	epochs  atomic.Uint32                          // of rule sets
	rates   atomic.Pointer[map[uint64]*limit.Rate] // of the rules, by generation
	formers atomic.Pointer[formers]                // nil before the second set
	lingers atomic.Int64                           // the longest that what any rule counted counts, and a second

	exceptions atomic.Pointer[exceptions] // nil: there are none

	firstEpoch atomic.Uint32 // of the rules in force
	setting    sync.Mutex    // held while these change, and guards:
	excepted   []exceptedKey // all exceptions, by rules or not

	clock  deltasync.Clock                  // corrected by the region's; what tells it is guarded by mu
	life   atomic.Uint32                    // that new records are born under
	hurry  atomic.Bool                      // some record is urgent
	spare  atomic.Pointer[drained]          // for the next flush
	reader atomic.Pointer[deltasync.Reader] // for the next reply
	stout  bool                             // no record is sparse: for the test that compares

	ungivenKeys []deltasync.Key // that giveUp returned rights of, unanswered; of whoever calls Leave and Left

	mu         sync.Mutex // guards what follows; never held together with a shard's
	outboxes   []*deltasync.Outbox
	paused     []pause   // by lane
	refusals   []refusal // by lane
	lanes      []service // by lane
	leaves     bool      // it stops
	resend     resend
	swept      int                     // next shard for Tick
	unmarked   int                     // shards that Tick has yet to look at since resend.wave rose
	drainFrom  [classes]int            // shards that the next flush begins with
	firstLane  int                     // lane that sends first
	firstClaim int                     // shard whose claims go first
	withheld   map[deltasync.Key]int64 // when penalties end that are to be told once the clock is sure
	budget     deltasync.Budget
	complained atomic.Int64 // when it was last said that pushes are dropped, ns since 1970
	pace       time.Duration
	snapshot   snapshot
	told       map[deltasync.Mistake]bool // that were logged

	cluster    cluster
	capacities capacities
	loans      loans
	unheard    unheard
	stats      stats
	bounds     bounds
	distinct   distinct // n.mu guards it
	metrics    *metrics
}

// pause is how long a lane rests after frames that nobody answered.
type pause struct {
	since, until int64
	fails        int
	answered     uint64 // Seq of the newest frame that was
}

// takeover is how long after the first loss a lane is tried again and again: an
// aggregator that died is replaced within a second.
const takeover = 2 * time.Second

// answer ends the pause.
func (p *pause) answer(seq uint64) { *p = pause{answered: max(p.answered, seq)} }

// lost makes the pause longer, unless somebody answers: what got lost between frames
// that did not says nothing of the next.
func (p *pause) lost(seq uint64, now int64, interval time.Duration) {
	if seq < p.answered {
		return
	}
	if p.fails == 0 {
		p.since = now
	}
	longer := min(p.fails, 1)
	if lapsed(now, p.since, takeover) {
		longer = min(p.fails, 4)
	}
	p.until = now + int64(min(interval<<longer, longestPause))
	p.fails++
}

// New makes a node. It starts nothing: call SetRules, then Run.
func New(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("edge config: %w", err)
	}
	keyer, err := deltasync.NewKeyer(cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("edge config: Secret: %w", err)
	}
	secret, err := deltasync.SecretCheck(cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("edge config: Secret: %w", err)
	}
	if cfg.Incarnation == 0 {
		cfg.Incarnation = uint64(time.Now().UnixMilli())
	}
	n := &Node{
		cfg: cfg, keyer: keyer, secret: secret, region: deltasync.NodeID(cfg.Region, "", ""),
		self: deltasync.Up{
			Kind: deltasync.KindEdge, Region: cfg.Region, Pop: cfg.Pop, Name: cfg.Name,
			Node:        deltasync.WireNodeID(cfg.Region, cfg.Pop, cfg.Name),
			Incarnation: cfg.Incarnation, Lanes: cfg.Lanes,
		},
		paused: make([]pause, cfg.Lanes), refusals: make([]refusal, cfg.Lanes), lanes: make([]service, cfg.Lanes), told: map[deltasync.Mistake]bool{},
	}
	n.snapshot.lanes = make([]laneSnapshot, cfg.Lanes)
	n.rested()
	n.budget = deltasync.NewBudget(cfg.Budget)
	share := cfg.budget()
	for range cfg.Lanes {
		n.outboxes = append(n.outboxes, deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: share.deltas, ReserveOneIn: 8, Patience: cfg.Interval}))
	}
	n.cluster.rand, n.cluster.hurry = cfg.Rand, &n.hurry
	n.cluster.urgent, n.cluster.interval = cfg.Urgent, cfg.Interval
	n.cluster.expect(cfg.Regions, cfg.Edges)
	n.cluster.escrow.boot, n.cluster.escrow.rand = cfg.Boot, cfg.Rand
	n.cluster.escrow.lease.Store(int64(deltasync.DefaultLease))
	n.cluster.escrow.mostKept = mostKept(int64(cfg.Budget))
	for i := range n.shards {
		s := &n.shards[i]
		s.cluster, s.where = &n.cluster, &n.wheres[i]
		s.max, s.bytes = share.keys, share.bytes
		s.blocked.most, s.blocked.filter.most = share.holds, share.buckets
	}
	if n.metrics, err = newMetrics(cfg.Registerer, n); err != nil {
		return nil, fmt.Errorf("edge config: %w", err)
	}
	return n, nil
}

// SetRules puts a compiled set in force. Counts of rates whose meaning did not
// change go on; a changed limit applies to what is already counted. The set
// belongs to the node from then on; the one in force may be given again, which changes nothing.
// Without a set, as of a document with mistakes, or with one that was in force before, here or
// at another node, those before stay in force, and the error says so: requests may be read by such a
// set yet, so that to go back to it is to compile it anew.
func (n *Node) SetRules(set *limit.Set) error {
	if set == nil {
		return errors.New("no rules were given: those before stay in force; look at the problems that limit.Compile tells")
	}
	n.setting.Lock()
	defer n.setting.Unlock()
	if set == n.rules.Load() {
		return nil
	}
	if !set.Seal(n.epochs.Add(1), func(identity []byte) [2]uint64 { return n.keyer.Sub(identity) }) {
		return errors.New("these rules were in force before, or are another node's: those in force stay; compile a set each time that rules are given to a node")
	}
	rates, before := byGeneration(set), n.rules.Load()
	if before != nil {
		changed := formersOf(set, before, n.formers.Load())
		for _, rate := range becameStrict(before, set) {
			n.cfg.Logger.Warn("a rate becomes strict: what was admitted before and is behind a cut is in nobody's rights; it is exact a window from now on",
				"policy", rate.Policy, "window", rate.Window)
		}
		n.formers.Store(changed) // at once with the rules, or what is swept in between is lost to requests of those before
	}
	for _, rate := range *rates {
		n.lingers.Store(max(n.lingers.Load(), longestHold(rate)))
	}
	if n.cfg.Tenants != nil {
		n.cfg.Tenants.Use(set)
	}
	n.rates.Store(rates)
	n.except(set)
	n.rules.Store(set)
	if rules := set.Rules(); len(rules) > 0 {
		n.firstEpoch.Store(rules[0].Epoch)
	}
	return nil
}

// becameStrict are the rates of a set that count what they counted before, and were not
// strict then.
func becameStrict(before, set *limit.Set) (rates []*limit.Rate) {
	was := *byGeneration(before)
	for _, rule := range set.Rules() {
		for _, rate := range rule.Rates {
			if old := was[rate.Generation]; escrows(rate) && asks(rate) && old != nil && !escrows(old) {
				rates = append(rates, rate)
			}
		}
	}
	return rates
}

// Time is what time it is at an instant by the node's clock, which windows begin and end by.
func (n *Node) Time(now time.Time) time.Time { return time.Unix(0, n.clock.At(now)) }

// Boot is how long the machine runs, by the clock that rights of strict limits go by: nobody sets
// it, and it goes on while the machine sleeps. It is not that of a time.Time.
func (n *Node) Boot(time.Time) time.Duration { return n.cfg.Boot() }

// Rules is the set in force, nil before the first.
func (n *Node) Rules() *limit.Set { return n.rules.Load() }

// Ready says why the node cannot decide yet; nil when it can. Stale views do
// not make it unready: it goes on deciding from what it has.
func (n *Node) Ready() error {
	if n.rules.Load() == nil {
		return fmt.Errorf("no rules loaded")
	}
	return nil
}

func (n *Node) shard(key deltasync.Key) *shard { return &n.shards[uint64(key)>>56] }

// shardOf is that of all counters of one hash.
func (n *Node) shardOf(hash deltasync.Hash) *shard { return &n.shards[uint64(hash)>>56] }

// admit makes a record for key in s, forgetting another if the shard is full,
// and seeds it with what the view remembers. keep are keys that this decision
// needs too.
func (n *Node) admit(s *shard, key deltasync.Key, rate *limit.Rate, now int64, keep []counter) *record {
	was := n.inheritance(s, key, rate, now)
	for s.crowded() && n.evict(s, key, now, keep) {
	}
	r := s.insert(key)
	s.enter(r, rate.Space)
	seen := n.seen(key)
	if most := now + longestPenalty(rate); seen.Until > most { // a clock was set back
		seen.Until = most
		n.cfg.View.Set(key, seen, max(rate.Lingers(), rate.Memory, time.Duration(most-now)))
	}
	r.hears(seen.Heard, seen.Regions)
	if !n.stout && len(seen.Cells) == 0 && seen.Until <= now && thins(rate) && s.blocked.find(key, rate, now).until == 0 {
		s.thin(r, rate, n.life.Load(), now)
		return r
	}
	b := s.newBlock()
	r.block = b
	b.rate, b.life, b.slice = rate, n.life.Load(), rate.SliceAt(now)
	for _, c := range seen.Cells {
		b.others.Join(c)
	}
	b.remember(rate)
	if b.memory != nil {
		if b.memory.carry = seen.Carry; rate.Scope != limit.ScopeEdge { // the view has what was pushed, too
			b.memory.carry = rate.Believed(seen.Carry)
		}
	}
	s.recall(b, now) // where a clock was set back since
	if rate.Queue {
		b.memory.exact.Behind(rate.Lines(func(r *limit.Rate) int64 { return now + int64(n.behind(r, s.sums(b), b.memory.carry, now)) }), n.formers.Load().longestTurn(rate), 0, now)
	}
	s.weigh(b)
	s.obey(r, seen.Until, now)
	s.hold(r, n.formers.Load(), now)
	s.bequeath(r, was, now)
	return r
}

// evict forgets, of a stretch of the table, the record with the smallest share
// of its limit in use; those with counts that nobody else has yet come last,
// while there is somebody who tells us again what we told: else a little that
// was not told yet is worth no more than a lot that was. Before all that, who
// makes room is of a namespace that has more than its part of the records. It
// says whether there was one to forget.
func (n *Node) evict(s *shard, near deltasync.Key, now int64, keep []counter) bool {
	const stretch = 32
	victim, lowest, lost := -1, 5.0, false
	told, lingers := n.answered(now), n.lingers.Load()
	for step, i := 0, s.home(near); step < len(s.table) && (step < stretch || victim < 0); step, i = step+1, s.after(i) {
		r := &s.table[i]
		if r.key == 0 || kept(keep, r.key) {
			continue
		}
		share, unsent := r.share(), r.flags&(charged|untold|owed) != 0
		switch {
		case n.outlived(r):
			share = -1
		case r.until != 0 && r.scale != full && r.until <= now-lingers:
			share = 0 // nothing of it counts any more
		}
		if unsent && told {
			share++
		}
		if !s.greedy(r) {
			share += 2
		}
		if share < lowest {
			victim, lowest, lost = i, share, unsent
		}
	}
	if victim < 0 {
		return false
	}
	if lost {
		n.stats.evictedUnsent.Add(1)
	} else {
		n.stats.evicted.Add(1)
	}
	n.forget(s, victim, now)
	return true
}

// outlived says that a record is of a rate that no rule has any more, nor one that goes on with
// it. It looks closer at those alone that nobody has asked since the rules changed.
func (n *Node) outlived(r *record) bool {
	if e := r.epoch &^ opened; e >= n.firstEpoch.Load() && !limit.OwnEpoch(e) {
		return false
	}
	rate := r.block.rate
	return (*n.rates.Load())[rate.Generation] == nil && !n.formers.Load().became(rate)
}

func kept(keep []counter, key deltasync.Key) bool {
	for i := range keep {
		if keep[i].key == key {
			return true
		}
	}
	return false
}

// forget removes the record at place i, and has what it knows in the view and among
// those that are blocked.
func (n *Node) forget(s *shard, i int, now int64) {
	r := &s.table[i]
	b := s.whole(r)
	r.settle()
	s.retire(r, now)
	s.block(r, now)
	s.giveUpRights(r, now)
	n.outlive(b)
	if !b.idle(now) {
		totals := mergeCells(make([]crdt.Cell, 0, max(b.own.Len(), b.others.Len())), &b.own, &b.others)
		until := b.sentence(now)
		n.cfg.View.Set(r.key, Totals{Cells: totals, Carry: b.carry(), Until: until, Heard: r.heard, Regions: uint16(r.regions & mostRegions), Here: true},
			max(b.rate.Lingers(), b.rate.Memory, time.Duration(until-now)))
	}
	s.remove(i)
}

// outlive has the node go on under its next life where others hold counts of a record that
// is to go under the present one: born again under that, the key would hide behind its old
// maximum.
func (n *Node) outlive(b *block) {
	if b.sentAt != 0 && b.own.Len() > 0 && b.life < deltasync.MaxLife {
		n.life.CompareAndSwap(b.life, b.life+1)
	}
}

// lapsed says that d has passed since at, or that at lies in the future: a
// clock was set back, and nothing is known of the time since.
func lapsed(now, at int64, d time.Duration) bool {
	return now-at > int64(d) || at > now+int64(maxAhead)
}

// resting says that a pause until the given instant is not over. No pause is
// longer than a second, so one that seems to be was set before the clock was.
func resting(now, until int64) bool { return now < until && until-now <= int64(longestPause) }

// longestPause is the longest that a lane rests after a frame that was lost.
const longestPause = time.Second

// Keys is the number of live keys.
func (n *Node) Keys() int {
	total := 0
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		total += s.used
		s.mu.Unlock()
	}
	return total
}
