package edge

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// turnsOf are rules that tell requests when they may go on, at one a second, by what they
// let in at once.
func turnsOf(capacity uint64) map[string]limit.RuleSpec {
	rules := map[string]limit.RuleSpec{"queue": perUser(limit.RateSpec{Name: "queue", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true})}
	bucket := perUser(tokens(capacity, limit.Flow{Units: 1, Per: time.Second}))
	bucket.MaxDelay = 40 * time.Second
	rules["max_delay"] = bucket
	if capacity == 1 {
		gap := perUser(tokens(100, limit.Flow{Units: 100, Per: time.Second}))
		gap.MinGap, gap.MaxDelay = time.Second, 40*time.Second
		rules["min_gap"] = gap
	}
	return rules
}

// waiter is a request that was told its turn.
type waiter struct {
	turn    time.Time
	cost    uint64
	charges []limit.Charge
}

// join has one more come at now.
func join(t *testing.T, n *Node, now time.Time, cost uint64) (w *waiter, ok bool) {
	t.Helper()
	d, charges := take(t, n, now, "u", cost)
	return &waiter{now.Add(d.Delay), cost, charges}, d.Allowed
}

// Who leaves gives back its place where it is the last one, and else leaves it empty:
// nobody is overtaken, and no two have one turn.
func TestPlacesOfWhoLeaves(t *testing.T) {
	for name, rule := range turnsOf(1) {
		for _, test := range []struct {
			name  string
			leave []int // of ten that came at once, at 0 to 9 s
			next  int   // the turn of the next to come, in seconds
		}{
			{"nobody", nil, 10},
			{"the last", []int{9}, 9},
			{"the last three, last first", []int{9, 8, 7}, 7},
			{"the last three, first first", []int{7, 8, 9}, 9},
			{"in the middle", []int{1, 2, 3, 4, 5, 6, 7, 8}, 10},
			{"in the middle, and then the last", []int{4, 9}, 9},
			{"all, last first", []int{9, 8, 7, 6, 5, 4, 3, 2, 1}, 1},
			{"all, first first", []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, 9},
		} {
			n := newNode(t, Config{}, rule)
			waiters := make([]*waiter, 0, 10)
			for range 10 {
				w, _ := join(t, n, start, 1)
				waiters = append(waiters, w)
			}
			for _, i := range test.leave {
				n.Refund(start, waiters[i].charges, 0)
				n.Refund(start, waiters[i].charges, 0) // once
			}
			for i := range 3 {
				if w, ok := join(t, n, start, 1); !ok || w.turn.Sub(start) != time.Duration(test.next+i)*time.Second {
					t.Errorf("%s: after %s left: number %d of the next is told %v (%t), want %ds", name, test.name, i, w.turn.Sub(start), ok, test.next+i)
				}
			}
		}
	}
}

// A place that stays empty is gone with its turn: then there is as much room as ever.
func TestEmptyPlacesPass(t *testing.T) {
	for name, rule := range turnsOf(1) {
		n := newNode(t, Config{}, rule)
		for _, at := range []time.Duration{0, time.Minute} {
			left := make([]*waiter, 0, 40)
			for {
				w, ok := join(t, n, start.Add(at), 1)
				if !ok {
					break
				}
				left = append(left, w)
			}
			for _, w := range left {
				n.Refund(start.Add(at), w.charges, 0)
			}
			if len(left) < 40 {
				t.Errorf("%s: %d were admitted at %v, want 40", name, len(left), at)
			}
		}
	}
}

// What was told elsewhere is no more overtaken than what was told here.
func TestWhoLeavesAQueueOfSeveralEdges(t *testing.T) {
	for name, want := range map[string]time.Duration{"queue": 5 * time.Second, "max_delay": 3 * time.Second} {
		n := newNode(t, Config{}, turnsOf(3)[name])
		rate := n.Rules().Rules()[0].Rates[0]
		_, _ = join(t, n, start, 1)
		last, _ := join(t, n, start, 1)
		answer(t, n, start, upOf(t, n.Flush(start)), peersAt(rate.SliceAt(start.UnixNano()), 3))
		n.Refund(start, last.charges, 0)
		if w, ok := join(t, n, start, 1); !ok || w.turn.Sub(start).Round(time.Millisecond) != want {
			t.Errorf("%s: %v is told (%t), want %v: two came here and three elsewhere, who may wait behind them", name, w.turn.Sub(start), ok, want)
		}
	}
}

// Who was served is given back what it cost, but where others were told turns behind it:
// then it was used.
func TestRefundsWhereTurnsAreTold(t *testing.T) {
	rules := turnsOf(10)
	for _, test := range []struct {
		rule    string
		costs   []uint64 // of those that came at once
		after   time.Duration
		of      int // whose cost is given back
		back    uint64
		next    time.Duration // when the next of ten comes out
		because string
	}{
		{"queue", []uint64{10}, 2 * time.Second, 0, 0, 2 * time.Second, "nobody waits"},
		{"queue", []uint64{10}, 2 * time.Second, 0, 7, 3 * time.Second, "nobody waits, and 3 are used until then"},
		{"queue", []uint64{10, 1}, 2 * time.Second, 0, 7, 11 * time.Second, "the second waits"},
		{"queue", []uint64{10, 2, 1}, 5 * time.Second, 1, 0, 13 * time.Second, "the third waits behind the second"},
		{"queue", []uint64{10, 2, 3}, 5 * time.Second, 2, 1, 14 * time.Second, "nobody waits behind the third"},
		{"max_delay", []uint64{4, 4, 2}, time.Second, 0, 0, 6 * time.Second, "nobody waits"},
		{"max_delay", []uint64{4, 4, 2}, time.Second, 1, 3, 7 * time.Second, "nobody waits"},
		{"max_delay", []uint64{10, 2}, time.Second, 0, 0, 12 * time.Second, "the second waits"},
		{"max_delay", []uint64{10, 2}, time.Second, 1, 0, 10 * time.Second, "nobody waits behind the second"},
		{"max_delay", []uint64{10, 2}, 3 * time.Second, 0, 8, 4 * time.Second, "the second has come out"},
	} {
		n := newNode(t, Config{}, rules[test.rule])
		came := make([]*waiter, 0, 3)
		for _, cost := range test.costs {
			w, _ := join(t, n, start, cost)
			came = append(came, w)
		}
		now := start.Add(test.after)
		n.Refund(now, came[test.of].charges, test.back)
		if w, ok := join(t, n, now, 10); !ok || w.turn.Sub(start) != test.next {
			t.Errorf("%s: of %d number %d was given back %d after %v: the next is told %v (%t), want %v: %s", test.rule, test.costs, test.of, test.back, test.after, w.turn.Sub(start), ok, test.next, test.because)
		}
	}
}

// Who gives back without a receipt does so where nobody waits.
func TestGiveBackWhereTurnsAreTold(t *testing.T) {
	for name, rule := range turnsOf(1) {
		n := newNode(t, Config{}, rule)
		for range 3 {
			_, _ = join(t, n, start, 1)
		}
		n.GiveBack(start, requestOf(n, "u"))
		if w, _ := join(t, n, start, 1); w.turn.Sub(start) != 3*time.Second {
			t.Errorf("%s: told %v behind three, of whom one was given back, want 3s", name, w.turn.Sub(start))
		}
	}
	n := newNode(t, Config{}, turnsOf(1)["queue"])
	_, _ = join(t, n, start, 1)
	n.GiveBack(start, requestOf(n, "u"))
	if w, _ := join(t, n, start, 1); !w.turn.Equal(start) {
		t.Errorf("told %v behind one that was given back, want at once", w.turn.Sub(start))
	}
}

// Whoever comes and leaves, in whatever order and however often: those that come out do so
// in the order in which they came, and in any time no more than the bucket lets in at once
// and what flows in that time.
func TestTurnsKeepTheOutflow(t *testing.T) {
	alone.Mark(t)
	for _, capacity := range []uint64{1, 3} {
		for name, rule := range turnsOf(capacity) {
			burst := capacity
			if rule.MaxDelay == 0 {
				burst = 1
			}
			for seed := range uint64(60) {
				t.Run(fmt.Sprint(name, " of ", capacity, ", seed=", seed), func(t *testing.T) {
					keepsTheOutflow(t, newNode(t, Config{}, rule), rand.New(rand.NewPCG(seed, 5)), burst)
				})
			}
		}
	}
}

func keepsTheOutflow(t *testing.T, n *Node, rnd *rand.Rand, burst uint64) {
	var out, waiting []*waiter
	now, left := start, 0
	for range 600 {
		switch rnd.IntN(20) {
		case 0: // fill it up
			for w, ok := join(t, n, now, 1); ok; w, ok = join(t, n, now, 1) {
				waiting = append(waiting, w)
			}
		case 1: // all leave but the last, or but one in the middle
			stay := max(0, len(waiting)-1)
			if rnd.IntN(2) == 0 && len(waiting) > 0 {
				stay = rnd.IntN(len(waiting))
			}
			for i, w := range waiting {
				if i != stay {
					n.Refund(now, w.charges, 0)
					left++
				}
			}
			if len(waiting) > 0 {
				waiting = waiting[stay : stay+1]
			}
		case 2, 3, 4: // one leaves
			if len(waiting) > 0 {
				i := rnd.IntN(len(waiting))
				n.Refund(now, waiting[i].charges, 0)
				waiting, left = slices.Delete(waiting, i, i+1), left+1
			}
		case 5: // the last leaves
			if i := len(waiting) - 1; i >= 0 {
				n.Refund(now, waiting[i].charges, 0)
				waiting, left = waiting[:i], left+1
			}
		case 6, 7, 8, 9, 10:
			now = now.Add(time.Duration(rnd.Int64N(int64(5 * time.Second))))
		default:
			if w, ok := join(t, n, now, 1); ok {
				waiting = append(waiting, w)
			}
		}
		for len(waiting) > 0 && !waiting[0].turn.After(now) {
			out, waiting = append(out, waiting[0]), waiting[1:]
		}
	}
	out = append(out, waiting...)
	if !slices.IsSortedFunc(out, func(a, b *waiter) int { return a.turn.Compare(b.turn) }) {
		t.Error("who came later comes out first")
	}
	slices.SortFunc(out, func(a, b *waiter) int { return cmp.Compare(a.turn.UnixNano(), b.turn.UnixNano()) })
	for i := range out {
		for k := i + int(burst); k < len(out) && k < i+60; k++ {
			if in := out[k].turn.Sub(out[i].turn); in < time.Duration(k-i+1-int(burst))*time.Second {
				t.Fatalf("%d come out within %v, want %d and one a second", k-i+1, in, burst)
			}
		}
	}
	if len(out) < 5 || left < 50 {
		t.Fatalf("%d came out and %d left: too few to tell", len(out), left)
	}
}

// Who was let in by more room than those have who wait gives back nothing before their
// turns have come: the next to come would be told one of these.
func TestPlacesOfWhoHadMoreRoom(t *testing.T) {
	of := func(n *Node, now time.Time, set func(*limit.Request)) *waiter {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u")
		req.Receipt = true
		if set != nil {
			set(req)
		}
		d := n.Check(now, req)
		if !d.Allowed {
			t.Fatalf("denied at %v: %+v", now.Sub(start), d)
		}
		return &waiter{now.Add(d.Delay), 1, slices.Clone(req.Charges)}
	}
	bucket := func() limit.RuleSpec {
		rule := perUser(tokens(10, limit.Flow{Units: 1, Per: time.Second}))
		rule.MaxDelay = time.Minute
		rule.Rates[0].Name = "b"
		return rule
	}
	elastic, classes := bucket(), bucket()
	elastic.Margin = limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 70%"}}
	classes.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 50}}
	for _, test := range []struct {
		name  string
		rule  limit.RuleSpec
		most  func(*limit.Request) // makes a request one of more room
		alone int                  // are let in at once by less room
		more  int                  // and then by more
	}{
		{"a margin that closed", elastic, nil, 0, 15},
		{"a limit of its own", bucket(), func(r *limit.Request) { r.Override("api.b", 20) }, 10, 3},
		{"a higher class", classes, func(r *limit.Request) { r.Set("class", "high") }, 5, 3},
	} {
		for _, after := range []time.Duration{1, time.Millisecond, time.Second} {
			n := newNode(t, Config{}, test.rule)
			if err := n.SetCapacity(start, "api", 0.1, time.Minute); err != nil {
				t.Fatal(err)
			}
			var let []*waiter
			for range test.alone {
				of(n, start, nil)
			}
			for range test.more {
				w := of(n, start, test.most)
				if w.turn != start {
					t.Fatalf("%s: told to wait until %v, want let in at once", test.name, w.turn.Sub(start))
				}
				let = append(let, w)
			}
			if err := n.SetCapacity(start, "api", 0.9, time.Minute); err != nil {
				t.Fatal(err)
			}
			now := start.Add(after)
			last := of(n, now, nil)
			if last.turn == now {
				t.Fatalf("%s: let in at once at %v, want told to wait", test.name, after)
			}
			for _, w := range let {
				n.Refund(now, w.charges, 0)
			}
			for range 3 {
				next := of(n, now, nil)
				if next.turn.Sub(last.turn) < time.Second {
					t.Errorf("%s, given back after %v: told %v, and then %v", test.name, after, last.turn.Sub(start), next.turn.Sub(start))
				}
				last = next
			}
			// Once their turns have come what comes next is given back as ever.
			now = last.turn
			last = of(n, now, nil)
			n.Refund(now, last.charges, 0)
			if next := of(n, now, nil); next.turn != last.turn {
				t.Errorf("%s: the last was told %v and left, the next is told %v", test.name, last.turn.Sub(start), next.turn.Sub(start))
			}
		}
	}
}

// Who is forgotten while requests wait keeps their turns: the next wait behind them, and
// where the table has the key one place at the most stays empty.
func TestForgottenKeysKeepTheirTurns(t *testing.T) {
	for name, rule := range turnsOf(2) {
		for _, scope := range []string{"edge", "global"} {
			for where, most := range map[string]int{"table": 64, "filter": 0} {
				rule.Rates[0].Scope = scope
				n := newNode(t, Config{View: mapView{}}, rule)
				for i := range n.shards {
					n.shards[i].blocked = blocked{most: most, filter: filter{most: 16}}
				}
				last, told := time.Duration(0), 0 // the last turn that was told
				for times, at := range []time.Duration{0, time.Second, 1500 * time.Millisecond, 10 * time.Second, 39 * time.Second, 2 * time.Minute} {
					for range 9 {
						w, ok := join(t, n, start.Add(at), 1)
						turn := w.turn.Sub(start)
						if !ok || turn == at { // it waits for nobody
							continue
						}
						if told++; turn < last+time.Second-time.Microsecond || most > 0 && turn > max(last, at)+2*time.Second {
							t.Errorf("%s, %s, %s: at %v, forgotten %d times, one is told to come at %v, and the one before it at %v", name, scope, where, at, times, turn, last)
						}
						last = turn
					}
					forgetAll(n, start.Add(at))
				}
				if told < 40 {
					t.Errorf("%s, %s, %s: %d were told to wait: this test sees too little", name, scope, where, told)
				}
			}
		}
	}
}

// What nobody says the decision of (a report without its id) is given back where nobody
// waits, though it has not flowed out yet.
func TestGiveBackToAQueueInWhichNobodyWaits(t *testing.T) {
	for _, test := range []struct {
		came, cost uint64
		after      time.Duration
		recorded   bool
	}{
		{1, 1, 0, true}, {1, 1, 500 * time.Millisecond, true}, {1, 3, 2500 * time.Millisecond, true},
		{2, 1, 500 * time.Millisecond, false}, {2, 1, 1500 * time.Millisecond, true},
		{1, 3, 100 * time.Millisecond, true}, {2, 3, 2900 * time.Millisecond, false}, {2, 3, 3100 * time.Millisecond, true},
	} {
		n := newNode(t, Config{}, queueOf(""))
		for range test.came {
			checkCost(n, start, "u", test.cost)
		}
		req := requestOf(n, "u")
		req.Cost = test.cost
		n.GiveBack(start.Add(test.after), req)
		d := checkCost(n, start.Add(test.after), "u", 1)
		if req.Recorded != test.recorded || test.recorded && d.Delay != 0 {
			t.Errorf("%d of cost %d, and one given back after %v: recorded %v, the next waits %v", test.came, test.cost, test.after, req.Recorded, d.Delay)
		}
		req.Release()
	}
}

// A report that was a mistake is taken back by one of as much the other way, and locks nobody
// out: but where others wait, or other edges charged, of whom those may wait behind it.
func TestReportsAreTakenBackWhereNobodyWaits(t *testing.T) {
	for name, rule := range turnsOf(10) {
		for what, c := range map[string]struct {
			before func(n *Node)
			free   bool
		}{
			"alone":       {func(*Node) {}, true},
			"others wait": {func(n *Node) { _, _ = join(t, n, start, 10); _, _ = join(t, n, start, 1) }, false},
			"others waited": {func(n *Node) {
				_, _ = join(t, n, start.Add(-time.Minute), 10)
				_, _ = join(t, n, start.Add(-time.Minute), 1)
			}, true},
		} {
			n := newNode(t, Config{}, rule)
			c.before(n)
			req := requestOf(n, "u")
			req.Cost = 5e9
			n.Report(start, req)
			n.GiveBack(start.Add(100*time.Millisecond), req)
			if d := checkCost(n, start.Add(time.Minute), "u", 1); d.Allowed != c.free || req.Recorded != c.free {
				t.Errorf("%s, %s: recorded %v, and a minute later allowed %v; want %v", name, what, req.Recorded, d.Allowed, c.free)
			}
			req.Release()
		}
	}
}
