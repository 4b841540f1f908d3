package edge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
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

// What was used of a bucket is what it was, whoever asks once it was forgotten, be it that his drains
// faster, or that rules have all drain faster since.
func TestForgottenBucketOfAFasterPace(t *testing.T) {
	bucket := func(capacity, refill uint64) limit.RuleSpec {
		return perUser(limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: refill, Per: time.Hour}, Scope: "edge"})
	}
	tiered := bucket(100, 100)
	tiered.TierFrom = "plan"
	n, ask := tenantNode(t, tiered)
	in := func(plan string, tries int) (admitted int) {
		for range tries {
			if ask(start, "u", plan).Allowed {
				admitted++
			}
		}
		return admitted
	}
	in("", 90)
	forgetAll(n, start)
	if got := in("gold", 1200); got != 910 {
		t.Errorf("90 used of 100, then gold has %d of its 1000, want 910", got)
	}
	m := newNode(t, Config{}, bucket(100, 100))
	through(m, start, "u", 90)
	forgetAll(m, start)
	m.SetRules(compile(t, bucket(1000, 1000)))
	if got := through(m, start, "u", 1200); got != 910 {
		t.Errorf("90 used of 100, then all have %d of 1000, want 910", got)
	}
}

// Slots that are released without receipts once their key was forgotten are free, where nobody else
// counts them.
func TestForgottenSlotsAreReleased(t *testing.T) {
	spec := inFlight(20, time.Hour)
	spec.Scope = "edge"
	n := newNode(t, Config{}, perUser(spec))
	in := through(n, start, "u", 18)
	forgetAll(n, start)
	now := start.Add(time.Minute)
	for i := range in {
		giveBackOne(n, now, "u")
		req := requestOf(n, "u")
		req.Peek = true
		if d, want := n.Check(now, req), uint64(20-in+i+1); d.Remaining != want {
			t.Fatalf("%d of %d released, and %d are free, want %d", i+1, in, d.Remaining, want)
		}
		req.Release()
	}
	giveBackOne(n, now, "u")
	if got := through(n, now, "u", 40); got != 20 {
		t.Errorf("all are released, and %d of 20 are admitted", got)
	}
}

// What the region was never told stays used, however often the key is forgotten, and whatever it
// says of others.
func TestForgottenTwiceAndNeverTold(t *testing.T) {
	for _, twice := range []bool{false, true} {
		view := mapView{}
		n := newNode(t, Config{View: view}, perUser(limit.RateSpec{Limit: 20, Per: time.Hour, Consistency: "loose"}))
		through(n, start, "u", 18)
		forgetAll(n, start)
		now := start.Add(time.Second)
		if twice {
			checkCost(n, now, "u", 5)
			forgetAll(n, now)
		}
		clear(view)
		now = now.Add(time.Second)
		checkCost(n, now, "u", 5)
		slice := n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano())
		clustered(t, n, now, 5, deltasync.Totals{Others: []crdt.Cell{{Slice: slice, Charges: 20, Refunds: 19}}})
		if got := through(n, now, "u", 40); got > 2 {
			t.Errorf("forgotten twice %v: 18 in and never told, and %d more of 20", twice, got)
		}
	}
}

// Receipts of before a key was forgotten and of its next life give back what they name, also where both
// are of one slice.
func TestReceiptsOfTwoLivesInOneSlice(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"slots": inFlight(20, time.Minute), "sub windows": {Limit: 20, Per: time.Hour},
		"log": {Algorithm: "sliding_log", Limit: 20, Per: time.Hour}, "fixed window": {Algorithm: "fixed_window", Limit: 20, Per: time.Hour},
	} {
		for _, spec.Scope = range []string{"edge", "global"} {
			n := newNode(t, Config{}, perUser(spec))
			var receipts [][]limit.Charge
			for range 17 {
				_, c := take(t, n, start, "u", 1)
				receipts = append(receipts, c)
			}
			forgetAll(n, start.Add(time.Millisecond))
			for range 3 {
				_, c := take(t, n, start.Add(2*time.Millisecond), "u", 1)
				receipts = append(receipts, c)
			}
			now := start.Add(100 * time.Millisecond)
			for _, i := range []int{0, 1, 2, 17, 18, 19} {
				n.Refund(now, receipts[i], 0)
			}
			if got := through(n, now, "u", 40); got != 6 {
				t.Errorf("%s of scope %s: 6 of 20 are given back, and %d admitted", name, spec.Scope, got)
			}
		}
	}
}

// Slots of a key that was forgotten are renewed, those of its next life too, and all come back.
func TestRenewedSlotsOfTwoLives(t *testing.T) {
	for _, scope := range []string{"edge", "global"} {
		spec := inFlight(20, time.Hour)
		spec.Scope = scope
		n, now := newNode(t, Config{}, perUser(spec)), start
		var receipts [][]limit.Charge
		for i := range 20 {
			if i == 17 {
				forgetAll(n, now)
			}
			now = now.Add(time.Millisecond)
			_, c := take(t, n, now, "u", 1)
			receipts = append(receipts, c)
		}
		for _, c := range receipts {
			n.Renew(now, c)
		}
		if got := through(n, now, "u", 9); got != 0 {
			t.Errorf("scope %s: %d more than 20 that are renewed are admitted", scope, got)
		}
		for i, c := range receipts {
			if n.Refund(now, c, 0); i == 9 {
				if got := n.Inspect(now, requestOf(n, "u")); len(got) != 1 || got[0].Total > 20 {
					t.Errorf("scope %s: half of them gone, %+v", scope, got)
				}
			}
		}
		if got := through(n, now, "u", 40); got != 20 {
			t.Errorf("scope %s: all 20 are given back, and %d admitted", scope, got)
		}
	}
}

// A key that is forgotten again after some was given back is held to what is used by then.
func TestForgottenAgainIsHeldToWhatIsLeft(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"slots": inFlight(20, time.Hour), "sub windows": {Limit: 20, Per: time.Hour},
		"log": {Algorithm: "sliding_log", Limit: 20, Per: time.Hour}, "fixed window": {Algorithm: "fixed_window", Limit: 20, Per: time.Hour},
	} {
		for _, spec.Scope = range []string{"edge", "global"} {
			n := newNode(t, Config{View: mapView{}}, perUser(spec))
			now := start
			var receipts [][]limit.Charge
			for range 20 {
				_, c := take(t, n, now, "u", 1)
				receipts = append(receipts, c)
			}
			forgetAll(n, now)
			for _, c := range receipts[:5] {
				n.Refund(now, c, 0)
			}
			forgetAll(n, now)
			if got := through(n, now, "u", 20); got != 5 {
				t.Errorf("%s of scope %s: 15 of 20 are used, and %d more admitted", name, spec.Scope, got)
			}
		}
	}
}
