package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A rate's word comes before its rule's, and that before the document's; what a rate
// cannot do it does not take from them.
func TestOnPartition(t *testing.T) {
	for _, c := range []struct {
		consistency, all, rule, rate string
		want                         limit.Partition
	}{
		{"adaptive", "", "", "", limit.PartitionShare}, {"loose", "", "", "", limit.PartitionOpen}, {"strict", "", "", "", 0},
		{"adaptive", "closed", "", "", limit.PartitionClosed}, {"loose", "share", "", "", limit.PartitionOpen}, {"strict", "closed", "", "", 0},
		{"adaptive", "closed", "open", "", limit.PartitionOpen}, {"adaptive", "closed", "open", "share", limit.PartitionShare}, {"loose", "", "", "closed", limit.PartitionClosed},
	} {
		doc := limit.Document{Namespace: "acme", Defaults: limit.Defaults{OnPartition: c.all}, Rules: []limit.RuleSpec{{
			Name: "api", OnPartition: c.rule, Rates: []limit.RateSpec{{Limit: 10, Per: time.Second, Consistency: c.consistency, OnPartition: c.rate}},
		}}}
		set, problems := limit.Compile(doc)
		if len(problems) > 0 {
			t.Errorf("%+v: %v", c, problems)
		} else if got := set.Rules()[0].Rates[0].OnPartition; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What no rate can do is refused where it stands.
func TestOnPartitionRefused(t *testing.T) {
	for _, c := range []struct{ consistency, all, rule, rate, code, path string }{
		{"adaptive", "ajar", "", "", "E180", "defaults.on_partition"}, {"adaptive", "", "ajar", "", "E180", "rules[0].on_partition"}, {"adaptive", "", "", "ajar", "E180", "rules[0].rates[0].on_partition"},
		{"loose", "", "", "share", "E225", "rules[0].rates[0].on_partition"}, {"strict", "", "", "open", "E225", "rules[0].rates[0].on_partition"},
		{"strict", "", "closed", "", "E225", "rules[0].on_partition"}, {"loose", "", "share", "", "E225", "rules[0].on_partition"},
	} {
		doc := limit.Document{Namespace: "acme", Defaults: limit.Defaults{OnPartition: c.all}, Rules: []limit.RuleSpec{{
			Name: "api", OnPartition: c.rule, Rates: []limit.RateSpec{{Limit: 10, Per: time.Second, Consistency: c.consistency, OnPartition: c.rate}},
		}}}
		_, problems := limit.Compile(doc)
		if len(problems) != 1 || len(problems[0]) != 1 {
			t.Errorf("%+v: %v, want one problem", c, problems)
		} else if p := problems[0][0]; p.Code != c.code || p.Path != c.path || p.Hint == "" {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// Of one request nobody can have a share: a gap is loose in adaptive rules.
func TestGapsAreLoose(t *testing.T) {
	for rule, want := range map[[2]string][2]string{
		{"", ""}: {"loose", "open"}, {"adaptive", "closed"}: {"loose", "closed"}, {"strict", ""}: {"strict", ""}, {"loose", ""}: {"loose", "open"},
	} {
		set, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "api", MinGap: time.Second, Consistency: rule[0], OnPartition: rule[1]}}})
		if set == nil {
			t.Fatal(problems)
		}
		rate := set.Rules()[0].Rates[0]
		if got := [2]string{rate.Consistency.String(), ""}; got[0] != want[0] || want[1] != "" && rate.OnPartition.String() != want[1] {
			t.Errorf("%v: %v and %v, want %v", rule, rate.Consistency, rate.OnPartition, want)
		}
	}
}
