package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// forgetAll forgets every record, as a flood of other keys would.
func forgetAll(n *Node, now time.Time) {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j := 0; j < len(s.table); {
			if s.table[j].key == 0 {
				j++
				continue
			}
			n.forget(s, j, now.UnixNano())
		}
		s.mu.Unlock()
	}
}

// oracle counts what was admitted and forgets nothing.
type oracle struct {
	cells []crdt.Cell
	exact limit.Exact
}

func (o *oracle) charge(rate *limit.Rate, cost uint64, now int64) {
	slice := rate.SliceAt(now)
	if n := len(o.cells); n == 0 || o.cells[n-1].Slice != slice {
		o.cells = append(o.cells, crdt.Cell{Slice: slice})
	}
	o.cells[len(o.cells)-1].Charges += cost
	o.exact.Charge(rate, cost, now)
}

func (o *oracle) level(rate *limit.Rate, now int64) limit.Level {
	if rate.Exact() {
		return rate.Measure(&o.exact, nil, nil, crdt.Carry{}, now)
	}
	return rate.Used(o.cells, crdt.Carry{}, now)
}

var heldRates = map[string]limit.RuleSpec{
	"sub-windows":    perUser(limit.RateSpec{Limit: 100, Per: time.Minute}),
	"oldest in full": perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "sub_windows", Slices: 6, Oldest: "full"}),
	"sliding window": perUser(limit.RateSpec{Limit: 7, Per: time.Minute, Algorithm: "sliding_window"}),
	"fixed window":   perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Algorithm: "fixed_window"}),
	"a day":          perUser(limit.RateSpec{Limit: 50, Per: 24 * time.Hour, Algorithm: "fixed_window", Align: "utc"}),
	"one":            perUser(limit.RateSpec{Limit: 1, Per: time.Second}),
	"large":          {Name: "api", Key: []string{"user"}, Cost: limit.CostSpec{Max: 1 << 45}, Rates: []limit.RateSpec{{Limit: 1 << 45, Per: time.Hour}}},
	"token bucket":   perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}}),
	"the least class": {Name: "api", Key: []string{"user"}, Classes: limit.ClassesSpec{From: "class", Order: []string{"batch", "normal", "critical"}, Reserve: map[string]float64{"normal": 10, "critical": 25}},
		Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}}},
	"soft": {Name: "api", Key: []string{"user"}, Margin: limit.MarginSpec{SoftPercent: 50},
		Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}}},
	"soft bucket": {Name: "api", Key: []string{"user"}, Margin: limit.MarginSpec{SoftPercent: 100}, // it drains for two of its windows
		Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 1, Per: time.Second}}}},
}

// However often a key is forgotten while it has 80 % of its limit used or more,
// and wherever its block is kept, it never passes its limit.
func TestForgottenKeysStayLimited(t *testing.T) {
	alone.Mark(t)
	for name, spec := range heldRates {
		for where, most := range map[string]int{"table": 64, "filter": 0} {
			t.Run(name+" "+where, func(t *testing.T) { stayLimited(t, spec, most) })
		}
	}
}

func stayLimited(t *testing.T, spec limit.RuleSpec, most int) {
	forgotten, denied := 0, 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 11))
		n := newNode(t, Config{}, spec)
		for i := range n.shards {
			n.shards[i].blocked = blocked{most: most, filter: filter{most: 16}}
		}
		rate := n.Rules().Rules()[0].Rates[0]
		least := leastThreshold(rate) // requests that name no class are of the least
		var o oracle
		now := start.Add(time.Duration(random.Uint64N(uint64(rate.Window))))
		for step := range 2000 {
			now = now.Add(time.Duration(random.Uint64N(uint64(rate.Window) / 50)))
			cost := uint64(1)
			if rate.Limit >= 100 {
				cost += random.Uint64N(rate.Limit / 20)
			}
			room := rate.Room(o.level(rate, now.UnixNano()))
			d := checkCost(n, now, "u", cost)
			switch {
			case d.Allowed && room < d.Cost+rate.Withheld(0):
				t.Fatalf("seed %d, step %d: admitted %d with %d left, after it was forgotten %d times", seed, step, d.Cost, room, forgotten)
			case d.Allowed:
				o.charge(rate, d.Cost, now.UnixNano())
			default:
				denied++
				if d.RetryAfter <= 0 || int64(d.RetryAfter) > longestHold(rate) {
					t.Fatalf("seed %d, step %d: denied for %v", seed, step, d.RetryAfter)
				}
				if random.Uint64N(8) == 0 {
					now = now.Add(d.RetryAfter)
					d := checkCost(n, now, "u", cost)
					if !d.Allowed {
						t.Fatalf("seed %d, step %d: denied for another %v after the wait it was told", seed, step, d.RetryAfter)
					}
					o.charge(rate, d.Cost, now.UnixNano())
				}
			}
			if random.Uint64N(10) == 0 && rate.Rounded(o.level(rate, now.UnixNano())) >= least {
				forgetAll(n, now)
				forgotten++
			}
		}
		now = now.Add(time.Duration(longestHold(rate)+longestHold(rate)/4) + time.Second) // the filter's rounding included
		if d := check(n, now, "u"); !d.Allowed {
			t.Errorf("seed %d: still denied for %v when a window has passed", seed, d.RetryAfter)
		}
	}
	if forgotten < 100 || denied < 100 {
		t.Errorf("forgotten %d times and denied %d times: nothing was tried", forgotten, denied)
	}
}

// What a bucket holds of its elastic margin is not forgotten while that is closed.
func TestForgottenElasticBucket(t *testing.T) {
	for where, most := range map[string]int{"table": 64, "filter": 0} {
		t.Run(where, func(t *testing.T) {
			rule := perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 1, Per: time.Second}})
			rule.Margin.Elastic = limit.ElasticSpec{UpToPercent: 200, While: "capacity.api < 90%"}
			n := newNode(t, Config{}, rule)
			for i := range n.shards {
				n.shards[i].blocked = blocked{most: most, filter: filter{most: 16}}
			}
			capacity := func(used float64) {
				if err := n.SetCapacity(start, "api", used, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			capacity(0.5)
			if d := checkCost(n, start, "u", 300); !d.Allowed {
				t.Fatalf("%+v, want that the margin is open", d)
			}
			forgetAll(n, start)
			capacity(0.95)
			for _, at := range []time.Duration{time.Second, 195 * time.Second, 5 * time.Minute} {
				if d := check(n, start.Add(at), "u"); d.Allowed != (at > 200*time.Second) {
					t.Errorf("%v after 300 of 100: %+v", at, d)
				}
			}
		})
	}
}

// A key at the threshold keeps what it had left, and gets the rest by and by.
func TestForgottenKeyKeepsWhatItHadLeft(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute, Algorithm: "sub_windows", Slices: 60}))
	rate := n.Rules().Rules()[0].Rates[0]
	for i := range 90 {
		check(n, start.Add(time.Duration(i)*500*time.Millisecond), "u") // two a second
	}
	now := start.Add(45 * time.Second)
	forgetAll(n, now)
	if b := n.Believe(now, rate, keyOf(n, "u")); b.Live || b.Left != 10 || b.Held != 15*time.Second+time.Second && b.Held < 55*time.Second {
		t.Errorf("Believe = %+v, want 10 left and to be held until all has left the window", b)
	}
	spend := func(now time.Time) (admitted int) {
		for check(n, now, "u").Allowed {
			admitted++
		}
		return admitted
	}
	if got := spend(now); got != 10 {
		t.Errorf("%d are admitted after the key was forgotten, want the 10 that it had left", got)
	}
	if b := n.Believe(now, rate, keyOf(n, "u")); !b.Live || b.Left != 0 || b.Held == 0 {
		t.Errorf("Believe = %+v, want the live key to be held, with nothing left", b)
	}
	// 80 % of what was used are left when 11 of 90 have gone, after 65 to 66 s.
	if got := spend(start.Add(64 * time.Second)); got != 0 {
		t.Errorf("%d are admitted before it eases", got)
	}
	if got := spend(start.Add(68 * time.Second)); got != 11 {
		t.Errorf("%d are admitted when use is below 80 %%, want 21 less the 10 spent", got)
	}
	if got := spend(start.Add(107 * time.Second)); got != 89 {
		t.Errorf("%d are admitted when all that was forgotten has left the window, want 100 less the 11 spent of late", got)
	}
}

// A penalty outlives the record, whether it is longer than what was used or not.
func TestForgottenPenaltyGoesOn(t *testing.T) {
	for _, c := range []struct {
		per, penalty time.Duration
	}{{time.Second, time.Hour}, {time.Hour, 10 * time.Minute}, {time.Minute, 70 * time.Second}} {
		rule := perUser(limit.RateSpec{Limit: 10, Per: c.per})
		rule.Penalty = limit.Penalty{For: c.penalty}
		n := newNode(t, Config{}, rule)
		for range 11 {
			check(n, start, "u")
		}
		forgetAll(n, start)
		for at := time.Duration(0); at < c.penalty; at += c.penalty / 7 {
			if d := check(n, start.Add(at), "u"); d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("a penalty of %v over %v: %+v after %v", c.penalty, c.per, d, at)
			}
			forgetAll(n, start.Add(at))
		}
		if d := check(n, start.Add(c.penalty+2*c.per+2*time.Second), "u"); !d.Allowed {
			t.Errorf("a penalty of %v over %v: denied for %v when it is over", c.penalty, c.per, d.RetryAfter)
		}
	}
}

// What a forgotten key had left in an elastic margin is gone when that closes.
func TestForgottenKeyKeepsNoElasticMargin(t *testing.T) {
	n := newNode(t, Config{}, elastic("api", 100, limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}))
	if err := n.SetCapacity(start, "api", 0.5, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ := admits(n, start, "u", 120); got != 120 {
		t.Fatalf("%d are admitted while there is room, want 120", got)
	}
	forgetAll(n, start)
	if err := n.SetCapacity(start, "api", 0.9, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ := admits(n, start, "u", 50); got != 0 {
		t.Errorf("%d more are admitted when the margin is closed, want none", got)
	}
}

// A request that names another limit neither frees a key nor keeps what it had
// left from it.
func TestForgottenKeyUnderAnotherLimit(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
	for range 100 {
		check(n, start, "u")
	}
	forgetAll(n, start)
	req := n.Rules().Only().NewRequest()
	req.Set("user", "u")
	req.Override(n.Rules().Rules()[0].Rates[0].Policy, 50)
	if d := n.Check(start, req); d.Allowed {
		t.Errorf("admitted under half of the limit: %+v", d)
	}
	req.Release()
	if d := check(n, start, "u"); d.Allowed {
		t.Errorf("a request that named another limit freed the key: %+v", d)
	}
}

// What is given back to a key that was forgotten may be spent again at once:
// else the slots of a concurrency limit would be gone until their leases end.
func TestForgottenKeyIsGivenBack(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 20, Lease: time.Minute}))
	var taken []limit.Charge
	acquire := func(want bool) {
		t.Helper()
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Receipt = true
		if d := n.Check(start, req); d.Allowed != want {
			t.Fatalf("acquire with %d taken: %+v, want allowed %v", len(taken), d, want)
		}
		taken = append(taken, req.Charges...)
	}
	for range 20 {
		acquire(true)
	}
	forgetAll(n, start)
	acquire(false)
	for range 3 {
		forgetAll(n, start)
		n.Refund(start, taken[:5], 0)
		taken = taken[5:]
		forgetAll(n, start)
		for range 5 {
			acquire(true)
		}
		acquire(false)
	}
}

// What the view remembers of a key is exact, so it is not confined beside that.
func TestViewKnowsBetterThanABlock(t *testing.T) {
	n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
	for range 85 {
		check(n, start, "u")
	}
	forgetAll(n, start)
	for i := range n.shards {
		n.shards[i].blocked.table = nil // as if the key were in the filter
		n.shards[i].blocked.most = 0
	}
	n.shard(keyOf(n, "u")).blocked.filter.put(keyOf(n, "u"), start.UnixNano()+second, start.UnixNano())
	for range 15 {
		if d := check(n, start, "u"); !d.Allowed {
			t.Fatalf("denied below its limit: %+v", d)
		}
	}
	if check(n, start, "u").Allowed {
		t.Error("admitted above its limit")
	}
}

// The limit of a rule that was changed is judged anew.
func TestChangedLimitLiftsABlock(t *testing.T) {
	for _, live := range []bool{false, true} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
		for range 10 {
			check(n, start, "u")
		}
		forgetAll(n, start)
		if live && check(n, start, "u").Allowed {
			t.Fatal("a key without anything left is admitted after it was forgotten")
		}
		n.SetRules(compile(t, perUser(limit.RateSpec{Limit: 10, Per: time.Minute})))
		if check(n, start, "u").Allowed {
			t.Errorf("live %v: rules that are the same lift a block", live)
		}
		n.SetRules(compile(t, perUser(limit.RateSpec{Limit: 20, Per: time.Minute})))
		if d := check(n, start, "u"); !d.Allowed {
			t.Errorf("live %v: denied for %v after the limit was raised", live, d.RetryAfter)
		}
	}
}

// A clock that is set back locks nobody out for longer than a window.
func TestBlockOfAClockThatWasSetBack(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 10, Per: time.Minute}))
	for range 10 {
		check(n, start, "u")
	}
	forgetAll(n, start)
	back := start.Add(-24 * time.Hour)
	if check(n, back, "u").RetryAfter > 2*time.Minute {
		t.Error("held for more than a window after the clock was set back")
	}
	if d := check(n, back.Add(2*time.Minute), "u"); !d.Allowed {
		t.Errorf("denied for %v, a window after the clock was set back", d.RetryAfter)
	}
}

func TestScaleIsCloseToTheLimit(t *testing.T) {
	last := uint8(0)
	for shift := range 64 {
		for _, limit := range []uint64{1 << shift, 1<<shift + 1<<shift/3, 1<<shift + 1<<shift/2, 2<<shift - 1} {
			scale := scaleOf(limit)
			if scale < last || scale == full {
				t.Fatalf("scaleOf(%d) = %d after %d", limit, scale, last)
			}
			last = scale
			if share := float64(limit) * portions[scale]; share < 1 || share > 1.26 {
				t.Errorf("a limit of %d, all used, has a share of %v, want 1 to 1.26", limit, share)
			}
		}
	}
	if scaleOf(0) != 0 {
		t.Errorf("scaleOf(0) = %d", scaleOf(0))
	}
}

func TestThreshold(t *testing.T) {
	for _, c := range []struct{ limit, ceiling, want uint64 }{
		{0, 0, 0}, {1, 1, 1}, {4, 4, 4}, {5, 5, 4}, {10, 15, 8}, {99, 99, 80}, {100, 100, 80}, {100, 50, 40}, {1 << 60, 1 << 60, 1<<60 - 1<<60/5},
	} {
		if got := threshold(&limit.Rate{Limit: c.limit, Ceiling: c.ceiling}); got != c.want {
			t.Errorf("threshold(%d, ceiling %d) = %d, want %d", c.limit, c.ceiling, got, c.want)
		}
	}
	_ = fmt.Sprint()
}
