package edge

import (
	"fmt"
	"slices"
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
					short = 1
				}
				if since > 0 && (short > 0 || rate.Align == "first_hit") {
					continue // it is not known what of that is in the slices, or was in another window: receipts of before give nothing back
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
					now := start.Add(time.Millisecond)
					if got := through(n, now, "u", since); len(receipts) != in || got != since {
						t.Fatal(name, len(receipts), got)
					}
					for _, charges := range receipts[:back] {
						n.Refund(now, charges, 0)
					}
					if again {
						forgetAll(n, now)
					}
					if got, room := through(n, now, "u", 2*most), most-in+back-since; got > room || !again && got < room-short {
						t.Errorf("%s: %d in, %d since it was forgotten, %d given back, forgotten again: %v: %d admitted, there is room for %d", name, in+since, since, back, again, got, room)
					}
				}
			}
		}
	}
}

// Of copies of a receipt, of a charge since then, no more is given back than it was.
func TestForgottenKeyAndCopiesOfAReceipt(t *testing.T) {
	const most, in = 20, 18
	for name, rate := range lentKinds(most, time.Hour) {
		for _, later := range []time.Duration{0, 10 * time.Minute} {
			n := newNode(t, Config{}, perUser(rate))
			got := through(n, start, "u", in)
			forgetAll(n, start)
			now := start.Add(later)
			d, charges := take(t, n, now, "u", 1)
			for range 10 {
				n.Refund(now, slices.Clone(charges), 0)
			}
			if more := through(n, now, "u", 2*most); got != in || !d.Allowed || in+more > most && rate.Algorithm != "token_bucket" || in+more > most+4 { // of which some drains
				t.Errorf("%s, %v later: %d and one in, that is given back ten times: %d more of %d", name, later, got, more, most)
			}
		}
	}
}
