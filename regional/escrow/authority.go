package escrow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/boottime"
)

// Config is what an Authority is made from. Region, Lanes and Log must be given.
type Config struct {
	Region string
	Peers  []string // the other regions: all must have the same, so that each key has one home
	Lanes  int
	Log    Log

	// Lease is how long rights are good for without being renewed (15 s), Timeout how
	// long an answer waits for the log (200 ms), and Interval how often a holder is
	// asked again to return some (100 ms).
	Lease, Timeout, Interval time.Duration

	// Edges is about how many there are in all regions: so many parts an unknown
	// demand is cut into. Nil: nobody knows.
	Edges func() int

	// Longest is for how long what is spent may count in any strict limit, by the rules that
	// are known here; nil, or 0: none are. How long it does in a key's is its holders' word:
	// one that is silent has his rights for no longer than that and a lease, or a day, if that
	// is more, as rules may come here later than to edges.
	Longest func() time.Duration
	// MaxKeys bounds the keys that are known at a time, in equal parts for all lanes
	// (1,000,000, some 240 MB). To make room, those are left to the log of which nobody
	// has said anything for a lease. Where all are asked for, nothing is granted of new
	// ones: a strict limit denies what it cannot account for.
	MaxKeys int

	// Boot is a clock that nobody sets (CLOCK_BOOTTIME). Token draws what nobody drew
	// before (at random). Simulations that are to replay set both.
	Boot  func() time.Duration
	Token func() uint64

	Logger *slog.Logger
}

// Authority answers claims for rights. Its methods may be called by many goroutines.
type Authority struct {
	cfg     Config
	regions []string // all, in order
	lanes   []lane
	peers   peers
	looked  atomic.Int64 // when Keep last looked whether the log is there, by Config.Boot
	stats   struct{ granted, returned, voided, crowded, fenced, failed, revoked atomic.Uint64 }
}

// lane is what is known of the keys of one.
type lane struct {
	mu     sync.Mutex    // guards what follows; never held across a call to the log
	token  uint64        // 0: it was not taken, or another has it
	since  time.Duration // when the log began
	log    uint64        // its Origin.ID
	barred []Revoked     // its Origin.Revoked
	doubts               // what others may have granted
	keys   map[deltasync.Key]*deposit
	short  []deltasync.Key // keys of which somebody wants more than he has, and some of which nobody does any more
	tell   []*telling
	swept  time.Duration
	order  []*deposit // those of keys, and some that are no more, as sweep goes through them
	hand   int        // where in order it is
	taking bool
	idle   []*deposit // that nobody asks for, and of which the log is to know more, or nothing
}

// telling is a grant of which a holder is to hear unasked.
type telling struct {
	region string
	grant  deltasync.Grant
}

// New makes an authority. It starts nothing.
func New(cfg Config) (*Authority, error) {
	if cfg.Log == nil {
		return nil, errors.New("escrow config: Log: missing")
	}
	if cfg.Lanes < 1 || cfg.Lanes > deltasync.MaxLanes {
		return nil, fmt.Errorf("escrow config: Lanes: %d, want 1 to %d", cfg.Lanes, deltasync.MaxLanes)
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&cfg.Lease, deltasync.DefaultLease}, {&cfg.Timeout, 200 * time.Millisecond}, {&cfg.Interval, 100 * time.Millisecond}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if cfg.Lease < 0 || cfg.Lease > deltasync.MaxLease {
		return nil, fmt.Errorf("escrow config: Lease: %v, want at most %v", cfg.Lease, deltasync.MaxLease)
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = 1_000_000
	}
	if cfg.Boot == nil {
		cfg.Boot = boottime.Now
	}
	if cfg.Edges == nil {
		cfg.Edges = func() int { return 0 }
	}
	if cfg.Longest == nil {
		cfg.Longest = func() time.Duration { return 0 }
	}
	if cfg.Token == nil {
		cfg.Token = rand.Uint64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authority{cfg: cfg, regions: slices.Sorted(slices.Values(append(slices.Clone(cfg.Peers), cfg.Region))), lanes: make([]lane, cfg.Lanes)}
	a.peers.disowned.Store(int64(-Forever))
	for i := range a.lanes {
		a.lanes[i].keys, a.lanes[i].answered = map[deltasync.Key]*deposit{}, map[string]bool{}
	}
	return a, nil
}

// Home is the region whose authority a key has: drawn by rendezvous hashing, so that a
// region that comes or goes moves its own keys only.
func (a *Authority) Home(key deltasync.Key) string {
	best, home := uint64(0), a.cfg.Region
	for _, r := range a.regions {
		if d := draw(r, key); home == "" || d >= best {
			best, home = d, r
		}
	}
	return home
}

// draw is what a region is a key's home by: the one that draws most.
func draw(region string, key deltasync.Key) uint64 {
	return stir(uint64(key) ^ deltasync.NodeID(region, "", ""))
}

// stir is the finalizer of splitmix64: a bijection.
func stir(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Handle answers one frame of claims that was admitted; nil: it cannot, and the edge
// asks again.
func (a *Authority) Handle(ctx context.Context, c *deltasync.Claims) []byte {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	b, err := a.answer(ctx, c)
	if errors.Is(err, ErrLost) {
		// Nothing was written, and nobody else has the lane: it is taken at once, as whoever
		// waits at the edge would do so in vain until the edge asks again.
		b, err = a.answer(ctx, c)
	}
	if err != nil {
		if errors.Is(err, ErrFenced) {
			a.stats.fenced.Add(1)
		} else {
			a.stats.failed.Add(1)
		}
		a.cfg.Logger.Debug("claims not answered", "lane", c.Lane, "err", err)
		return nil
	}
	return b
}

// answer is what Handle answers. After an error nothing is known of the lane here.
func (a *Authority) answer(ctx context.Context, c *deltasync.Claims) ([]byte, error) {
	l := &a.lanes[c.Lane]
	token, err := a.ready(ctx, l, c)
	if err != nil {
		l.drop(token)
		return nil, err
	}
	l.mu.Lock()
	if l.token != token {
		l.mu.Unlock()
		return nil, nil
	}
	now := a.cfg.Boot()
	answer := &deltasync.Grants{Region: a.cfg.Region, Lane: c.Lane, Status: deltasync.StatusOK, Echo: c.SentAt, Lease: a.cfg.Lease, Log: l.log}
	changed := map[deltasync.Key]*deposit{}
	var told []*telling
	for i := range c.Claims {
		k := &c.Claims[i]
		g := deltasync.Grant{Key: k.Key, Holder: k.Holder}
		if home := a.Home(k.Key); home != a.cfg.Region && !k.Regional {
			g.Home = home
			answer.Grants = append(answer.Grants, g)
			continue
		}
		if k.Regional && c.From != a.cfg.Region {
			continue
		}
		d := l.keys[k.Key]
		if d == nil { // there is no room for it
			a.stats.crowded.Add(1)
			continue
		}
		if l.bars(deltasync.NodeID(c.From, c.Pop, c.Name), k.Key) {
			a.stats.revoked.Add(1)
			a.hearBarred(d, k, c, now)
			continue
		}
		if !k.Regional && (l.denies() || a.outlived(l, d, k, now)) {
			a.hearBarred(d, k, c, now)
			continue
		}
		h, known := a.hear(l, d, k, c, now)
		if !known {
			a.stats.voided.Add(1)
			g.Flags = deltasync.GrantVoid
			answer.Grants = append(answer.Grants, g)
			continue
		}
		before := h.Granted
		told = append(told, a.grant(l, d, h, changed, now)...)
		g.Granted, g.Target, g.Flags = h.Granted, 0, 0
		limit := d.limit()
		parts, isScarce := d.parts(limit, a.cfg.Edges(), a.cfg.Lease, now)
		at := slices.Index(d.holdings, h)
		recall := false
		if g.Target, recall = d.target(at, parts, isScarce, d.out() > limit, now); recall {
			g.Flags |= deltasync.GrantRecall
		}
		if d.wanted != none && !a.quarantined(l, d, h.Lasts, now) && d.seeks(h, parts, isScarce, now) {
			g.Flags |= deltasync.GrantSought
		}
		if h.Granted > before || d.version > d.durable || d.fades(now) || d.owesMuch(h, limit) { // the second: another frame's write is under way
			changed[d.key] = d
		}
		answer.Grants = append(answer.Grants, g)
	}
	var writing []*deposit
	for i := range c.Claims { // in an order that replays
		if d := changed[c.Claims[i].Key]; d != nil {
			writing = append(writing, d)
			delete(changed, d.key)
		}
	}
	for _, d := range l.idle {
		if !slices.Contains(writing, d) {
			writing = append(writing, d)
		}
	}
	l.idle = nil
	puts := make([]Deposit, len(writing))
	for i, d := range writing {
		d.version++
		d.writes++
		puts[i] = d.logged(a.cfg.Lease, now)
	}
	l.mu.Unlock()

	if err := a.cfg.Log.Commit(ctx, c.Lane, token, puts); err != nil {
		l.drop(token)
		return nil, err
	}
	l.mu.Lock()
	for i, d := range writing {
		d.writes--
		d.durable = max(d.durable, puts[i].Version)
		d.written, d.kept = now, Keeps(puts[i].Holdings)
		if len(puts[i].Holdings) == 0 && len(d.holdings) == 0 && d.writes == 0 && l.keys[d.key] == d {
			delete(l.keys, d.key)
		}
	}
	if l.token == token {
		l.tell = append(l.tell, told...)
	}
	l.mu.Unlock()
	b, err := answer.AppendBinary(nil)
	if err != nil { // our own bug
		a.cfg.Logger.Error("grants dropped", "err", err)
		return nil, nil
	}
	return b, nil
}

// ready takes the lane if it is not ours, and reads what is asked for and not known.
func (a *Authority) ready(ctx context.Context, l *lane, c *deltasync.Claims) (token uint64, err error) {
	if token, err = a.take(ctx, c.Lane); err != nil {
		return 0, err
	}
	l.mu.Lock()
	if l.token != token {
		l.mu.Unlock()
		return token, ErrFenced
	}
	a.sweep(l)
	var missing []deltasync.Key
	for i := range c.Claims {
		key := c.Claims[i].Key
		if l.keys[key] == nil && !slices.Contains(missing, key) && (c.Claims[i].Regional || a.Home(key) == a.cfg.Region) {
			missing = append(missing, key)
		}
	}
	missing = missing[:a.makeRoom(l, len(missing))]
	l.mu.Unlock()
	if len(missing) == 0 {
		return token, nil
	}
	found, err := a.cfg.Log.Load(ctx, c.Lane, token, missing)
	if err != nil {
		return token, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != token {
		return token, ErrFenced
	}
	now := a.cfg.Boot()
	for i, key := range missing {
		if l.keys[key] != nil {
			continue // another frame brought it
		}
		d := &deposit{key: key, version: found[i].Version, durable: found[i].Version}
		for _, h := range found[i].Holdings {
			// A log that may lack what was said since began anew: nothing is granted by it
			// until all that somebody may hold is over.
			d.holdings = append(d.holdings, &holding{Holding: h, heard: now - h.Silent, noted: h.Returned, read: true})
		}
		l.keys[key] = d
		l.order = append(l.order, d)
	}
	return token, nil
}

// hear takes in a claim; known is false of a holder whose rights have lapsed.
func (a *Authority) hear(l *lane, d *deposit, k *deltasync.Claim, c *deltasync.Claims, now time.Duration) (h *holding, known bool) {
	a.lapse(d, now)
	h = d.find(k.Holder)
	d.regional = k.Regional
	lacks := a.lacks(l, k.Lasts, now)
	node := deltasync.NodeID(c.From, c.Pop, c.Name)
	switch {
	case h != nil && h.Node != node && h.Node != 0: // another edge's: who said so was told of it, as all of a region are
		return nil, false
	case h == nil && k.Granted > 0 && !lacks:
		return nil, false
	case h != nil && k.Granted > h.Granted && !lacks: // it lapsed, and came back by a claim of long ago
		return nil, false
	case h == nil && !d.admits(node, a.cfg.Lease, now, a.cfg.Token):
		a.stats.crowded.Add(1)
		return nil, false
	case h == nil:
		h = &holding{Holding: Holding{Holder: k.Holder, Node: node}}
		d.holdings = append(d.holdings, h)
	case h.echo > c.SentAt:
		return h, true // it was said before what is known
	}
	h.Node = node                       // the log of an older build does not say whose it is
	if lacks && k.Granted > h.Granted { // the log lacks it
		h.Granted = k.Granted
		d.version++
	}
	if k.Returned > h.Returned && k.Returned <= h.Granted {
		a.stats.returned.Add(k.Returned - h.Returned)
		h.Returned = k.Returned
	}
	if h.Silent > 0 { // whoever has the lane next must not take it for silent
		h.Silent = 0
		d.version++
	}
	h.Limit, h.Lasts, h.Region, h.heard, h.echo, h.read = k.Limit, max(h.Lasts, k.Lasts), c.From, now, c.SentAt, false
	h.want, h.bound = k.Want, k.Bound
	if len(k.Ends) > 0 && h.Out() > 0 {
		d.end(h, k.Ends, min(h.Lasts, a.bound()), a.cfg.Lease, now, a.cfg.Token)
	}
	return h, true
}

// grant gives what there is to those who want it, and returns what others than asker
// are to hear of. What it changed has to be in the log before anybody hears.
func (a *Authority) grant(l *lane, d *deposit, asker *holding, changed map[deltasync.Key]*deposit, now time.Duration) (told []*telling) {
	if a.quarantined(l, d, asker.Lasts, now) {
		return nil
	}
	before := d.out()
	granted, wanted := d.award(a.cfg.Edges(), a.cfg.Lease, now)
	a.stats.granted.Add(crdt.SatSub(d.out(), before))
	for _, h := range granted {
		changed[d.key] = d
		if h != asker { // it wants some, so it has said something
			told = append(told, &telling{h.Region, deltasync.Grant{Key: d.key, Holder: h.Holder, Granted: h.Granted, Target: h.Granted - h.Returned, Echo: h.echo}})
		}
	}
	if d.wanted = wanted; wanted != none && !d.listed {
		d.listed = true
		l.short = append(l.short, d.key) // it leaves with the next push, where nothing is wanted any more
	}
	return told
}

// Push is what the edges of a region are to hear.
type Push struct {
	Region  string
	Subject string
	Payload []byte
}

// Pushes is what edges are to hear unasked: what they were granted, and that they
// should return what others need. Call it every Config.Urgent.
func (a *Authority) Pushes() (out []Push) {
	now := a.cfg.Boot()
	for i := range a.lanes {
		out = a.pushesOf(i, now, out)
	}
	return out
}

func (a *Authority) pushesOf(lane int, now time.Duration, out []Push) []Push {
	l := &a.lanes[lane]
	l.mu.Lock()
	tell := l.tell
	l.tell = nil
	if l.token == 0 {
		tell = nil
	}
	kept := l.short[:0]
	for _, key := range l.short {
		d := l.keys[key]
		if d == nil {
			continue
		}
		if d.wanted == none {
			d.listed = false
			continue
		}
		kept = append(kept, key)
		if now-d.pushed < a.cfg.Interval {
			continue
		}
		d.pushed = now
		limit := d.limit()
		parts, isScarce := d.parts(limit, a.cfg.Edges(), a.cfg.Lease, now)
		wanted, over := false, d.out() > limit
		for i, h := range d.holdings {
			wanted = wanted || h.wants(now) > h.Out()
			target, recall := d.target(i, parts, isScarce, over, now)
			if recall = recall && h.Out() > target; !recall && h.silent(now) {
				recall = true
				h.ask(now)
			}
			if recall && h.echo != 0 {
				tell = append(tell, &telling{h.Region, deltasync.Grant{
					Key: key, Holder: h.Holder, Target: target, Echo: h.echo, Flags: deltasync.GrantRecall, // what was granted may not be in the log yet
				}})
			}
		}
		if !wanted && !over { // whoever wanted some is not heard of any more
			d.wanted, d.listed, kept = none, false, kept[:len(kept)-1]
		}
	}
	l.short = kept
	log := l.log
	l.mu.Unlock()
	byRegion := map[string]*deltasync.Grants{}
	flush := func(region string) {
		g := byRegion[region]
		b, err := g.AppendBinary(nil)
		if err != nil { // our own bug
			a.cfg.Logger.Error("grants dropped", "err", err)
		} else {
			out = append(out, Push{Region: region, Subject: deltasync.GrantSubject(region, lane), Payload: b})
		}
		delete(byRegion, region)
	}
	for _, t := range tell {
		g := byRegion[t.region]
		if g == nil {
			g = &deltasync.Grants{Region: a.cfg.Region, Lane: lane, Status: deltasync.StatusOK, Lease: a.cfg.Lease, Log: log}
			byRegion[t.region] = g
		}
		if g.Grants = append(g.Grants, t.grant); len(g.Grants) == deltasync.MaxClaims {
			flush(t.region)
		}
	}
	for _, region := range a.regions {
		if byRegion[region] != nil {
			flush(region)
		}
	}
	return out
}
