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
