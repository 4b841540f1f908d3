package edge

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// bounded asks with Bounds.
func bounded(n *Node, now time.Time, user string) (limit.Decision, limit.Bound) {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Bounds = true
	return n.Check(now, req), req.Bound
}

// clustered answers a frame as the region of an edge that is one of five times two.
func clustered(t *testing.T, n *Node, now time.Time, live int, totals ...deltasync.Totals) {
	t.Helper()
	up := upOf(t, n.Flush(now))
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, Totals: totals,
		Regions: 5, LiveRegions: live, LiveEdges: 2, Between: 80 * time.Millisecond, EchoSentAt: up.SentAt, ReceivedAt: up.SentAt, SentAt: up.SentAt,
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(now, 0, b); err != nil {
		t.Fatal(err)
	}
}

// wanted has the next flush ask for others' counts.
func wanted(n *Node, user string) {
	key := keyOf(n, user)
	n.want(n.shard(key), n.shard(key).find(key), n.Rules().Rules()[0].Rates[0])
}

func TestBoundOfARequest(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 40, Per: time.Second, Consistency: "loose"}))
	if _, b := bounded(n, start, "u"); b.Known {
		t.Errorf("before anybody said how many there are: %+v", b)
	}
	slice := n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano())
	cells := func(charges uint64) deltasync.Totals {
		return deltasync.Totals{Others: []crdt.Cell{{Slice: slice - 4, Charges: charges}}}
	}
	clustered(t, n, start, 5, cells(10))
	_, calm := bounded(n, start, "u")
	if !calm.Known || calm.Now != 0 || calm.Surge < 40 {
		t.Errorf("12 of 40 are known: %+v, want none now, and a surge of ten times the limit", calm)
	}
	wanted(n, "u")
	clustered(t, n, start.Add(time.Millisecond), 5, cells(45))
	d, near := bounded(n, start.Add(time.Millisecond), "u")
	if d.Allowed || near.Now < 47-40 || near.Surge < near.Now {
		t.Errorf("47 of 40 are known: %v, %+v, want 7 and more above the limit", d.Allowed, near)
	}
	if _, old := bounded(n, start.Add(300*time.Millisecond), "u"); old.Now <= near.Now {
		t.Errorf("0.3 s later: %+v, was %+v: the view is older, and says less", old, near)
	}
	wanted(n, "u")
	clustered(t, n, start.Add(2*time.Millisecond), 4, cells(45))
	if _, cut := bounded(n, start.Add(2*time.Millisecond), "u"); cut.Now < near.Now+40 {
		t.Errorf("a region is not heard of: %+v, want a limit more than %+v", cut, near)
	}
}

// Where others may be open, as they are cut off or were a window ago, bounds are those of
// a loose rate: shares say nothing of what is admitted then.
func TestBoundOfWhoMayBeOpen(t *testing.T) {
	told := func(what string) (before, cut, window, after limit.Bound) {
		n := newNode(t, Config{}, perUser(onPartition("adaptive", what)))
		now := start
		hear := func(live int) (b limit.Bound) {
			check(n, now, "u")
			clustered(t, n, now, live, deltasync.Totals{
				Others: []crdt.Cell{{Slice: n.Rules().Rules()[0].Rates[0].SliceAt(now.Truncate(time.Second).UnixNano()) - 4, Charges: 99}},
				Share:  &deltasync.Share{Omega: 0.2, Sum: 20, Demand: 60, Window: 60},
			})
			_, b = bounded(n, now, "u")
			return b
		}
		before = hear(5)
		now = now.Add(100 * time.Millisecond)
		cut = hear(4)
		now = now.Add(time.Second)
		window = hear(5)
		now = now.Add(time.Second)
		hear(5)
		now = now.Add(time.Second)
		return before, cut, window, hear(5)
	}
	before, cut, window, after := told("open")
	_, part, shared, _ := told("share")
	if cut.Now < before.Now+90 || part.Now > before.Now+50 {
		t.Errorf("a region is cut off: %+v where it is open, %+v where it keeps to its share; before %+v", cut, part, before)
	}
	if window.Now <= shared.Now || after.Now > shared.Now+10 {
		t.Errorf("a window later %+v, two more later %+v; by shares %+v", window, after, shared)
	}

	n, _ := sharing(t, nil, perUser(onPartition("adaptive", "open")))
	rate := n.Rules().Rules()[0].Rates[0]
	now := unanswered(n, start.Add(1020*time.Millisecond), "u", 1500*time.Millisecond)
	answerShare(t, n, now, 2, nil)
	for after, want := range map[time.Duration]bool{0: true, 1900 * time.Millisecond: true, 2100 * time.Millisecond: false} {
		if got := n.cluster.opened(rate, now.Add(after).UnixNano()); got != want {
			t.Errorf("%v after an answer that took 1.5 s: %v, want %v", after, got, want)
		}
	}
}

// Of a bucket the bound goes by how long regions were cut off from each other, or this edge
// from its own; a short time after a long one is counted with it.
func TestBoundOfABucketCutOff(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 40, Refill: limit.Flow{Units: 40, Per: time.Second}, Consistency: "loose"}))
	now := start
	told := func(live int, lasts time.Duration) (b limit.Bound) {
		for end := now.Add(lasts); now.Before(end); now = now.Add(100 * time.Millisecond) {
			for range 8 { // twice what drains
				check(n, now, "u")
			}
			wanted(n, "u")
			clustered(t, n, now, live, deltasync.Totals{})
			_, b = bounded(n, now, "u")
		}
		return b
	}
	whole := told(5, time.Second)
	soon, late := told(4, time.Second), told(4, 10*time.Second)
	if soon.Now < whole.Now+40 || late.Now < soon.Now+9*40 {
		t.Errorf("cut off for a second %+v, for eleven %+v; before %+v; want a bucket more, and then ten", soon, late, whole)
	}
	if met := told(5, 2*time.Second); met.Now > late.Now-20 || met.Now < late.Now-6*40 {
		t.Errorf("2 s after that: %+v, was %+v; want the last window to be known", met, late)
	}
	if again := told(4, 500*time.Millisecond); again.Now < late.Now {
		t.Errorf("cut off again: %+v, want what there was, %+v", again, late)
	}
	if met := told(5, 30*time.Second); met.Now < late.Now-2*40 {
		t.Errorf("as much is admitted as drains for 30 s: %+v, was %+v; want it to stay", met, late)
	}
	now = now.Add(15 * time.Second) // nobody asks
	check(n, now, "u")
	wanted(n, "u")
	clustered(t, n, now, 5, deltasync.Totals{})
	if _, rested := bounded(n, now, "u"); rested.Now > 40 {
		t.Errorf("nobody asked for 15 s: %+v, want all drained, and at most what one asks who asks again", rested)
	}
}

// How late news is: as the way takes that it goes, a tenth longer between regions, and where
// these are many by way of a home; as frames wait for their turn and the budget; and as the
// view is old.
func TestOutlook(t *testing.T) {
	const ms, window = time.Millisecond, 2 * time.Second
	ago := func(d time.Duration) int64 { return start.UnixNano() - int64(d) }
	for name, c := range map[string]struct {
		regions             int32
		scope               string
		heard               int64
		waits               time.Duration // news, for the budget
		told                int
		ahead, blur, hidden time.Duration
	}{
		// 2 × 5 ms within, 88 ms between regions, 100 ms and 20 ms for frames to leave
		"a mesh":                   {5, "global", ago(0), 0, 5, 218 * ms, 18 * ms, 218 * ms},
		"the largest mesh":         {limit.MeshRegions, "global", ago(0), 0, limit.MeshRegions, 218 * ms, 18 * ms, 218 * ms},
		"by way of homes":          {limit.MeshRegions + 1, "global", ago(0), 0, limit.MeshRegions + 1, 306 * ms, 46 * ms, 306 * ms},
		"in the region":            {limit.MeshRegions + 1, "region", ago(0), 0, 1, 130 * ms, 10 * ms, 130 * ms},
		"a view of before":         {5, "global", ago(40 * ms), 0, 5, 218 * ms, 48 * ms, 258 * ms},
		"a view older than it all": {5, "global", ago(time.Hour), 0, 5, 218 * ms, 18*ms + window*3/4, window},
		"a view from the future":   {5, "global", ago(-time.Hour), 0, 5, 218 * ms, 18 * ms, 218 * ms},
		"never heard":              {5, "global", 0, 0, 5, 218 * ms, 18 * ms, window},
		"news waits":               {5, "global", ago(0), 40 * ms, 5, 258 * ms, 58 * ms, 258 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 40, Per: window, Scope: c.scope}))
			n.cluster.regions.Store(c.regions)
			n.cluster.edges.Store(2)
			n.cluster.between.Store(int64(80 * ms))
			n.cluster.within.Store(int64(5 * ms))
			if c.waits > 0 {
				n.cluster.backlog.waits(ago(c.waits))
			}
			got, ok := n.cluster.outlook(n.Rules().Rules()[0].Rates[0], c.heard, start.UnixNano())
			if want := (limit.Outlook{Regions: c.told, Edges: 2, Ahead: c.ahead, Blur: c.blur, Hidden: c.hidden}); !ok || got != want {
				t.Errorf("outlook = %+v, %v, want %+v", got, ok, want)
			}
		})
	}
}

// Others are taken to be asked for requests that cost what the one does that asks.
func TestBoundOfACost(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 40, Per: time.Second, Consistency: "loose"}))
	check(n, start, "u")
	clustered(t, n, start, 5, deltasync.Totals{Others: []crdt.Cell{{Slice: n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano()) - 4, Charges: 45}}})
	last := uint64(0)
	for _, cost := range []uint64{1, 5, 10} {
		req := requestOf(n, "u")
		req.Bounds, req.Cost = true, cost
		if d := n.Check(start, req); d.Allowed || req.Bound.Now <= last {
			t.Errorf("a request of %d: %v, %+v, want it denied, and more than %d", cost, d.Allowed, req.Bound, last)
		}
		last = req.Bound.Now
		req.Release()
	}
}

func TestBoundOfWhoDecidesAlone(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 3, Per: time.Second, Scope: "edge"}))
	for range 5 {
		if _, b := bounded(n, start, "u"); b != (limit.Bound{Known: true}) {
			t.Errorf("a rate of scope edge: %+v, want none, for sure", b)
		}
	}
}

// To ask for bounds changes no decision, and no count.
func TestBoundsChangeNothing(t *testing.T) {
	for _, consistency := range []string{"loose", "adaptive"} {
		spec := limit.RateSpec{Limit: 40, Per: time.Second, Consistency: consistency}
		chance := func() Config { return Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64} }
		asked, plain := newNode(t, chance(), perUser(spec)), newNode(t, chance(), perUser(spec))
		for i := range 400 {
			now := start.Add(time.Duration(i) * 7 * time.Millisecond)
			a, _ := bounded(asked, now, "u")
			if p := check(plain, now, "u"); a.Allowed != p.Allowed || a.Remaining != p.Remaining || a.Basis != p.Basis || a.RetryAfter != p.RetryAfter {
				t.Fatalf("%s, request %d: %+v with bounds, %+v without", consistency, i, a, p)
			}
			if i%20 == 10 {
				slice := plain.Rules().Rules()[0].Rates[0].SliceAt(now.UnixNano())
				totals := deltasync.Totals{Others: []crdt.Cell{{Slice: slice - 8, Charges: uint64(1 + i%13)}}, Share: &deltasync.Share{Omega: 0.2, Sum: 20, Demand: 60, Window: 60}}
				clustered(t, asked, now, 5, totals)
				clustered(t, plain, now, 5, totals)
			}
		}
	}
}

func BenchmarkBound(b *testing.B) {
	for _, consistency := range []string{"loose", "adaptive"} {
		b.Run(consistency, func(b *testing.B) {
			n := newNode(b, Config{}, perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Second, Consistency: consistency}))
			n.cluster.regions.Store(5)
			req := n.Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Bounds = true
			b.ReportAllocs()
			for i := range b.N {
				n.Check(start.Add(time.Duration(i)*time.Millisecond), req)
			}
		})
	}
}

// Metrics have the largest bound of late for each rule that is not decided alone.
func TestMetricsTellBounds(t *testing.T) {
	reg := prometheus.NewRegistry()
	n := newNode(t, Config{Registerer: reg}, perUser(limit.RateSpec{Limit: 40, Per: time.Second, Consistency: "loose"}),
		limit.RuleSpec{Name: "alone", Group: "b", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 40, Per: time.Second, Scope: "edge"}}})
	ratios := func(now time.Time) (out []boundOf) { return n.boundsByRule(now.UnixNano()) }
	want := func(when string, now time.Time, least, most float64) {
		t.Helper()
		if got := ratios(now); len(got) != 1 || got[0].rule != "api" || got[0].now < least || got[0].now > most || got[0].surge < got[0].now || got[0].surge > 100*most {
			t.Errorf("%s: %+v, want api alone, from %v to %v", when, got, least, most)
		}
	}
	check(n, start, "u")
	if got := ratios(start); len(got) != 0 {
		t.Errorf("%+v before it is known how many others there are, want nothing told", got)
	}
	n.cluster.expect(5, 2)
	want("at first", start, 0, 0)
	slice := n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano())
	clustered(t, n, start, 5, deltasync.Totals{Others: []crdt.Cell{{Slice: slice - 4, Charges: 60}}})
	check(n, start, "u")
	n.Flush(start.Add(time.Millisecond))
	want("61 of 40 are known", start, 0.5, 5)
	now := start.Add(20 * time.Second)
	check(n, now, "v")
	n.Flush(now)
	want("20 s later", now, 0.5, 5)
	want("a minute later", start.Add(time.Minute), 0, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	for _, name := range []string{"spillgate_error_bound_ratio", "spillgate_error_bound_surge_ratio"} {
		if series[name] != 1 {
			t.Errorf("%d series of %s, want one", series[name], name)
		}
	}
}

// Of limits that descriptors bring, which no document has, nothing is told where none did.
func TestMetricsTellBoundsOfWhatDescriptorsBring(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 40, Per: time.Second}))
	n.cluster.expect(1, 1)
	doc := limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{perUser(limit.RateSpec{Limit: 40, Per: time.Second})}}
	set, problems := limit.Options{DescriptorLimits: true}.Compile(doc, limit.Document{Namespace: "tree", Descriptors: &limit.DescriptorSpec{}})
	if set == nil {
		t.Fatal(problems)
	}
	n.SetRules(set)
	if got := n.boundsByRule(start.UnixNano()); len(got) != 1 || got[0].rule != "api" || set.Written() != 1 {
		t.Errorf("%+v of %d rules, want api alone", got, set.Written())
	}
	for _, rule := range set.Rules() {
		if rule.Namespace == "(descriptors)" && rule.Name == "override.hour" {
			n.bounds.note([]ruleBound{{rule.Rates[0].Generation, boundRatios{0.25, 0.5}}}, start.UnixNano())
		}
	}
	if got := n.boundsByRule(start.UnixNano()); len(got) != 2 || got[1] != (boundOf{"(descriptors)", "override.hour", boundRatios{0.25, 0.5}}) {
		t.Errorf("%+v, want override.hour, too", got)
	}
}

// However many rules there are, and however their keys do, series are few.
func TestMetricsTellFewBounds(t *testing.T) {
	var rules []limit.RuleSpec
	for i := range mostBounds + 20 {
		rules = append(rules, limit.RuleSpec{Name: "r" + strconv.Itoa(i), Group: "g", Priority: i, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 40, Per: time.Second}}})
	}
	n := newNode(t, Config{}, rules...)
	n.cluster.expect(1, 1)
	last := n.Rules().Rules()[mostBounds+19].Rates[0]
	n.bounds.note([]ruleBound{{last.Generation, boundRatios{0.25, 0.5}}}, start.UnixNano())
	got := n.boundsByRule(start.UnixNano())
	if len(got) != mostBounds+1 || got[mostBounds].rule != "other" || got[mostBounds].boundRatios != (boundRatios{0.25, 0.5}) {
		t.Errorf("%d series, the last one %+v; want %d and one for the rest", len(got), got[len(got)-1], mostBounds)
	}
}
