package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// tokensAndSlots is a rule of tokens by the minute, and of requests under way.
func tokensAndSlots() limit.RuleSpec {
	return perUser(limit.RateSpec{Name: "tokens", Limit: 100000, Per: time.Minute}, inFlight(20, 30*time.Second))
}

// A request takes one slot, however many tokens it costs, and a report of what
// it cost takes none.
func TestTokensTakeNoSlots(t *testing.T) {
	n := newNode(t, Config{}, tokensAndSlots())
	d, charges := take(t, n, start, "u", 500)
	if !d.Allowed || len(charges) != 2 || charges[0].Cost != 500 || charges[1].Cost != 1 {
		t.Fatalf("500 tokens: %+v, charged %+v; want 500 tokens and one slot", d, charges)
	}
	n.Refund(start, charges, 400)
	req := requestOf(n, "u")
	req.Cost = 700
	n.Report(start, req)
	if got := slotsOf(n, "u"); got != 1 {
		t.Errorf("%d slots are held after 400 were given back and 700 reported, want 1", got)
	}
	n.Refund(start, charges, 0)
	if got := slotsOf(n, "u"); got != 0 {
		t.Errorf("%d slots are held after all was given back, want none", got)
	}
}

// slotsOf is how many slots a user holds, of the second rate.
func slotsOf(n *Node, user string) uint64 {
	req := requestOf(n, user)
	defer req.Release()
	return n.Inspect(start, req)[1].Total
}

// Tokens that are given back free no slot, and leave requests apart.
func TestTokensGivenBackFreeNoSlots(t *testing.T) {
	n := newNode(t, Config{}, tokensAndSlots())
	if got := through(n, start, "u", 30); got != 20 {
		t.Fatalf("%d requests under way, want 20", got)
	}
	req := requestOf(n, "u")
	req.Cost = 500
	n.GiveBack(start, req)
	if got := through(n, start, "u", 30); got != 0 {
		t.Errorf("20 slots are held, and %d more were admitted", got)
	}

	rule := perUser(limit.RateSpec{Name: "tokens", Limit: 100000, Per: time.Minute})
	rule.MinGap = 10 * time.Second
	n = newNode(t, Config{}, rule)
	checkCost(n, start, "u", 500)
	req = requestOf(n, "u")
	req.Cost = 100
	n.GiveBack(start, req)
	if d := check(n, start, "u"); d.Allowed {
		t.Error("a part given back undid min_gap")
	}

	// Where a rule has nothing else, there is no other way to release a slot
	// without a receipt.
	n = newNode(t, Config{}, perUser(inFlight(2, time.Minute)))
	through(n, start, "u", 2)
	n.GiveBack(start, requestOf(n, "u"))
	if got := through(n, start, "u", 2); got != 1 {
		t.Errorf("one of two slots was released: %d admitted, want 1", got)
	}
}

// Neither a report nor what is given back concerns rules that count responses;
// what was answered is for those alone, their gap included.
func TestReportsLeaveCountedResponsesAlone(t *testing.T) {
	declined := limit.RuleSpec{
		Name: "declined", Group: "b", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}},
		CountWhen: "response.status == 402", MinGap: time.Minute,
	}
	n := newConditionNode(t, perUser(limit.RateSpec{Name: "tokens", Limit: 100000, Per: time.Minute}), declined)
	counted := func() (totals [3]uint64) {
		req := requestOf(n, "u")
		defer req.Release()
		for i, b := range n.Inspect(start, req) {
			totals[i] = b.Total
		}
		return totals
	}
	check(n, start, "u")
	report := requestOf(n, "u")
	report.Cost = 500
	n.Report(start, report)
	if got, want := counted(), [3]uint64{501, 0, 0}; got != want {
		t.Errorf("after a report of 500: %v, want %v", got, want)
	}
	req := requestOf(n, "u")
	req.Set("response.status", "402")
	n.Answered(start, req)
	if got, want := counted(), [3]uint64{501, 1, 1}; got != want {
		t.Errorf("after one declined: %v, want %v", got, want)
	}
	if d := check(n, start.Add(time.Second), "u"); d.Allowed {
		t.Error("a second after one declined: allowed, want a minute apart")
	}
	n.GiveBack(start, report)
	if got, want := counted(), [3]uint64{1, 1, 1}; got != want {
		t.Errorf("after 500 were given back: %v, want %v", got, want)
	}
}

// Another limit counts the slots on that are held. Another lease counts anew, as README says.
func TestSlotsHeldWhenRulesChange(t *testing.T) {
	for _, change := range []struct {
		limit uint64
		lease time.Duration
		more  int
	}{{6, 30 * time.Second, 1}, {4, 30 * time.Second, 0}, {5, time.Minute, 5}, {5, 15 * time.Second, 5}} {
		n := newNode(t, Config{View: mapView{}}, perUser(inFlight(5, 30*time.Second)))
		if got := through(n, start, "u", 8); got != 5 {
			t.Fatalf("%d of 5 slots were taken", got)
		}
		n.SetRules(compile(t, perUser(inFlight(change.limit, change.lease))))
		n.Tick(start.Add(time.Second))
		if got := through(n, start.Add(time.Second), "u", 8); got != change.more {
			t.Errorf("5 of 5 held, then %d for %v: %d more, want %d", change.limit, change.lease, got, change.more)
		}
	}
}
