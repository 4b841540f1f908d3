package edge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

var sparseSeeds = flag.Uint64("sparse.seeds", 100, "seeds of TestSparseRecordsChangeNothing")

// twins are a node whose records may be sparse and one that has none, which go
// through the same.
type twins struct {
	t     *testing.T
	rnd   *rand.Rand
	step  int
	now   int64
	nodes [2]*Node
	reqs  [2]*limit.Request
	sets  int
	spec  limit.RuleSpec
	users []string
	given []limit.Charge
	out   []Outgoing // not answered yet
	epoch uint64

	refuses bool // the region turns counts away, now and then

	sparse, whole, evicted, resent int // how often it was seen
}

func newTwins(t *testing.T, seed uint64) *twins {
	w := &twins{t: t, rnd: rand.New(rand.NewPCG(seed, 23)), now: start.UnixNano(), epoch: 2, refuses: seed%3 > 0}
	w.spec = w.rule()
	for i := range w.nodes {
		cfg, dice := Config{Region: "eu", Pop: "fra", Name: "e1", Secret: testSecret, Lanes: 1, Incarnation: 1}, rand.New(rand.NewPCG(seed, 5))
		if cfg.Rand = dice.Float64; seed%2 == 0 {
			cfg.View = mapView{}
		}
		n, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.nodes[i] = n
	}
	w.nodes[1].stout = true
	w.setRules()
	few := w.rnd.IntN(2) == 0
	w.users = neighbours(w.nodes[0], 6) // which compete for places, or not
	for _, n := range w.nodes {
		if s := n.shard(keyOf(n, w.users[0])); few {
			s.max = 4 * len(w.spec.Rates)
		}
	}
	for i := range 4 {
		w.users = append(w.users, fmt.Sprint("far", i))
	}
	return w
}

func (w *twins) rule() limit.RuleSpec {
	rnd := w.rnd
	r := perUser()
	for k := range 1 + rnd.IntN(2) {
		per, most := []time.Duration{1200 * time.Millisecond, 6 * time.Second, time.Minute}[rnd.IntN(3)], 1+rnd.Uint64N(30)
		spec := []limit.RateSpec{
			{Limit: most, Per: per, Algorithm: "fixed_window"},
			{Limit: most, Per: per, Algorithm: "sliding_window"},
			{Limit: most, Per: per},
			{Limit: most, Per: per, Slices: 1 + rnd.IntN(6), Oldest: "full"},
			{Algorithm: "concurrency", Limit: most, Lease: per},
			{Algorithm: "token_bucket", Capacity: most, Refill: limit.Flow{Units: most, Per: per}},
		}[rnd.IntN(6)]
		spec.Name = fmt.Sprint("q", k)
		spec.Scope = []string{"", "", "region", "edge"}[rnd.IntN(4)]
		r.Rates = append(r.Rates, spec)
	}
	switch rnd.IntN(8) {
	case 0:
		r.Penalty.For = time.Duration(1+rnd.IntN(3000)) * time.Millisecond
	case 1:
		r.Margin.Elastic = limit.ElasticSpec{UpToPercent: 60, While: "capacity.api < 50%"}
	case 2:
		r.Margin.SoftPercent, r.Drop = 50, "probabilistic"
	case 3:
		if !slices.ContainsFunc(r.Rates, func(rate limit.RateSpec) bool { return rate.Lease > 0 || rate.Capacity > 0 }) {
			r.Charge = "each"
		}
	case 4:
		r.Mode = "shadow"
	}
	return r
}

// setRules puts the rule in force, after the first time with other limits.
func (w *twins) setRules() {
	spec := w.spec
	spec.Rates = append([]limit.RateSpec(nil), spec.Rates...)
	if w.sets > 0 {
		for k := range spec.Rates {
			if r := &spec.Rates[k]; r.Limit > 0 && w.rnd.IntN(2) == 0 {
				r.Limit = 1 + w.rnd.Uint64N(30)
			}
		}
	}
	w.sets++
	for i, n := range w.nodes {
		n.SetRules(compile(w.t, spec))
		w.reqs[i] = n.Rules().Only().NewRequest()
	}
}

// both compares what the twins say.
func both[T any](w *twins, what string, do func(n *Node, req *limit.Request) T) T {
	w.t.Helper()
	a, b := do(w.nodes[0], w.reqs[0]), do(w.nodes[1], w.reqs[1])
	if !reflect.DeepEqual(a, b) {
		w.t.Fatalf("step %d at %v, %s: %+v with sparse records, %+v without", w.step, time.Duration(w.now-start.UnixNano()), what, a, b)
	}
	return a
}

func (w *twins) at() time.Time { return time.Unix(0, w.now) }

// ask has both decide the same, or book it.
func (w *twins) ask() {
	user, cost := w.users[w.rnd.IntN(len(w.users))], w.rnd.Uint64N(1+w.rnd.Uint64N(5))
	peek, details, kind := w.rnd.IntN(12) == 0, w.rnd.IntN(8) == 0, w.rnd.IntN(40)
	other := uint64(0)
	if w.rnd.IntN(10) == 0 { // the request names another limit
		other = 1 + w.rnd.Uint64N(40)
	}
	what := fmt.Sprintf("kind %d of %s, cost %d, peek %t, limit %d", kind, user, cost, peek, other)
	d := both(w, what, func(n *Node, req *limit.Request) limit.Decision {
		req.Reset()
		req.Set("user", user)
		req.Cost, req.Peek, req.Details, req.Receipt = cost, peek, details, kind > 20
		if other > 0 {
			req.Override("api.q0", other)
		}
		switch kind {
		case 0:
			return n.Report(w.at(), req)
		case 1:
			n.GiveBack(w.at(), req)
			return limit.Decision{}
		case 2, 3, 4:
			return n.CheckBatch(w.at(), []*limit.Request{req}, nil)[0]
		}
		return n.Check(w.at(), req)
	})
	if both(w, what+": states", func(_ *Node, req *limit.Request) []limit.State { return req.States }); kind < 5 || !d.Allowed {
		return
	}
	w.given = append(w.given, both(w, what+": charges", func(_ *Node, req *limit.Request) []limit.Charge {
		return append([]limit.Charge(nil), req.Charges...)
	})...)
}

func (w *twins) giveBack() {
	if len(w.given) == 0 {
		return
	}
	i, renew, part := w.rnd.IntN(len(w.given)), w.rnd.IntN(2) == 0, w.rnd.Uint64N(3)
	w.given[i] = both(w, "giving back", func(n *Node, _ *limit.Request) limit.Charge {
		c := []limit.Charge{w.given[i]}
		if renew {
			n.Renew(w.at(), c)
		} else {
			n.Refund(w.at(), c, part)
		}
		return c[0]
	})
}

func (w *twins) flush() {
	var deltas [2][]string
	var heards [2][]crdt.Slice
	for k, n := range w.nodes {
		out := n.Flush(w.at())
		for _, o := range out {
			for _, sec := range frameOf(w.t, o).Sections {
				for _, d := range sec.Deltas {
					heards[k] = append(heards[k], d.Heard)
					d.Heard = 0 // of a sparse record nothing was heard
					deltas[k] = append(deltas[k], fmt.Sprintf("frame %d, life %d, %v: %+v", o.Seq, sec.Life, sec.Shape, d))
				}
			}
		}
		if k == 0 {
			w.out = append(w.out, out...)
		}
	}
	for i := range max(len(deltas[0]), len(deltas[1])) {
		get := func(k int) string {
			if i < len(deltas[k]) {
				return deltas[k][i]
			}
			return "nothing"
		}
		if a, b := get(0), get(1); a != b {
			w.t.Fatalf("step %d at %v, delta %d: %s with sparse records, %s without", w.step, time.Duration(w.now-start.UnixNano()), i, a, b)
		}
		if a, b := heards[0][i], heards[1][i]; a != 0 && b != 0 && a != b { // what was answered to a former life that was sparse is all
			w.t.Fatalf("step %d, delta %d: heard in slice %d with sparse records, in %d without", w.step, i, a, b)
		}
	}
}

func frameOf(t *testing.T, o Outgoing) *deltasync.Up {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(o.Payload); err != nil {
		t.Fatal(err)
	}
	return &up
}

// totals are what others counted: mostly nothing.
func (w *twins) totals() (t deltasync.Totals) {
	slice := func() crdt.Slice {
		r := w.rate()
		return r.SliceAt(w.now) - crdt.Slice(w.rnd.IntN(4)) + crdt.Slice(w.rnd.IntN(2))
	}
	switch w.rnd.IntN(16) {
	case 0:
		t.Peers = []crdt.Cell{{Slice: slice(), Charges: 1 + w.rnd.Uint64N(9)}}
	case 1:
		t.Others = []crdt.Cell{{Slice: slice(), Charges: 1 + w.rnd.Uint64N(9), Refunds: w.rnd.Uint64N(3)}}
	case 2: // of long ago
		t.Peers = []crdt.Cell{{Slice: slice() - 1000, Charges: 1}}
	case 3:
		t.Until = w.now + w.rnd.Int64N(int64(2*time.Second))
	}
	return t
}

func (w *twins) rate() *limit.Rate {
	rates := w.nodes[0].Rules().Rules()[0].Rates
	return rates[w.rnd.IntN(len(rates))]
}

// answer answers, or loses, a frame.
func (w *twins) answer() {
	if len(w.out) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.out))
	o := w.out[i]
	w.out = append(w.out[:i], w.out[i+1:]...)
	if w.rnd.IntN(5) == 0 {
		for _, n := range w.nodes {
			n.Lost(w.at(), o.Lane, o.Seq)
		}
		return
	}
	up := frameOf(w.t, o)
	if w.rnd.IntN(60) == 0 {
		w.epoch++
	}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: w.epoch - w.rnd.Uint64N(2), LiveRegions: 1 + w.rnd.IntN(200)}
	// Not both in one run: a sparse record that was turned away passes for told
	// some seconds earlier, so that more is sent again for a store that was away.
	refuse := w.refuses && w.rnd.IntN(6) == 0
	if refuse {
		down.Status = deltasync.StatusOverloaded
	} else if !w.refuses && w.rnd.IntN(6) == 0 {
		down.Status = deltasync.StatusStoreDown
	}
	short, i := w.rnd.IntN(10) == 0, 0
	for si := range up.Sections {
		for _, d := range up.Sections[si].Deltas {
			if d.Flags&deltasync.FlagRefresh != 0 {
				w.resent++
			}
			if refuse && w.rnd.IntN(2) == 0 {
				down.Refused = append(down.Refused, uint32(i))
			}
			if i++; !short || i < 3 {
				down.Totals = append(down.Totals, w.totals())
			}
		}
	}
	payload, err := down.AppendBinary(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	both(w, "reply", func(n *Node, _ *limit.Request) error { return n.Receive(w.at(), o.Lane, payload) })
}

func (w *twins) push() {
	rate, user := w.rate(), w.users[w.rnd.IntN(len(w.users))]
	key := keyFor(w.nodes[0], "user", user, slices.Index(w.nodes[0].Rules().Rules()[0].Rates, rate))
	hot := deltasync.Hot{Region: "eu", LiveRegions: 2, Sections: []deltasync.HotSection{{
		Shape: shapeOf(rate), Keys: []deltasync.HotKey{{Key: key, Totals: w.totals()}},
	}}}
	payload, err := hot.AppendBinary(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	both(w, "push", func(n *Node, _ *limit.Request) error { return n.ReceiveHot(w.at(), payload) })
}

func (w *twins) beliefs(n *Node, user string) []Belief {
	req := n.Rules().Only().NewRequest()
	req.Set("user", user)
	return n.Inspect(w.at(), req)
}

// compare holds everything else that the twins say against each other.
func (w *twins) compare() {
	for _, user := range w.users {
		both(w, "belief of "+user, func(n *Node, _ *limit.Request) []Belief { return w.beliefs(n, user) })
	}
	both(w, "keys", func(n *Node, _ *limit.Request) int { return n.Keys() })
	if both(w, "unsent keys", func(n *Node, _ *limit.Request) int { return n.unsent() }) == 0 {
		both(w, "next refresh", func(n *Node, _ *limit.Request) time.Time {
			if next := n.NextRefresh(); next.IsZero() || next.After(w.at()) {
				return next
			}
			return w.at() // due is due
		})
	}
	st := both(w, "stats", func(n *Node, _ *limit.Request) Stats {
		s := n.Stats(w.at())
		s.BytesSent = 0 // one says of more keys what it heard
		return s
	})
	w.evicted = int(st.Evicted + st.EvictedLost)
	if v, ok := w.nodes[0].cfg.View.(mapView); ok && !reflect.DeepEqual(v, w.nodes[1].cfg.View) {
		w.t.Fatalf("step %d: views are %v with sparse records, %v without", w.step, v, w.nodes[1].cfg.View)
	}
	for k, n := range w.nodes {
		for i := range n.shards {
			s := &n.shards[i]
			weight, shares := 0, map[*block]int{}
			for j := range s.table {
				switch r := &s.table[j]; {
				case r.key == 0:
				case r.sparse():
					w.sparse++
					weight += reservedWeight
					shares[r.block]++
					if k == 1 || r.block.own.Len()+r.block.others.Len() > 0 || r.block.denied.cost > 0 || r.block.unsent != nothing {
						w.t.Fatalf("step %d: a sparse record of node %d, common block %+v", w.step, k, *r.block)
					}
				default:
					w.whole++
					weight += int(r.block.weight)
				}
			}
			for _, b := range s.commons {
				if b != nil {
					shares[b]++
				}
			}
			for b, want := range shares {
				if weight += int(b.weight); int(b.life) != want {
					w.t.Fatalf("step %d: a common block counts %d shares, want %d", w.step, b.life, want)
				}
			}
			if s.weight != weight {
				w.t.Fatalf("step %d: shard %d weighs %d, want %d", w.step, i, s.weight, weight)
			}
		}
	}
}

// next does one thing.
func (w *twins) next() {
	switch w.rnd.IntN(40) {
	case 0:
		w.now += w.rnd.Int64N(90_000) * int64(time.Millisecond)
	case 1:
		if w.rnd.IntN(10) == 0 { // a clock is set back
			w.now -= w.rnd.Int64N(3_000) * int64(time.Millisecond)
		}
	case 2, 3, 4:
		w.flush()
	case 5, 6, 7, 8:
		w.answer()
	case 9:
		w.push()
	case 10, 11:
		w.giveBack()
	case 12:
		if w.rnd.IntN(5) == 0 {
			w.setRules()
		}
	case 13:
		for _, n := range w.nodes {
			if err := n.SetCapacity(w.at(), "api", float64(w.step%2), time.Hour); err != nil {
				w.t.Fatal(err)
			}
		}
	case 14, 15, 16:
		for range 10 {
			for _, n := range w.nodes {
				n.Tick(w.at())
			}
		}
	case 17:
		for _, n := range w.nodes {
			n.tellOwed(w.at())
		}
	default:
		w.now += w.rnd.Int64N(300) * int64(time.Millisecond)
		w.ask()
	}
}

// A node that keeps records sparse decides, tells and believes to the last bit
// what one does that has none, whatever becomes of them.
func TestSparseRecordsChangeNothing(t *testing.T) {
	alone.Mark(t)
	var all twins
	for seed := range *sparseSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newTwins(t, seed)
			for w.step = range 1500 {
				w.next()
				if w.step%10 == 0 {
					w.compare()
				}
			}
			all.sparse, all.whole = all.sparse+w.sparse, all.whole+w.whole
			all.evicted, all.resent = all.evicted+w.evicted, all.resent+w.resent
		})
	}
	if *sparseSeeds >= 20 && (all.sparse == 0 || all.whole == 0 || all.evicted == 0 || all.resent == 0) {
		t.Errorf("%d sparse records and %d whole ones were seen, %d forgotten, %d resent: want some of each", all.sparse, all.whole, all.evicted, all.resent)
	}
	t.Logf("%d sparse, %d whole, %d forgotten, %d resent", all.sparse, all.whole, all.evicted, all.resent)
}

// What most keys go through leaves their records sparse.
func TestRecordsStaySparse(t *testing.T) {
	fixed := limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}
	n := newNode(t, Config{}, perUser(fixed))
	s, key := n.shard(keyOf(n, "u")), keyOf(n, "u")
	at := start
	for round := range 5 {
		for range 2 {
			if d := check(n, at, "u"); !d.Allowed || d.Basis.Merged != 0 || d.Basis.Local > 4 {
				t.Fatalf("round %d: %+v, want it allowed by its own charges", round, d)
			}
			up := upOf(t, n.Flush(at))
			answer(t, n, at, up, deltasync.Totals{})
		}
		for range 10 {
			n.Tick(at)
		}
		at = at.Add(11 * time.Second) // due for a refresh
		for range 10 {
			n.Tick(at)
		}
		up := upOf(t, n.Flush(at))
		if up.Sections[0].Deltas[0].Flags&deltasync.FlagRefresh == 0 {
			t.Fatalf("round %d: %+v, want a refresh", round, up.Sections[0].Deltas[0])
		}
		answer(t, n, at, up, deltasync.Totals{})
		if r := s.find(key); r == nil || !r.sparse() {
			t.Fatalf("round %d: the record is %+v, want it sparse", round, r)
		}
		check(n, at, "u")
		at = at.Add(time.Minute) // the same key in the next window
	}
}

// A sparse record cannot tell how long ago it was sent where that is months.
func TestLongWindowsHaveBlocks(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Period: "year"}))
	check(n, start, "u")
	n.Flush(start)
	if r := n.shard(keyOf(n, "u")).find(keyOf(n, "u")); r.sparse() || r.sentAt() != start.UnixNano() {
		t.Fatalf("sparse %t, sent at %v, want a block and %v", r.sparse(), time.Unix(0, r.sentAt()).UTC(), start)
	}
	for range 10 {
		n.Tick(start.Add(59 * 24 * time.Hour))
	}
	for _, o := range n.Flush(start.Add(59 * 24 * time.Hour)) {
		if len(frameOf(t, o).Sections) > 0 {
			t.Fatal("counts are sent again before they are due")
		}
	}
}
