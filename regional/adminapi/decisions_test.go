package adminapi

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// tell has an edge say what it decided.
func (d *desk) tell(edge string, seq uint64, rules ...deltasync.Told) {
	d.t.Helper()
	messages, err := deltasync.Tells(deltasync.Tell{Incarnation: 1, Seq: seq, Whole: true}, rules)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range messages {
		if err := d.agg.HearTell(time.Now(), deltasync.TellSubject("eu", "ams", edge), m); err != nil {
			d.t.Fatal(err)
		}
	}
}

func TestDecisionsAreTold(t *testing.T) {
	d := newDesk(t, configs.FormatSpillgate)
	d.want(http.StatusOK, `"rules":[]`, "vi", http.MethodGet, "/admin/v1/decisions", "")
	for i, n := range []uint64{0, 90} {
		d.tell("e1", uint64(i+1), deltasync.Told{Namespace: "shop", Rule: "a", Decided: deltasync.Decisions{Allow: n, Deny: n / 9}, Trials: [2][2]uint64{{n, 0}, {n / 9, 0}}}, deltasync.Told{Namespace: "bank", Rule: "a"})
		d.agg.Tick(time.Now())
	}
	var got Tells
	if err := json.Unmarshal(d.want(http.StatusOK, `"regions":[{"region":"eu","heard":true,`, "ci", http.MethodGet, "/admin/v1/rules/a/decisions?namespace=shop", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rules) != 1 || got.Rules[0].Denied != 0.1 || got.Rules[0].OnlyLive != 0.1 || got.Rules[0].PerSecond != 100 || got.Rules[0].Regions["eu"].Edges != 1 {
		t.Errorf("told is %+v, want 100 requests a second, a tenth of them denied, and that newly", got.Rules)
	}
	d.want(http.StatusNotFound, `no edge has told of a rule \"b\"`, "vi", http.MethodGet, "/admin/v1/rules/b/decisions", "")
	d.want(http.StatusNotFound, `in namespace \"none\"`, "vi", http.MethodGet, "/admin/v1/rules/a/decisions?namespace=none", "")
	d.want(http.StatusForbidden, "not all of them", "ci", http.MethodGet, "/admin/v1/decisions", "")
	d.want(http.StatusUnauthorized, "token", "", http.MethodGet, "/admin/v1/decisions", "")
}

// Rules of regions are summed, and one that was not heard is told so.
func TestTellsOfRegions(t *testing.T) {
	rule := func(n uint64, seconds float64) []regional.RuleDecisions {
		c := regional.Counted{Decided: deltasync.Decisions{Allow: n}, Trials: [2][2]uint64{{n, 0}, {0, 0}}}
		return []regional.RuleDecisions{{Namespace: "shop", Rule: "a", Edges: 2, Counted: c, Minute: c, Seconds: seconds}}
	}
	got := tellsOf([]regional.RegionDecisions{
		{Region: "eu", Heard: true, Listened: 60, Rules: rule(60, 60)}, {Region: "us", Heard: true, Partial: 1, Listened: 60, Rules: rule(20, 10)}, {Region: "ap"},
	})
	if len(got.Rules) != 1 || got.Rules[0].PerSecond != 3 || got.Rules[0].Decided.All() != 80 || got.Rules[0].Edges != 4 || len(got.Rules[0].Regions) != 2 {
		t.Errorf("sums are %+v", got.Rules)
	}
	if r := got.Regions; len(r) != 3 || !r[0].Complete || r[1].Complete || r[2].Heard || r[2].Complete {
		t.Errorf("regions are %+v", r)
	}
}
