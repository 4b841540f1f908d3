package edge

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// exactBucket is a bucket as a textbook has it, in exact arithmetic.
type exactBucket struct {
	capacity uint64
	rate     *big.Rat // units a nanosecond
	level    *big.Rat
	at       time.Time
}

func newExactBucket(capacity uint64, flow limit.Flow) *exactBucket {
	return &exactBucket{
		capacity: capacity, level: new(big.Rat),
		rate: new(big.Rat).SetFrac(new(big.Int).SetUint64(flow.Units), big.NewInt(int64(flow.Per))),
	}
}

func (m *exactBucket) take(now time.Time, cost uint64) bool {
	drained := new(big.Rat).Mul(m.rate, new(big.Rat).SetInt64(int64(now.Sub(m.at))))
	if m.at.IsZero() {
		drained.SetInt64(0)
	}
	m.at = now
	if m.level.Sub(m.level, drained); m.level.Sign() < 0 {
		m.level.SetInt64(0)
	}
	after := new(big.Rat).Add(m.level, new(big.Rat).SetInt(new(big.Int).SetUint64(cost)))
	if after.Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(m.capacity))) > 0 {
		return false
	}
	m.level = after
	return true
}

func tokens(capacity uint64, flow limit.Flow) limit.RateSpec {
	return limit.RateSpec{Name: "tokens", Algorithm: "token_bucket", Capacity: capacity, Refill: flow}
}

func checkCost(n *Node, now time.Time, user string, cost uint64) limit.Decision {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	req.Cost = cost
	return n.Check(now, req)
}

// A node alone decides as the textbook, to the nanosecond, whatever else it
// does between: telling, hearing, sweeping.
func TestBucketAloneIsExact(t *testing.T) {
	alone.Mark(t)
	for _, flow := range []limit.Flow{{Units: 5, Per: time.Second}, {Units: 7, Per: 3 * time.Second}, {Units: 1000, Per: time.Millisecond}, {Units: 1, Per: 17 * time.Second}} {
		for _, capacity := range []uint64{1, 10, 1000} {
			seed := capacity + flow.Units
			t.Run(fmt.Sprintf("%d at %d per %v", capacity, flow.Units, flow.Per), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				n := newNode(t, Config{}, perUser(tokens(capacity, flow)))
				model := newExactBucket(capacity, flow)
				now := start
				each := float64(flow.Per) / float64(flow.Units)
				admitted := 0
				for i := range 20_000 {
					switch rnd.IntN(10) {
					case 0:
						now = now.Add(time.Duration(rnd.ExpFloat64() * each * float64(capacity)))
					case 1: // just as a unit has come back, or just before
						now = now.Add(max(0, time.Duration(each)-time.Duration(rnd.IntN(3))+1))
					case 2, 3:
						now = now.Add(time.Duration(rnd.ExpFloat64() * each))
					}
					cost := 1 + rnd.Uint64N(2+capacity/3)
					want := model.take(now, cost)
					d := checkCost(n, now, "u", cost)
					if d.Allowed != want {
						t.Fatalf("request %d of cost %d at %v: allowed %v, want %v", i, cost, now.Sub(start), d.Allowed, want)
					}
					if d.Allowed {
						admitted++
					} else if cost <= capacity {
						verifyWait(t, model, now, cost, d.RetryAfter)
					}
					switch rnd.IntN(8) {
					case 0:
						settleFrames(n, now)
					case 1:
						n.Tick(now)
					}
				}
				if admitted < 1000 || admitted > 19_000 {
					t.Fatalf("%d of 20000 admitted: the traffic tests little", admitted)
				}
			})
		}
	}
}

// verifyWait holds a wait against the textbook: a nanosecond sooner is denied.
func verifyWait(t *testing.T, m *exactBucket, now time.Time, cost uint64, wait time.Duration) {
	t.Helper()
	at := func(w time.Duration) bool {
		trial := &exactBucket{capacity: m.capacity, rate: m.rate, level: new(big.Rat).Set(m.level), at: m.at}
		return trial.take(now.Add(w), cost)
	}
	if !at(wait) || wait > 0 && at(wait-1) {
		t.Fatalf("denied for %v: then %v, a nanosecond before %v; want true and false", wait, at(wait), at(wait-1))
	}
}

// A bucket that others keep full does not forget what its retired slices held:
// the carry has it, heard or folded.
func TestBucketUnderOthersLoadKeepsItsLevel(t *testing.T) {
	n := newNode(t, Config{}, perUser(tokens(10, limit.Flow{Units: 5, Per: time.Second})))
	rate := n.Rules().Rules()[0].Rates[0]
	now := start
	check(n, now, "u") // cost 1
	key := keyOf(n, "u")
	told := map[crdt.Slice]uint64{rate.SliceAt(now.UnixNano()): 9}
	for range 200 { // 20 s at 5 a second: the bucket stays full
		now = now.Add(100 * time.Millisecond)
		slice := rate.SliceAt(now.UnixNano())
		if now.UnixMilli()%200 == 0 {
			told[slice]++
		}
		var peers []crdt.Cell
		for s := rate.Reach(now.UnixNano()); s <= slice; s++ {
			if told[s] > 0 {
				peers = append(peers, crdt.Cell{Slice: s, Charges: told[s]})
			}
		}
		n.Check(now, peekOf(n, "u"))
		out := n.Flush(now)
		if len(out) == 0 {
			continue
		}
		answer(t, n, now, upOf(t, out), deltasync.Totals{Peers: peers})
		n.Tick(now)
	}
	if got := n.Believe(now, rate, key).Total; got < 9 || got > 10 {
		t.Fatalf("after 20 s of others' load at the rate of refill %d of 10 are used, want 9 or 10", got)
	}
}

func peekOf(n *Node, user string) *limit.Request {
	req := n.Rules().Only().NewRequest()
	req.Set("user", user)
	req.Peek = true
	return req
}

// A bucket that nobody asks for is forgotten once it is full again, and not
// before.
func TestIdleBucketIsForgotten(t *testing.T) {
	n := newNode(t, Config{}, perUser(tokens(10, limit.Flow{Units: 5, Per: time.Second})))
	checkCost(n, start, "u", 10)
	settleFrames(n, start)
	tick := func(now time.Time) {
		for range shards {
			n.Tick(now)
		}
	}
	tick(start.Add(1900 * time.Millisecond))
	if n.Keys() != 1 {
		t.Fatal("a bucket with something used was forgotten")
	}
	now := start.Add(5 * time.Second)
	settleFrames(n, now)
	tick(now)
	settleFrames(n, now)
	tick(now.Add(5 * time.Second))
	if n.Keys() != 0 {
		t.Fatal("an idle bucket is still kept")
	}
}

// A queue lets requests out at its outflow, one after the other, and takes no
// more than fit into it or can be out in time.
func TestQueueDelays(t *testing.T) {
	queue := limit.RateSpec{Name: "queue", Algorithm: "leaky_bucket", Capacity: 10, Outflow: limit.Flow{Units: 5, Per: time.Second}, Queue: true}
	for _, test := range []struct {
		name    string
		maxWait time.Duration
		admits  int
	}{{"until full", 0, 10}, {"one second", time.Second, 6}, {"none", time.Nanosecond, 1}} {
		t.Run(test.name, func(t *testing.T) {
			spec := queue
			spec.MaxWait = test.maxWait
			n := newNode(t, Config{}, perUser(spec))
			for i := range test.admits {
				d := check(n, start, "u")
				if want := time.Duration(i) * 200 * time.Millisecond; !d.Allowed || d.Delay != want {
					t.Fatalf("request %d: allowed %v after %v, want after %v", i, d.Allowed, d.Delay, want)
				}
			}
			d := check(n, start, "u")
			if d.Allowed || d.Delay != 0 || d.RetryAfter <= 0 {
				t.Fatalf("request %d: %+v, want denied", test.admits, d)
			}
			if again := check(n, start.Add(d.RetryAfter), "u"); !again.Allowed {
				t.Fatalf("after the wait of %v: %+v, want admitted", d.RetryAfter, again)
			}
		})
	}
}

// What retired slices held of a bucket goes out with all that is live, and is
// heard: an edge that comes new to a bucket that is kept full finds it full.
func TestCarryTravels(t *testing.T) {
	spec := perUser(tokens(10, limit.Flow{Units: 5, Per: time.Second}))
	a := newNode(t, Config{}, spec)
	rate := a.Rules().Rules()[0].Rates[0]
	now := start
	checkCost(a, now, "u", 10)
	for range 50 { // 10 s at the rate of refill
		now = now.Add(200 * time.Millisecond)
		if d := check(a, now, "u"); !d.Allowed {
			t.Fatalf("at the rate of refill: %+v", d)
		}
		settleFrames(a, now)
	}
	a.mu.Lock()
	for lane := range a.lanes { // the region lost its counts
		a.sendAgain(lane, 0, now.UnixNano())
	}
	a.mu.Unlock()
	for range shards {
		a.Tick(now)
	}
	d := upOf(t, a.Flush(now)).Sections[0].Deltas[0]
	if d.Flags&deltasync.FlagRefresh == 0 || d.Carry.Level == 0 {
		t.Fatalf("a resend of all that is live: %+v, want it to carry a level", d)
	}

	b := newNode(t, Config{Name: "e2"}, spec)
	b.Check(now, peekOf(b, "u"))
	up := upOf(t, b.Flush(now))
	alone := b.Believe(now, rate, keyOf(b, "u")).Total
	answer(t, b, now, up, deltasync.Totals{Peers: d.Cells})
	without := b.Believe(now, rate, keyOf(b, "u")).Total
	b.Check(now, peekOf(b, "u"))
	answer(t, b, now, upOf(t, b.Flush(now)), deltasync.Totals{Peers: d.Cells, Carry: d.Carry})
	with := b.Believe(now, rate, keyOf(b, "u")).Total
	if alone != 0 || without > 2 || with < 9 || with > 10 {
		t.Fatalf("of a bucket that is full believes %d alone, %d from slices, %d with the carry; want 0, 2 at most, 9 or 10", alone, without, with)
	}
	push := deltasync.Hot{Region: "eu", SentAt: now.UnixNano(), LiveRegions: 1, Sections: []deltasync.HotSection{{
		Shape: shapeOf(rate), Keys: []deltasync.HotKey{{Key: keyOf(a, "u"), Totals: deltasync.Totals{Peers: d.Cells, Carry: d.Carry}}},
	}}}
	payload, err := push.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	view, err := NewCacheView(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	c := newNode(t, Config{Name: "e3", View: view}, spec)
	if err := c.ReceiveHot(now, payload); err != nil {
		t.Fatal(err)
	}
	view.Wait()
	if dec := checkCost(c, now, "u", 2); dec.Allowed {
		t.Fatalf("a bucket that was pushed full: %+v, want denied", dec)
	}
}
