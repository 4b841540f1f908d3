package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// queueOf is a leaky bucket that makes requests wait.
func queueOf(capacity uint64) limit.RateSpec {
	return limit.RateSpec{Algorithm: "leaky_bucket", Capacity: capacity, Outflow: perSecond(1), Queue: true}
}

var slots = limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: time.Minute}

const onFailure = "response.status=401"

// Words that contradict one another are refused, each where it stands.
func TestConflictsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil      func(*limit.RuleSpec)
		code, path string
	}{
		"key twice":           {func(s *limit.RuleSpec) { s.Key = []string{"user", "client_ip", "user"} }, "E126", "key[2]"},
		"key that is lacking": {func(s *limit.RuleSpec) { s.Key, s.Match.Lacks = []string{"user"}, []string{"user"} }, "E166", "match.lacks"},
		"has and lacks":       {func(s *limit.RuleSpec) { s.Match.Has, s.Match.Lacks = []string{"user"}, []string{"org", "user"} }, "E166", "match.lacks"},
		"a value of what lacks": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Lacks = map[string][]string{"user": {"u"}}, []string{"user"}
		}, "E166", "match.lacks"},
		"two methods": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Methods = map[string][]string{"method": {"GET", "PUT"}}, []string{"POST"}
		}, "E166", "match.equals.method"},
		"two paths": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Path = map[string][]string{"path": {"/a", "/b"}}, []string{"/c/**"}
		}, "E166", "match.equals.path"},
		"two hosts": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.Host = map[string][]string{"host": {"a.example"}}, []string{"b.example"}
		}, "E166", "match.equals.host"},
		"two addresses": {func(s *limit.RuleSpec) {
			s.Match.Equals, s.Match.CIDR = map[string][]string{"client_ip": {"192.0.2.1"}}, []string{"10.0.0.0/8"}
		}, "E166", "match.equals.client_ip"},
		"queue by responses": {func(s *limit.RuleSpec) { s.CountWhen, s.Rates[0] = onFailure, queueOf(5) }, "E219", "rates[0].queue"},
		"slots by responses": {func(s *limit.RuleSpec) { s.CountWhen, s.Rates[0] = onFailure, slots }, "E219", "rates[0].algorithm"},
		"each of responses":  {func(s *limit.RuleSpec) { s.CountWhen, s.Charge = onFailure, "each" }, "E219", "charge"},
		"max_delay by responses": {func(s *limit.RuleSpec) {
			s.CountWhen, s.MinGap, s.MaxDelay, s.Rates = onFailure, time.Second, time.Second, nil
		}, "E219", "max_delay"},
	} {
		rule := plainRule()
		rule.Rates[0].Limit = 100
		tc.spoil(&rule)
		set, problems := limit.Options{Conditions: statusIs}.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if set != nil || len(problems[0]) != 1 {
			t.Errorf("%s: %v, want one problem", name, problems)
			continue
		}
		if p := problems[0][0]; p.Code != tc.code || strings.TrimPrefix(p.Path, "rules[0].") != tc.path || p.Hint == "" {
			t.Errorf("%s: %s %v, want %s at %s and a hint", name, p.Code, p, tc.code, tc.path)
		}
	}
}
