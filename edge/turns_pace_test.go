package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func queueOf(tierFrom string) limit.RuleSpec {
	rule := perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true, Scope: "edge"})
	rule.TierFrom = tierFrom
	return rule
}

// Whoever leaves as the last of a queue gives his turn to the next, also where the same
// rules were loaded again, or a tenant of another pace asked, in between.
func TestPlacesAcrossReloadsAndTiers(t *testing.T) {
	for _, between := range []string{"nothing", "a reload", "another tier"} {
		compiled := func() *limit.Set {
			set, problems := limit.Compile(limit.Document{Namespace: "test", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}}, Rules: []limit.RuleSpec{queueOf("plan")}})
			if set == nil {
				t.Fatal(problems)
			}
			return set
		}
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		n.SetRules(compiled())
		ask := func(plan string, peek bool) (limit.Decision, []limit.Charge) {
			req := requestOf(n, "u")
			defer req.Release()
			req.Receipt, req.Peek = !peek, peek
			req.Set("plan", plan)
			d := n.Check(start, req)
			return d, append([]limit.Charge(nil), req.Charges...)
		}
		for range 5 {
			ask("gold", false)
		}
		for range 20 {
			d, charges := ask("gold", false)
			if d.Delay != 2500*time.Millisecond {
				t.Fatalf("%s in between: with five waiting at 2 a second the next is told to wait %v", between, d.Delay)
			}
			switch between {
			case "a reload":
				n.SetRules(compiled())
			case "another tier":
				ask("", true)
			}
			n.Refund(start, charges, 0)
		}
	}
}

// One request by a larger limit of its own has nobody overtake those who wait.
func TestFasterRequestLetsNobodyOvertake(t *testing.T) {
	n, at, last := newNode(t, Config{}, queueOf("")), start, start
	for ; at.Before(start.Add(100 * time.Second)); at = at.Add(time.Second) {
		n.Tick(at)
		for range 40 {
			w, ok := join(t, n, at, 1)
			if !ok {
				break
			}
			last = w.turn
		}
	}
	req := requestOf(n, "u")
	defer req.Release()
	req.Override("api.q", 400)
	if d := n.Check(at, req); !d.Allowed {
		t.Fatalf("%+v, want it admitted by a limit of 400", d)
	}
	at = at.Add(2 * time.Second)
	for range 2 {
		w, ok := join(t, n, at, 1)
		if !ok {
			break
		}
		if w.turn.Before(last.Add(time.Second - time.Microsecond)) {
			t.Errorf("told to come at %v, and the one before at %v", w.turn.Sub(start), last.Sub(start))
		}
		last = w.turn
	}
}
