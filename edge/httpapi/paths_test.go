package httpapi

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// However a client writes a path, over whatever way it is asked about, what a rule for it
// counts is counted: by all of its keys, before a plain request and after it.
func TestHostilePathsOverTheWire(t *testing.T) {
	rule := func(name, path string, key ...string) limit.RuleSpec {
		return limit.RuleSpec{
			Name: name, Group: name, Key: key, Match: limit.MatchSpec{Path: []string{path}},
			Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour, Algorithm: "fixed_window"}},
		}
	}
	for name, rules := range map[string]struct {
		rule    limit.RuleSpec
		targets []string
		plain   string // a target like any other
	}{
		"a rule for /login":           {rule("login", "/login", "client_ip"), limitertest.LoginTargets, "/login"},
		"a limit of each path":        {rule("paths", "/**", "client_ip", "path"), limitertest.LoginTargets, "/login"},
		"a rule for all paths":        {rule("all", "/**", "client_ip"), limitertest.OtherTargets, "/"},
		"a rule for all paths, login": {rule("all", "/**", "client_ip"), limitertest.LoginTargets, "/"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{rules.rule}}, func(t *testing.T, _ *bench, url string) {
				client := 0
				newClient := func() string { client++; return fmt.Sprintf("198.18.%d.%d", client/250, client%250) }
				for way, ask := range map[string]func(client, target string) (allowed bool){
					"X-Forwarded-Uri": func(client, target string) bool {
						return send(t, "GET", url+"/v1/auth", "", "X-Forwarded-Uri", target, "X-Forwarded-For", client).status == 200
					},
					"X-Original-Uri": func(client, target string) bool {
						return send(t, "GET", url+"/v1/auth", "", "X-Original-Uri", target, "X-Forwarded-For", client).status == 200
					},
					"check": func(client, target string) bool {
						text, err := json.Marshal(map[string]any{"attributes": map[string]string{"path": target, "client_ip": client}})
						if err != nil {
							t.Fatal(err)
						}
						return send(t, "POST", url+"/v1/check", string(text)).body["allowed"] == true
					},
				} {
					for _, target := range rules.targets {
						for _, order := range [][2]string{{target, rules.plain}, {rules.plain, target}} {
							client := newClient()
							if first, second := ask(client, order[0]), ask(client, order[1]); !first || second {
								t.Errorf("%s: %q and then %q: allowed %t and %t, want the second denied", way, order[0], order[1], first, second)
							}
						}
					}
				}
			})
		})
	}
}
