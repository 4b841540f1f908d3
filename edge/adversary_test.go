package edge

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// The adversary drives two regions of two edges over a network that loses,
// delays, doubles and reorders, with clocks 20 ms apart, eviction, rule changes
// and regions that forget. After every step no edge may believe more of any
// slice than was charged in truth; after the faults have stopped, in the tests
// that demand it, all must agree on exactly that.

var adversarySeeds = flag.Int("adversary.seeds", 0, "seeds of each adversary test; 0: a few")

// scenario is what the adversary may do.
type scenario struct {
	seeds     int
	evicts    bool // three keys compete for one place
	drains    bool // every charge reaches the outbox before its key can be evicted
	converges bool
	busy      bool // keys go on being charged after the faults
	fault     func(*advWorld, *advRegion)
}

func TestAdversaryEvicts(t *testing.T) {
	alone.Mark(t)
	scenario{seeds: 12, evicts: true}.run(t)
}

func TestAdversaryEvictsWhatWasSent(t *testing.T) {
	alone.Mark(t)
	scenario{seeds: 8, evicts: true, drains: true, converges: true}.run(t)
}

func TestAdversaryRestartsAggregators(t *testing.T) {
	alone.Mark(t)
	scenario{seeds: 8, converges: true, busy: true, fault: (*advWorld).restart}.run(t)
}

func TestAdversaryWipesStores(t *testing.T) {
	alone.Mark(t)
	scenario{seeds: 8, converges: true, busy: true, fault: (*advWorld).wipe}.run(t)
}

func TestAdversaryLosesRegions(t *testing.T) {
	alone.Mark(t)
	scenario{seeds: 8, converges: true, busy: true, fault: func(w *advWorld, r *advRegion) {
		w.wipe(r)
		w.restart(r)
	}}.run(t)
}

func (sc scenario) run(t *testing.T) {
	if *adversarySeeds > 0 {
		sc.seeds = *adversarySeeds
	}
	for seed := range sc.seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newAdvWorld(t, sc, uint64(seed))
			w.replay = fmt.Sprintf("go test ./edge -run '^%s$' -adversary.seeds=%d", t.Name(), seed+1)
			for range 1500 {
				w.step()
			}
			if sc.converges {
				w.settle()
			}
		})
	}
}

// advWorld is the whole system on one virtual clock.
type advWorld struct {
	scenario
	t       *testing.T
	replay  string
	rnd     *rand.Rand
	now     time.Time
	faulty  bool
	rate    limit.RateSpec
	regions [2]*advRegion
	nodes   []*advNode
	users   []string
	keys    map[string]deltasync.Key
	truth   map[string]map[crdt.Slice]uint64 // of each user, all that was admitted
	queue   []advMessage
	waits   []*advWait
}

type advRegion struct {
	name        string
	agg         *regional.Aggregator
	store       *memstore.Store
	incarnation uint64
	nodes       []*advNode
	peer        *advRegion
}

type advNode struct {
	*Node
	region *advRegion
	own    map[string]map[crdt.Slice]uint64 // what it admitted itself
}

// advMessage is under way until at.
type advMessage struct {
	at      time.Time
	deliver func()
}

// advWait is a request without an answer so far.
type advWait struct {
	deadline time.Time
	answered bool
	lost     func()
}

// mapView keeps all that it is given.
type mapView map[deltasync.Key]Totals

func (m mapView) Get(k deltasync.Key) Totals                     { return m[k] }
func (m mapView) Set(k deltasync.Key, v Totals, _ time.Duration) { m[k] = v }
func (m mapView) Close()                                         {}

func newAdvWorld(t *testing.T, sc scenario, seed uint64) *advWorld {
	rnd := rand.New(rand.NewPCG(seed, 7))
	w := &advWorld{
		scenario: sc, t: t, rnd: rnd, faulty: true, now: start.Add(time.Duration(rnd.IntN(10000)) * time.Millisecond),
		rate: limit.RateSpec{Name: "m", Per: 4 * time.Second, Algorithm: []string{"sub_windows", "fixed_window", "sliding_window"}[rnd.IntN(3)]},
		keys: map[string]deltasync.Key{}, truth: map[string]map[crdt.Slice]uint64{},
	}
	if sc.converges {
		w.rate.Per = time.Minute
	}
	eu, us := &advRegion{name: "eu"}, &advRegion{name: "us"}
	eu.peer, us.peer = us, eu
	w.regions = [2]*advRegion{eu, us}
	for i, r := range w.regions {
		r.store = memstore.New(memstore.Config{Now: func() time.Time { return w.now }, Seed: seed*2 + uint64(i) + 1})
		w.restart(r)
		for _, name := range []string{"e1", "e2"} {
			w.join(r, name, sc.evicts)
		}
	}
	w.pickUsers()
	return w
}

// rules have a limit that denies now and then, or one that never does.
func (w *advWorld) rules() *limit.Set {
	w.rate.Limit = uint64(10 + w.rnd.IntN(30))
	if w.converges {
		w.rate.Limit *= 100
	}
	return compile(w.t, perUser(w.rate))
}

func (w *advWorld) join(r *advRegion, name string, evicts bool) *advNode {
	n, err := New(Config{
		Region: r.name, Pop: "p", Name: name, Secret: testSecret, Lanes: 1,
		Incarnation: uint64(start.UnixMilli()), View: mapView{},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.SetRules(w.rules())
	if evicts {
		for i := range n.shards {
			n.shards[i].max = 1
		}
	}
	node := &advNode{Node: n, region: r, own: map[string]map[crdt.Slice]uint64{}}
	w.nodes, r.nodes = append(w.nodes, node), append(r.nodes, node)
	return node
}

// pickUsers finds six users whose keys stand three by three in one shard.
func (w *advWorld) pickUsers() {
	byShard := map[uint64][]string{}
	for i := 0; len(w.users) < 6; i++ {
		user := fmt.Sprint("u", i)
		req := w.nodes[0].Rules().Only().NewRequest()
		req.Set("user", user)
		var room [4]counter
		key := w.nodes[0].counters(start.UnixNano(), req, req.Rules(), room[:0])[0].key
		w.keys[user], w.truth[user] = key, map[crdt.Slice]uint64{}
		at := uint64(key) >> 56
		if byShard[at] = append(byShard[at], user); len(byShard[at]) == 3 {
			w.users = append(w.users, byShard[at]...)
		}
	}
}

// restart puts a new aggregator over the region's store.
func (w *advWorld) restart(r *advRegion) {
	r.incarnation++
	agg, err := regional.New(regional.Config{
		Region: r.name, Name: "a", Peers: []string{r.peer.name}, Lanes: 1, Incarnation: r.incarnation, StoreTimeout: time.Second,
	}, r.store)
	if err != nil {
		w.t.Fatal(err)
	}
	r.agg = agg
	w.sync(r)
}

func (w *advWorld) wipe(r *advRegion) { r.store.Wipe() }

func (w *advWorld) sync(r *advRegion) {
	if err := r.agg.Sync(context.Background(), w.now); err != nil {
		w.failf("Sync: %v", err)
	}
}

// failf ends the test with the command that replays it.
func (w *advWorld) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s, at %v: %s\nreplay: %s", w.rate.Algorithm, w.now.Sub(start), fmt.Sprintf(format, args...), w.replay)
}

// jittered is the time by a clock that is 20 ms off at most.
func (w *advWorld) jittered() time.Time {
	if !w.faulty {
		return w.now
	}
	return w.now.Add(time.Duration(w.rnd.IntN(41)-20) * time.Millisecond)
}

func (w *advWorld) step() {
	n := w.nodes[w.rnd.IntN(len(w.nodes))]
	switch k := w.rnd.IntN(100); {
	case k < 45:
		w.request(n, w.users[w.rnd.IntN(len(w.users))])
	case k < 60:
		w.flush(n)
	case k < 75:
		w.export(n.region)
	case k < 85:
		n.Tick(w.jittered())
	case k < 90:
		n.region.agg.Tick(w.now)
		w.sync(n.region)
	case k < 91:
		if w.fault != nil {
			w.fault(w, n.region)
		}
	case k < 92:
		n.SetRules(w.rules())
	default:
		w.now = w.now.Add(time.Duration(w.rnd.IntN(60)) * time.Millisecond)
	}
	w.deliver()
	for _, n := range w.nodes {
		for _, user := range w.users {
			w.verify(n, user)
		}
	}
}

// request asks for one unit, or peeks, and books what was admitted.
func (w *advWorld) request(n *advNode, user string) {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Peek = w.rnd.IntN(10) == 0
	if d := n.Check(w.jittered(), req); d.Allowed && !req.Peek {
		slice := n.shard(w.keys[user]).find(w.keys[user]).block.slice
		w.truth[user][slice]++
		if n.own[user] == nil {
			n.own[user] = map[crdt.Slice]uint64{}
		}
		n.own[user][slice]++
	}
	if w.drains {
		w.flush(n)
	}
}

// flush sends what an edge has to tell to the aggregator that serves when the
// frame arrives.
func (w *advWorld) flush(n *advNode) {
	flush := n.Flush
	if w.drains {
		flush = n.flushAll
	}
	for _, o := range flush(w.jittered()) {
		wait := w.await(250*time.Millisecond, func() { n.Lost(w.jittered(), o.Lane, o.Seq) })
		w.send(func() {
			reply := n.region.agg.Handle(context.Background(), w.now, o.Subject, o.Payload)
			w.send(func() {
				if err := n.Receive(w.jittered(), o.Lane, reply); err != nil {
					w.failf("Receive: %v", err)
				}
				wait.answered = true
			})
		})
	}
}

// export sends what a region has to tell, to its peer and to its edges.
func (w *advWorld) export(r *advRegion) {
	agg := r.agg
	for _, o := range agg.Exports(w.jittered()) {
		wait := w.await(time.Second, func() { agg.Lost(w.now, o) })
		w.send(func() {
			reply := r.peer.agg.Handle(context.Background(), w.now, o.Subject, o.Payload)
			w.send(func() {
				if err := agg.Receive(w.now, o, reply); err != nil {
					w.failf("Receive of a region: %v", err)
				}
				wait.answered = true
			})
		})
	}
	for _, p := range agg.Pushes(w.now) {
		for _, n := range r.nodes {
			w.send(func() {
				if err := n.ReceiveHot(w.jittered(), p.Payload); err != nil {
					w.failf("ReceiveHot: %v", err)
				}
			})
		}
	}
}

// send loses one message in six, delays the others by up to 150 ms, some by
// three seconds, and doubles one in six; without faults it takes a millisecond.
func (w *advWorld) send(deliver func()) {
	if !w.faulty {
		w.queue = append(w.queue, advMessage{w.now.Add(time.Millisecond), deliver})
		return
	}
	if w.rnd.IntN(6) == 0 {
		return
	}
	delay := time.Duration(w.rnd.IntN(150)) * time.Millisecond
	if w.rnd.IntN(10) == 0 {
		delay += 3 * time.Second
	}
	w.queue = append(w.queue, advMessage{w.now.Add(delay), deliver})
	if w.rnd.IntN(6) == 0 {
		again := time.Duration(w.rnd.IntN(1000)) * time.Millisecond
		w.queue = append(w.queue, advMessage{w.now.Add(again), deliver})
	}
}

func (w *advWorld) await(timeout time.Duration, lost func()) *advWait {
	wait := &advWait{deadline: w.now.Add(timeout), lost: lost}
	w.waits = append(w.waits, wait)
	return wait
}

// deliver brings what is due and gives up what was not answered.
func (w *advWorld) deliver() {
	due, waits := w.queue, w.waits
	w.queue, w.waits = nil, nil
	for _, m := range due {
		if m.at.After(w.now) {
			w.queue = append(w.queue, m)
		} else {
			m.deliver()
		}
	}
	for _, wait := range waits {
		switch {
		case wait.answered:
		case w.now.After(wait.deadline):
			wait.lost()
		default:
			w.waits = append(w.waits, wait)
		}
	}
}

// verify holds what an edge believes against the truth: never more, and, where
// nothing is evicted, never less than it admitted itself.
func (w *advWorld) verify(n *advNode, user string) {
	key := w.keys[user]
	r := n.shard(key).find(key)
	cells := n.cfg.View.Get(key).Cells
	believed := map[crdt.Slice]uint64{}
	if r != nil {
		cells = counted(r)
	}
	for _, c := range cells {
		believed[c.Slice] = c.Charges
		if truth := w.truth[user][c.Slice]; c.Charges > truth {
			w.failf("%s/%s believes %d of %s in slice %d, truth %d", n.region.name, n.cfg.Name, c.Charges, user, c.Slice, truth)
		}
	}
	if w.evicts || r == nil {
		return
	}
	reach := r.block.rate.Reach(w.now.Add(25 * time.Millisecond).UnixNano())
	for slice, hits := range n.own[user] {
		if slice >= reach && believed[slice] < hits {
			w.failf("%s/%s believes %d of %s in slice %d, own hits %d", n.region.name, n.cfg.Name, believed[slice], user, slice, hits)
		}
	}
}
