package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// readAs is a request of a user whose path can be read in several ways.
func readAs(n *Node, user string, path string, others ...string) *limit.Request {
	req := requestOf(n, user)
	req.Set("path", path)
	req.AlsoPaths(others)
	return req
}

// ownOf is what is used of the rule's first rate for a request, as the node counts.
func ownOf(n *Node, req *limit.Request) uint64 { return n.Inspect(start, req)[0].Own }

// What has no path in its key is charged once, however many readings a path has: be it
// that it may have one, and has not.
func TestReadingsChargeOtherKeysOnce(t *testing.T) {
	for _, key := range []string{"user", "route"} {
		set, problems := limit.Compile(limit.Document{
			Namespace: "test", Keys: map[string]limit.KeySource{"route": {From: []string{"user", "path"}}},
			Rules: []limit.RuleSpec{{Name: "r", Key: []string{key}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}},
		})
		if set == nil {
			t.Fatal(problems)
		}
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
		n.SetRules(set)
		n.Check(start, readAs(n, "u", "/a", "/b", "/c"))
		if used := ownOf(n, readAs(n, "u", "/a")); used != 1 {
			t.Errorf("key %s: a request of three readings used %d, want 1", key, used)
		}
	}
}

// Each reading is charged all that the request costs.
func TestReadingsChargeTheCost(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{Name: "r", Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}})
	req := readAs(n, "", "/a", "/b", "/c")
	req.Cost = 7
	n.Check(start, req)
	for _, path := range []string{"/a", "/b", "/c"} {
		if used := ownOf(n, readAs(n, "", path)); used != 7 {
			t.Errorf("%s: %d used, want 7", path, used)
		}
	}
}

// A reading by which a rule does not apply is not charged to it.
func TestReadingsThatMeetNoRuleAreNotCharged(t *testing.T) {
	n := newNode(t, Config{}, limit.RuleSpec{Name: "login", Match: limit.MatchSpec{Path: []string{"/login"}}, Key: []string{"path"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}})
	req := readAs(n, "", "/public", "/login")
	req.Receipt = true
	if d := n.Check(start, req); !d.Allowed || len(req.Charges) != 1 {
		t.Errorf("%+v, charged %d counters, want the one of /login", d, len(req.Charges))
	}
	if used := ownOf(n, readAs(n, "", "/login")); used != 1 {
		t.Errorf("%d of /login used, want 1", used)
	}
}
