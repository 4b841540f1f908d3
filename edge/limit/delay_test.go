package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Waiting for room is for buckets, whose room comes back bit by bit.
func TestMaxDelayIsRefused(t *testing.T) {
	bucket := limit.RateSpec{Name: "b", Algorithm: "token_bucket", Capacity: 5, Refill: limit.Flow{Units: 1, Per: time.Second}}
	for name, test := range map[string]struct {
		rule limit.RuleSpec
		says string
	}{
		"a window": {limit.RuleSpec{MaxDelay: time.Second, Rates: []limit.RateSpec{bucket, {Limit: 5, Per: time.Minute}}}, "1m, a sub_windows"},
		"too long": {limit.RuleSpec{MaxDelay: time.Hour, Rates: []limit.RateSpec{bucket}}, "cannot wait for 1h"},
		"negative": {limit.RuleSpec{MaxDelay: -time.Second, Rates: []limit.RateSpec{bucket}}, "cannot wait for -1s"},
		"a trial":  {limit.RuleSpec{MaxDelay: time.Second, Mode: "shadow", Rates: []limit.RateSpec{bucket}}, "shadow"},
		"no rates": {limit.RuleSpec{MaxDelay: time.Second, Allow: true}, "max_delay"},
	} {
		test.rule.Name = "r"
		_, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{test.rule}})
		if len(problems) == 0 || len(problems[0]) == 0 || problems[0][0].Path != "rules[0].max_delay" || !strings.Contains(problems[0][0].Error(), test.says) {
			t.Errorf("%s: %v, want a problem at rules[0].max_delay that says %q", name, problems, test.says)
		}
	}
	if _, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "r", MaxDelay: time.Second, MinGap: time.Second, Rates: []limit.RateSpec{bucket}}}}); problems != nil {
		t.Errorf("a bucket and a gap: %v", problems)
	}
}
