package limit_test

import (
	"fmt"
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

// A request waits in one queue only: where it meets two, this is warned of, unless both
// let out what they say all the same.
func TestTwoQueuesAreWarnedOf(t *testing.T) {
	bucket := func(scope string) limit.RateSpec {
		return limit.RateSpec{Name: "b" + scope, Algorithm: "token_bucket", Capacity: 5, Refill: perSecond(1), Scope: scope}
	}
	queue := func(name string, flow uint64, scope string) limit.RateSpec {
		return limit.RateSpec{Name: name, Algorithm: "leaky_bucket", Capacity: 50, Outflow: perSecond(flow), Queue: true, Scope: scope}
	}
	window := limit.RateSpec{Limit: 100, Per: time.Hour}
	rule := func(group string, match limit.MatchSpec, rates ...limit.RateSpec) limit.RuleSpec {
		return limit.RuleSpec{Name: "r" + group, Group: group, Match: match, Rates: rates}
	}
	delayed := func(r limit.RuleSpec) limit.RuleSpec { r.MaxDelay = time.Second; return r }
	gap := func(r limit.RuleSpec) limit.RuleSpec { r.MinGap = time.Second; return r }
	costly := func(r limit.RuleSpec) limit.RuleSpec { r.Cost.FromHeader = "X-Bytes"; return r }
	shadow := func(r limit.RuleSpec) limit.RuleSpec { r.Mode = "shadow"; return r }
	at := func(path string) limit.MatchSpec { return limit.MatchSpec{Path: []string{path}} }
	all := limit.MatchSpec{}
	for name, tc := range map[string]struct {
		rules []limit.RuleSpec
		want  string // the place, and what it says
	}{
		"the second is faster":         {[]limit.RuleSpec{rule("a", all, queue("x", 1, ""), window, queue("y", 2, ""))}, "rules[0].rates[2].queue y makes nobody wait"},
		"the first is faster":          {[]limit.RuleSpec{rule("a", all, queue("x", 2, ""), queue("y", 1, ""))}, "rules[0].rates[0].queue x makes nobody wait"},
		"both are as fast":             {[]limit.RuleSpec{rule("a", all, queue("x", 1, ""), queue("y", 1, ""))}, "rules[0].rates[1].queue y makes nobody wait"},
		"of an edge and of all":        {[]limit.RuleSpec{rule("a", all, queue("x", 1, "edge"), queue("y", 2, ""))}, "rules[0].rates[1].queue requests wait for the longer of x and y alone"},
		"delayed by an edge's and all": {[]limit.RuleSpec{delayed(rule("a", all, bucket(""), bucket("edge")))}, "rules[0].max_delay requests wait for the longer of b and bedge alone"},
		"requests and bytes":           {[]limit.RuleSpec{costly(gap(delayed(rule("a", all, bucket("")))))}, "rules[0].max_delay requests wait for the longer of b and min_gap alone"},
		"delayed by two buckets":       {[]limit.RuleSpec{gap(delayed(rule("a", all, bucket(""), limit.RateSpec{Algorithm: "token_bucket", Capacity: 9, Refill: perSecond(3)})))}, ""},
		"a queue and a gap":            {[]limit.RuleSpec{costly(gap(rule("a", all, queue("x", 1, ""))))}, ""},
		"one queue":                    {[]limit.RuleSpec{rule("a", all, queue("x", 1, ""), window)}, ""},
		"a bucket that denies":         {[]limit.RuleSpec{rule("a", all, queue("x", 1, ""), bucket("edge"))}, ""},

		"two groups":                    {[]limit.RuleSpec{rule("a", all, queue("x", 1, "")), rule("b", at("/up"), window, queue("y", 1, ""))}, `rules[1].rates[1].queue "ra" and "rb" both make requests wait, and can meet the same ones`},
		"two groups, the second delays": {[]limit.RuleSpec{rule("b", at("/up"), queue("y", 1, "")), delayed(rule("a", at("/**"), bucket("")))}, `rules[1].max_delay "rb" and "ra" both make requests wait`},
		"two groups, one denies":        {[]limit.RuleSpec{rule("a", all, bucket("")), rule("b", all, queue("y", 1, ""))}, ""},
		"two groups, one a trial":       {[]limit.RuleSpec{delayed(rule("a", all, bucket(""))), shadow(rule("b", all, queue("y", 1, "")))}, ""},
		"two groups, paths apart":       {[]limit.RuleSpec{rule("a", at("/x"), queue("y", 1, "")), rule("b", at("/y"), queue("y", 1, ""))}, ""},
		"two groups, keys apart":        {[]limit.RuleSpec{func() limit.RuleSpec { r := rule("a", all, queue("y", 1, "")); r.Key = []string{"user"}; return r }(), rule("b", limit.MatchSpec{Lacks: []string{"user"}}, queue("y", 1, ""))}, ""},
	} {
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: tc.rules})
		if problems != nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		got := ""
		for _, w := range set.Warnings()[0] {
			if w.Code == "W233" {
				got += w.Path + " " + w.Detail
				if w.Hint == "" {
					t.Errorf("%s: %v has no hint", name, w)
				}
			}
		}
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: warned of %q, want %q", name, got, tc.want)
		}
	}
}

// Of rules of one group one applies: they are no two queues, however many there are, and
// among many of two groups the one that meets another is found.
func TestTwoQueuesAreFoundAmongMany(t *testing.T) {
	rules := make([]limit.RuleSpec, 5000)
	for i := range rules {
		rules[i] = limit.RuleSpec{Name: fmt.Sprint("r", i), Match: limit.MatchSpec{Path: []string{fmt.Sprint("/p", i, "/**")}}, Rates: []limit.RateSpec{queueOf(5)}}
	}
	told := func() (all []string) {
		set, problems := limit.Compile(limit.Document{Namespace: "t", Rules: rules})
		if problems != nil {
			t.Fatal(problems)
		}
		for _, w := range set.Warnings()[0] {
			all = append(all, w.Code+" "+w.Path)
		}
		return all
	}
	if got := told(); len(got) > 0 {
		t.Errorf("rules of one group: %v, want no warning", got)
	}
	rules[4000].Group, rules[4000].Match.Path = "g", []string{"/p17/x"}
	if got, want := fmt.Sprint(told()), "[W233 rules[4000].rates[0].queue]"; got != want {
		t.Errorf("warnings %s, want %s", got, want)
	}
}
