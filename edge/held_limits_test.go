package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// flood has many keys come that use a part of their limit each, so that what
// they do not need of the ledger is forgotten.
func flood(n *Node, now time.Time, cost uint64) {
	for i := range 12 * shards * maxCounters / 3 {
		req := requestOf(n, fmt.Sprint("flood", i))
		req.Cost = cost
		n.Check(now, req)
		req.Release()
	}
}

// A key that has used its limit up stays so in a flood of others, though it was
// last asked by a larger limit.
func TestFloodAfterALargerLimit(t *testing.T) {
	alone.Mark(t)
	spec := limit.RateSpec{Name: "r", Limit: 100, Per: time.Hour, Scope: "edge"}
	n := newNode(t, Config{MaxKeys: shards * maxCounters}, perUser(spec))
	through(n, start, "u", 100)
	req := requestOf(n, "u")
	req.Override("api.r", 10000)
	req.Peek = true
	n.Check(start, req)
	flood(n, start, 70)
	if got := through(n, start, "u", 200); got != 0 {
		t.Errorf("after a peek by a larger limit, %d more of 100 were admitted", got)
	}
	for _, used := range []int{50, 500, 800} { // of 1000, gold's
		rule := perUser(spec)
		rule.TierFrom = "plan"
		n, ask := tenantNode(t, rule)
		for range used {
			ask(start, "u", "gold")
		}
		forgetAll(n, start)
		want := max(0, 100-used)
		if used == 50 { // below the threshold of both: it may be forgotten
			want = 100
		}
		if got := through(n, start, "u", 200); got != want {
			t.Errorf("%d used by a gold tenant: %d more of 100 were admitted by the rule's own limit, want %d", used, got, want)
		}
	}
}

// Whoever has a larger limit to himself is not kept out for having used as much
// as others may.
func TestForgottenKeyOfALargerLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 100, Per: time.Hour, Scope: "edge"})
	rule.TierFrom = "plan"
	n, ask := tenantNode(t, rule)
	for range 500 {
		ask(start, "u", "gold")
	}
	forgetAll(n, start)
	for i := range 400 {
		if d := ask(start, "u", "gold"); !d.Allowed {
			t.Fatalf("request %d of gold, with half of 1000 used before: %+v", i+1, d)
		}
	}
	if got := through(n, start, "u", 10); got != 0 {
		t.Errorf("%d admitted by the rule's own limit of 100, of which 900 are used", got)
	}
}

// A limit that is lowered, or raised, judges what was counted before the key was forgotten.
func TestForgottenKeyUnderAChangedLimit(t *testing.T) {
	for to, want := range map[uint64]int{90: 0, 50: 0, 100: 0, 110: 10, 120: 20, 400: 300} {
		for _, live := range []bool{false, true} {
			rule := func(most uint64) limit.RuleSpec {
				return perUser(limit.RateSpec{Limit: most, Per: time.Hour, Scope: "edge"})
			}
			n := newNode(t, Config{}, rule(100))
			through(n, start, "u", 100)
			forgetAll(n, start)
			if live {
				check(n, start, "u")
			}
			n.SetRules(compile(t, rule(to)))
			if got := through(n, start, "u", 500); got != want {
				t.Errorf("live %v: 100 of 100 used, then a limit of %d: %d more admitted, want %d", live, to, got, want)
			}
		}
	}
}

// What a key used that was forgotten near its limit stays used, but for what was given back since: also
// where that is most of it, where some was admitted meanwhile, and where it is forgotten again.
func TestForgottenKeyThatIsGivenBack(t *testing.T) {
	const most, in = 20, 18
	for name, rate := range lentKinds(most, time.Hour) {
		rate.Scope = "edge"
		for _, back := range []int{5, 10, in} {
			for _, since := range []int{0, 1} {
				short := 0
				if rate.Algorithm == "token_bucket" { // of which it is known by some 17 ms how full it was
					if short = 1; since > 0 {
						continue // and not what of that is in the slices: receipts of before give nothing back
					}
				}
				for _, again := range []bool{false, true} {
					n := newNode(t, Config{}, perUser(rate))
					var receipts [][]limit.Charge
					for range in {
						if d, charges := take(t, n, start, "u", 1); d.Allowed {
							receipts = append(receipts, charges)
						}
					}
					forgetAll(n, start)
					if got := through(n, start, "u", since); len(receipts) != in || got != since {
						t.Fatal(name, len(receipts), got)
					}
					for _, charges := range receipts[:back] {
						n.Refund(start, charges, 0)
					}
					if again {
						forgetAll(n, start)
					}
					if got, room := through(n, start, "u", 2*most), most-in+back-since; got > room || !again && got < room-short {
						t.Errorf("%s: %d in, %d since it was forgotten, %d given back, forgotten again: %v: %d admitted, there is room for %d", name, in+since, since, back, again, got, room)
					}
				}
			}
		}
	}
}
