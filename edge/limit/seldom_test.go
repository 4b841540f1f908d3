package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Strict rates that deny who comes now and then are warned of, where requests do not wait for rights.
func TestWhoComesSeldomIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		rate limit.RateSpec
		key  []string
		want string // the time told; "": no warning
	}{
		"a second":           {limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "strict"}, []string{"user"}, "10s"},
		"a minute":           {limit.RateSpec{Limit: 100, Per: time.Minute, Consistency: "strict"}, []string{"user"}, "2m"},
		"half an hour":       {limit.RateSpec{Limit: 100, Per: 30 * time.Minute, Consistency: "strict"}, []string{"user"}, "30m"},
		"an hour":            {limit.RateSpec{Limit: 100, Per: time.Hour, Consistency: "strict"}, []string{"user"}, ""},
		"who waits":          {limit.RateSpec{Limit: 100, Per: time.Minute, Consistency: "strict", StrictWait: time.Second}, []string{"user"}, ""},
		"one counter of all": {limit.RateSpec{Limit: 100, Per: time.Minute, Consistency: "strict"}, nil, ""},
		"of each edge":       {limit.RateSpec{Limit: 100, Per: time.Minute, Consistency: "strict", Scope: "edge"}, []string{"user"}, ""},
		"adaptive":           {limit.RateSpec{Limit: 100, Per: time.Minute}, []string{"user"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "r", Key: c.key, Rates: []limit.RateSpec{c.rate}}}})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got := ""
			for _, of := range set.Warnings() {
				for _, p := range of {
					if p.Code == "W265" && p.Path == "rules[0].rates[0]" {
						got += p.Detail
					}
				}
			}
			if (got == "") != (c.want == "") || c.want != "" && !strings.Contains(got, "once in "+c.want+" is") {
				t.Errorf("warned of %q, want of less than once in %q", got, c.want)
			}
		})
	}
}
