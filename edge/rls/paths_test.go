package rls_test

import (
	"fmt"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// However a client writes a path, Envoy passes it on so: what a rule for it counts is
// counted, before a plain request and after it, by all keys of the rule.
func TestHostilePathsOverTheWire(t *testing.T) {
	for name, c := range map[string]struct {
		pattern string
		key     []string
		targets []string
		plain   string // a target like any other
	}{
		"a rule for /login":    {"/login", []string{"client_ip"}, limitertest.LoginTargets, "/login"},
		"a limit of each path": {"/**", []string{"client_ip", "path"}, limitertest.LoginTargets, "/login"},
		"a rule for all paths": {"/**", []string{"client_ip"}, limitertest.OtherTargets, "/"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, limit.RuleSpec{Name: "r", Key: c.key, Match: limit.MatchSpec{Path: []string{c.pattern}}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
			for i, target := range c.targets {
				for j, order := range [][2]string{{target, c.plain}, {c.plain, target}} {
					client := fmt.Sprintf("remote_address=198.18.%d.%d", j, i)
					first, second := b.ask(of("path="+order[0], client)), b.ask(of(client, "path="+order[1]))
					if first.OverallCode != rlsv3.RateLimitResponse_OK || second.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
						t.Errorf("%q and then %q: %v and %v, want the second over its limit", order[0], order[1], first.OverallCode, second.OverallCode)
					}
				}
			}
		})
	}
}

// So it is with methods, which Envoy's clients may write in lower case.
func TestMethodsOverTheWire(t *testing.T) {
	b := newBench(t, limit.RuleSpec{Name: "r", Key: []string{"user"}, Match: limit.MatchSpec{Methods: []string{"POST"}}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
	if first, second := b.ask(of("user=u", "method=post")), b.ask(of("user=u", "method=POST")); first.OverallCode != rlsv3.RateLimitResponse_OK || second.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("post and then POST: %v and %v, want the second over its limit", first.OverallCode, second.OverallCode)
	}
}
