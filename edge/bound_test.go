package edge

import (
	"math/rand/v2"
	"testing"
	"time"

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
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 40, Per: time.Second}))
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
