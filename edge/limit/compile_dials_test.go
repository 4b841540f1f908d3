package limit_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestDialsOfARate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*limit.RateSpec)
		code   string // "": none is wrong
		at     string
	}{
		"both":                       {func(s *limit.RateSpec) { s.Surge, s.LeewayPercent = 2, 100 }, "", ""},
		"no surge":                   {func(s *limit.RateSpec) { s.Surge = 1 }, "E221", "rules[0].rates[0].surge"},
		"a surge too large":          {func(s *limit.RateSpec) { s.Surge = 1001 }, "E221", "rules[0].rates[0].surge"},
		"no number":                  {func(s *limit.RateSpec) { s.Surge = math.NaN() }, "E221", "rules[0].rates[0].surge"},
		"a negative leeway":          {func(s *limit.RateSpec) { s.LeewayPercent = -1 }, "E222", "rules[0].rates[0].leeway"},
		"of the default consistency": {func(s *limit.RateSpec) { s.LeewayPercent, s.Consistency = 2, "" }, "", ""},
		"a leeway too wide":          {func(s *limit.RateSpec) { s.LeewayPercent = 101 }, "E222", "rules[0].rates[0].leeway"},
		"surge of a loose one":       {func(s *limit.RateSpec) { s.Surge, s.Consistency = 2, "loose" }, "E223", "rules[0].rates[0].surge"},
		"leeway of a loose one": {func(s *limit.RateSpec) { s.LeewayPercent, s.Consistency = 2, "loose" }, "E223",
			"rules[0].rates[0].leeway"},
	} {
		rate := limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"}
		c.change(&rate)
		set, all := limit.Options{}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Rates: []limit.RateSpec{rate}}}})
		problems := slices.Concat(all...)
		switch {
		case c.code == "" && (set == nil || set.Rules()[0].Rates[0].Surge != rate.Surge || set.Rules()[0].Rates[0].Leeway != rate.LeewayPercent/100):
			t.Errorf("%s: %v", name, problems)
		case c.code != "" && (len(problems) != 1 || problems[0].Code != c.code || problems[0].Path != c.at):
			t.Errorf("%s: %v, want %s at %s", name, problems, c.code, c.at)
		}
	}
}
