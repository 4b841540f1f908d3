package world

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// pair is a node and its aggregator, joined by hand.
type pair struct {
	t     *testing.T
	now   time.Time
	agg   *regional.Aggregator
	store *gate
	sent  int
	lost  int
}

// gate is a store that can be shut.
type gate struct {
	*memstore.Store
	shut bool
}

func (g *gate) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if g.shut {
		return nil, fmt.Errorf("%w: shut", regional.ErrStore)
	}
	return g.Store.Merge(ctx, batch)
}

// shutStore has the region find its store away.
func (p *pair) shutStore() {
	p.t.Helper()
	p.store.shut = true
	if err := p.agg.Sync(context.Background(), p.now); err == nil {
		p.t.Fatal("Sync with the store shut: no error")
	}
}

func (g *gate) Epoch(ctx context.Context) (uint64, error) {
	if g.shut {
		return 0, fmt.Errorf("%w: shut", regional.ErrStore)
	}
	return g.Store.Epoch(ctx)
}

func (g *gate) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	if g.shut {
		return nil, fmt.Errorf("%w: shut", regional.ErrStore)
	}
	return g.Store.Load(ctx, keys)
}

func newPair(t *testing.T, cfg regional.Config, store memstore.Config) *pair {
	t.Helper()
	p := &pair{t: t, now: start}
	p.restart(cfg, store)
	return p
}

// restart gives the region a new aggregator over a new store.
func (p *pair) restart(cfg regional.Config, store memstore.Config) {
	p.t.Helper()
	cfg.Region, cfg.Name, cfg.Lanes = "eu", "a", 1
	store.Now = func() time.Time { return p.now }
	p.store = &gate{Store: memstore.New(store)}
	agg, err := regional.New(cfg, p.store)
	if err != nil {
		p.t.Fatal(err)
	}
	p.agg = agg
	if err := agg.Sync(context.Background(), p.now); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) node(name string, rates ...limit.RateSpec) *edge.Node {
	p.t.Helper()
	return p.nodeOf(name, rules(rates...)...)
}

func (p *pair) nodeOf(name string, docs ...limit.Document) *edge.Node {
	p.t.Helper()
	n, err := edge.New(edge.Config{Region: "eu", Pop: "p", Name: name, Secret: secret, Lanes: 1, Incarnation: uint64(start.UnixMilli())})
	if err != nil {
		p.t.Fatal(err)
	}
	set, problems := limit.Compile(docs...)
	if set == nil {
		p.t.Fatal(problems)
	}
	n.SetRules(set)
	return n
}

func hit(n *edge.Node, now time.Time, user string) limit.Decision {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Check(now, req)
}

func belief(n *edge.Node, now time.Time, user string) uint64 {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Inspect(now, req)[0].Total
}

// pump does one flush of a node whose clock is ahead by skew.
func (p *pair) pump(n *edge.Node, skew time.Duration) {
	at := p.now.Add(skew)
	for _, o := range n.Flush(at) {
		p.sent++
		reply := p.agg.Handle(context.Background(), p.now, o.Subject, o.Payload)
		if reply == nil || n.Receive(at, o.Lane, reply) != nil {
			p.lost++
			n.Lost(at, o.Lane, o.Seq)
		}
	}
	n.Tick(at)
}

// TestRepliesLargerThanAFrame: thousands of keys with full windows elsewhere,
// all asked for at once. No reply is dropped, and all is heard in the end.
func TestRepliesLargerThanAFrame(t *testing.T) {
	p := newPair(t, regional.Config{}, memstore.Config{})
	rate := limit.RateSpec{Limit: 100000, Per: time.Minute}
	old, fresh := p.node("e1", rate), p.node("e2", rate)
	const keys, slices = 3000, 40
	for range slices {
		for i := range keys {
			hit(old, p.now, fmt.Sprint("u", i))
		}
		for range 15 {
			p.pump(old, 0)
			p.now = p.now.Add(100 * time.Millisecond)
		}
	}
	for i := range keys {
		hit(fresh, p.now, fmt.Sprint("u", i))
	}
	p.sent, p.lost = 0, 0
	for range 20 {
		p.pump(fresh, 0)
		p.now = p.now.Add(20 * time.Millisecond)
	}
	if p.lost > 0 || p.sent == 0 {
		t.Errorf("%d of %d frames lost, want none", p.lost, p.sent)
	}
	for i := range keys {
		if got := belief(fresh, p.now, fmt.Sprint("u", i)); got < slices {
			t.Fatalf("0.4 s after it touched %d keys the new edge believes %d of key %d, want at least the other's %d", keys, got, i, slices)
		}
	}
}

// TestBusyKeyIsSentInFullAgain: a region that lost all has everything back
// within a few seconds, of a key that is charged all the time too.
func TestBusyKeyIsSentInFullAgain(t *testing.T) {
	p := newPair(t, regional.Config{Incarnation: 1}, memstore.Config{Seed: 1})
	rate := limit.RateSpec{Limit: 100000, Per: time.Minute}
	busy, other := p.node("e1", rate), p.node("e2", rate)
	run := func(steps int) {
		for range steps {
			hit(busy, p.now, "u")
			p.pump(busy, 0)
			p.pump(other, 0)
			p.now = p.now.Add(50 * time.Millisecond)
		}
	}
	run(600)
	p.restart(regional.Config{Incarnation: 2}, memstore.Config{Seed: 2})
	run(40)
	hit(other, p.now, "u")
	for range 3 {
		p.pump(busy, 0)
		p.pump(other, 0)
		p.now = p.now.Add(100 * time.Millisecond)
	}
	if got, want := belief(other, p.now, "u"), belief(busy, p.now, "u"); got < want || want < 600 {
		t.Errorf("two seconds after the loss the other edge believes %d, want %d", got, want)
	}
}

// TestRefusedCountsGoOutAgain: what the region would not have, for a clock too
// far ahead or for want of room, is not forgotten.
func TestRefusedCountsGoOutAgain(t *testing.T) {
	t.Run("clock", func(t *testing.T) {
		p := newPair(t, regional.Config{}, memstore.Config{})
		rate := limit.RateSpec{Limit: 100000, Per: time.Minute}
		ahead, other := p.node("e1", rate), p.node("e2", rate)
		const skew = 4 * time.Second
		for range 800 {
			hit(ahead, p.now.Add(skew), "u")
			p.pump(ahead, skew)
			p.now = p.now.Add(50 * time.Millisecond)
		}
		hit(other, p.now, "u")
		p.pump(other, 0)
		if got := belief(other, p.now, "u"); got < 600 {
			t.Errorf("of 800 counts of an edge 4 s ahead the region knows %d, want all but the last seconds'", got)
		}
	})
	t.Run("full", func(t *testing.T) {
		p := newPair(t, regional.Config{MaxKeys: 1}, memstore.Config{})
		hour := limit.RateSpec{Limit: 100, Per: time.Hour}
		short := p.node("e0", limit.RateSpec{Name: "short", Limit: 100, Per: time.Second})
		one, other := p.node("e1", hour), p.node("e2", hour)
		hit(short, p.now, "x")
		p.pump(short, 0)
		p.shutStore()
		for range 20 {
			hit(one, p.now, "u")
		}
		p.pump(one, 0)
		if got := p.agg.Stats(p.now); got.Full != 1 {
			t.Errorf("%d keys refused, want 1", got.Full)
		}
		p.store.shut = false
		p.now = p.now.Add(6 * time.Second)
		p.agg.Tick(p.now) // the short window is over: there is room
		if err := p.agg.Sync(context.Background(), p.now); err != nil {
			t.Fatal(err)
		}
		for range 12 { // once round the ledger
			p.pump(one, 0)
			p.now = p.now.Add(100 * time.Millisecond)
		}
		hit(other, p.now, "u")
		p.pump(other, 0)
		if got := belief(other, p.now, "u"); got != 21 {
			t.Errorf("the other edge believes %d, want 21", got)
		}
	})
}

func TestClockSetBackAnHour(t *testing.T) {
	second := limit.RateSpec{Limit: 10, Per: time.Second}
	for _, hits := range []int{10, 11} { // the 11th is denied, and the denial remembered
		p := newPair(t, regional.Config{}, memstore.Config{})
		n := p.node("e", second)
		n.Flush(start.Add(time.Hour)) // or others would know of nothing, and the hits go back with the clock
		for range hits {
			hit(n, start.Add(time.Hour), "u")
		}
		if d := hit(n, start.Add(5*time.Second), "u"); !d.Allowed {
			t.Errorf("after %d hits and a step back: denied, retry after %v", hits, d.RetryAfter)
		}
	}
	p := newPair(t, regional.Config{}, memstore.Config{})
	n := p.node("e", second)
	hit(n, start.Add(time.Hour), "u")
	out := n.Flush(start.Add(time.Hour))
	n.Lost(start.Add(time.Hour), 0, out[0].Seq)
	hit(n, start, "v")
	p.pump(n, 0)
	if p.sent == 0 || p.lost > 0 {
		t.Errorf("after a loss and a step back %d frames go out, %d lost, want some and none", p.sent, p.lost)
	}
	if got := n.Degraded(p.now); got == "sync" { // "clock" it may be: counts of the hour to come are refused
		t.Error("degraded by sync right after an answer")
	}
}

// TestMisalignedReplyIsALoss: totals that cannot belong to the frame are not
// joined to anything, and its counts go out again.
func TestMisalignedReplyIsALoss(t *testing.T) {
	p := newPair(t, regional.Config{}, memstore.Config{})
	n := p.node("e", limit.RateSpec{Limit: 10, Per: time.Minute})
	hit(n, p.now, "a")
	out := n.Flush(p.now)
	var up deltasync.Up
	if err := up.UnmarshalBinary(out[0].Payload); err != nil {
		t.Fatal(err)
	}
	totals := deltasync.Totals{Others: up.Sections[0].Deltas[0].Cells}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: deltasync.NodeID("eu", "", ""), Seq: up.Seq, StoreEpoch: 1, Totals: []deltasync.Totals{totals, totals}}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(p.now, 0, b); err == nil {
		t.Error("two totals for one key were taken")
	}
	n.Lost(p.now, 0, out[0].Seq)
	if got := belief(n, p.now, "a"); got != 1 || n.Stats(p.now).Outbox != 1 {
		t.Errorf("believes %d with %d in the outbox, want 1 and 1", got, n.Stats(p.now).Outbox)
	}
}

// TestOlderNowLosesNoDelta: of two decisions at a slice's edge the one with
// the older time may come second; both counts go out.
func TestOlderNowLosesNoDelta(t *testing.T) {
	p := newPair(t, regional.Config{}, memstore.Config{})
	n := p.node("e", limit.RateSpec{Limit: 10, Per: time.Minute})
	hit(n, p.now.Add(-10*time.Minute), "a")
	n.Flush(p.now.Add(-10 * time.Minute)) // not answered: the record is there, with nothing charged
	edgeOf := p.now.Add(1500 * time.Millisecond)
	hit(n, edgeOf.Add(time.Millisecond), "a")
	set, _ := limit.Compile(rules(limit.RateSpec{Limit: 11, Per: time.Minute})...)
	n.SetRules(set) // the next decision folds
	hit(n, edgeOf.Add(-time.Millisecond), "a")
	sum := uint64(0)
	for _, o := range n.Flush(edgeOf.Add(5 * time.Millisecond)) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatal(err)
		}
		for _, d := range up.Sections[0].Deltas {
			for _, c := range d.Cells {
				sum += c.Charges
			}
		}
	}
	if sum != 2 {
		t.Errorf("two charged, %d sent", sum)
	}
}

// TestFullOutboxIsNotDrainedInVain: while nothing gets through, a flush costs
// little and asks for no further one.
func TestFullOutboxIsNotDrainedInVain(t *testing.T) {
	p := newPair(t, regional.Config{}, memstore.Config{})
	n := p.node("e", limit.RateSpec{Limit: 1000, Per: time.Hour})
	const keys = 100_000 // an outbox takes 65,536
	for i := range keys {
		hit(n, p.now, fmt.Sprint("u", i))
	}
	for _, o := range n.Flush(p.now) {
		n.Lost(p.now, o.Lane, o.Seq)
	}
	p.now = p.now.Add(20 * time.Millisecond)
	if got := testing.AllocsPerRun(1, func() { n.Flush(p.now) }); got > 100 || n.Urgent() {
		t.Errorf("a flush into a full outbox allocates %v times, urgent again: %t; want it to leave the ledger alone", got, n.Urgent())
	}
	for range 200 { // the uplink is back: nothing was lost
		p.now = p.now.Add(100 * time.Millisecond)
		p.pump(n, 0)
	}
	other := p.node("e2", limit.RateSpec{Limit: 1000, Per: time.Hour})
	for i := 0; i < keys; i += 997 {
		hit(other, p.now, fmt.Sprint("u", i))
	}
	p.pump(other, 0)
	for i := 0; i < keys; i += 997 {
		if got := belief(other, p.now, fmt.Sprint("u", i)); got != 2 {
			t.Fatalf("key %d: the other edge believes %d, want 2", i, got)
		}
	}
}

// TestFullOutboxStarvesNobody: keys that the region refuses for want of room
// fill the outbox; those that it knows get through all the same, wherever in
// the ledger they stand.
func TestFullOutboxStarvesNobody(t *testing.T) {
	const known, strangers = 500, 80_000
	p := newPair(t, regional.Config{MaxKeys: known}, memstore.Config{})
	hour := limit.RateSpec{Limit: 1000, Per: time.Hour}
	one, other := p.node("e1", hour), p.node("e2", hour)
	for i := range known {
		hit(one, p.now, fmt.Sprint("k", i))
	}
	p.pump(one, 0)
	p.shutStore() // else strangers take the place of known keys, which can be read again
	for i := range strangers {
		hit(one, p.now, fmt.Sprint("s", i))
	}
	const seconds = 20
	for range seconds {
		for i := range known {
			hit(one, p.now, fmt.Sprint("k", i))
		}
		for range 10 {
			p.pump(one, 0)
			p.now = p.now.Add(100 * time.Millisecond)
		}
	}
	for i := range known {
		hit(other, p.now, fmt.Sprint("k", i))
	}
	p.pump(other, 0)
	for i := range known {
		if got := belief(other, p.now, fmt.Sprint("k", i)); got < seconds/2 {
			t.Fatalf("key %d: the other edge believes %d, want most of %d", i, got, seconds+2)
		}
	}
}

// TestStoreThatAnswersAndRefusesIsSaidOnce: its epoch can be read, its writes
// fail.
func TestStoreThatAnswersAndRefusesIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	p := newPair(t, regional.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, memstore.Config{MaxKeys: 1})
	n := p.node("e", limit.RateSpec{Limit: 1000, Per: time.Minute})
	for i := range 100 {
		hit(n, p.now, fmt.Sprint("u", i%5))
		p.pump(n, 0)
		_ = p.agg.Sync(context.Background(), p.now) // fails, which is the point
		p.now = p.now.Add(100 * time.Millisecond)
	}
	if lines := strings.Count(log.String(), "\n"); lines > 3 || n.Degraded(p.now) != "store_down" {
		t.Errorf("%d log lines in ten seconds, degraded %q; want one or two, and store_down:\n%.500s", lines, n.Degraded(p.now), log.String())
	}
}

func TestMoreRatesThanCanBeAskedAreRefused(t *testing.T) {
	var specs []limit.RuleSpec
	for g := range 5 {
		spec := limit.RuleSpec{Name: fmt.Sprint("r", g), Group: fmt.Sprint("g", g)}
		for i := range 7 {
			spec.Rates = append(spec.Rates, limit.RateSpec{Name: fmt.Sprint("r", i), Limit: 1, Per: time.Minute})
		}
		specs = append(specs, spec)
	}
	if set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: specs}); set != nil || problems[0][0].Code != "E104" {
		t.Errorf("Compile of 35 rates that one request meets: %v, want E104", problems)
	}
	if set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: specs[:4]}); set == nil {
		t.Errorf("Compile of 28: %v", problems)
	}
}
