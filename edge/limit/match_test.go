package limit_test

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestMatchWords(t *testing.T) {
	keys := map[string]limit.KeySource{"tier": {From: []string{"header.X-Tier", "plan"}}}
	many := limit.MatchSpec{}
	for _, s := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		many.Path = append(many.Path, "/"+s+"/*", "/"+s)
		many.Host = append(many.Host, s+".example", "*."+s+".example")
	}
	for name, tc := range map[string]struct {
		match   limit.MatchSpec
		yes, no []map[string]string
	}{
		"a network": {
			limit.MatchSpec{CIDR: []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "10.1.0.0/16"}},
			[]map[string]string{{"client_ip": "10.0.0.0"}, {"client_ip": "10.255.255.255"}, {"client_ip": "::ffff:10.1.2.3"}, {"client_ip": "192.0.2.7"}, {"client_ip": "2001:db8:ffff::1%eth0"}},
			[]map[string]string{{"client_ip": "11.0.0.0"}, {"client_ip": "9.255.255.255"}, {"client_ip": "192.0.2.8"}, {"client_ip": "2001:db9::"}, {"client_ip": "10"}, {}},
		},
		"networks that begin alike": {
			limit.MatchSpec{CIDR: []string{"10.0.0.0/16", "10.0.0.0/8", "2001:db8::/48", "2001:db8::/32", "10.0.0.0"}},
			[]map[string]string{{"client_ip": "10.0.0.1"}, {"client_ip": "10.200.0.1"}, {"client_ip": "2001:db8:ffff::1"}},
			[]map[string]string{{"client_ip": "11.0.0.0"}, {"client_ip": "2001:db9::"}},
		},
		"a mapped network": {
			limit.MatchSpec{CIDR: []string{"::ffff:10.0.0.0/104"}},
			[]map[string]string{{"client_ip": "10.9.9.9"}, {"client_ip": "::ffff:a00:1"}},
			[]map[string]string{{"client_ip": "11.0.0.1"}, {"client_ip": "::a00:1"}},
		},
		"all of IPv4": {
			limit.MatchSpec{CIDR: []string{"0.0.0.0/0"}},
			[]map[string]string{{"client_ip": "10.9.9.9"}, {"client_ip": "255.255.255.255"}},
			[]map[string]string{{"client_ip": "::1"}},
		},
		"a host": {
			limit.MatchSpec{Host: []string{"API.example.com.", "2001:db8::1"}},
			[]map[string]string{{"host": "api.example.com"}, {"host": "Api.Example.COM:8443"}, {"host": "api.example.com."}, {"host": "[2001:DB8::1]:80"}},
			[]map[string]string{{"host": "example.com"}, {"host": "x.api.example.com"}, {"host": ""}, {"host": "[2001:db8::1"}},
		},
		"what is below a host": {
			limit.MatchSpec{Host: []string{"*.example.com"}},
			[]map[string]string{{"host": "a.example.com"}, {"host": "b.a.EXAMPLE.com:1"}},
			[]map[string]string{{"host": "example.com"}, {"host": ".example.com"}, {"host": "aexample.com"}},
		},
		"many paths and hosts": {
			many,
			[]map[string]string{{"path": "/j/x", "host": "c.example"}, {"path": "/a?q", "host": "x.j.example"}},
			[]map[string]string{{"path": "/j/x", "host": "k.example"}, {"path": "/k", "host": "a.example"}, {"path": "/a/", "host": "a.example"}, {"path": "a", "host": "a.example"}},
		},
		"a value": {
			limit.MatchSpec{Equals: map[string][]string{"tier": {"gold", "silver"}, "header.x-beta": {"1"}}},
			[]map[string]string{{"header.X-Tier": "gold", "header.X-Beta": "1"}, {"plan": "silver", "header.X-Beta": "1"}, {"tier": "gold", "header.X-Tier": "tin", "header.X-Beta": "1"}},
			[]map[string]string{{"header.X-Tier": "gold"}, {"header.X-Tier": "Gold", "header.X-Beta": "1"}, {"header.X-Tier": "tin", "plan": "gold", "header.X-Beta": "1"}, {}},
		},
	} {
		ns := compileNamespace(t, limit.Document{Keys: keys, Rules: []limit.RuleSpec{{Name: "a", Match: tc.match}}})
		for want, requests := range map[bool][]map[string]string{true: tc.yes, false: tc.no} {
			for _, attributes := range requests {
				req := request(ns, attributes)
				if got := len(req.Rules()) == 1; got != want {
					t.Errorf("%s: the rule applies to %v: %v, want %v", name, attributes, got, want)
				}
				req.Release()
			}
		}
	}
}

// What matching derives from attributes follows them.
func TestRulesFollowAttributes(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "a", Match: limit.MatchSpec{CIDR: []string{"10.0.0.0/8"}, Host: []string{"a.example"}}}}})
	req := request(ns, map[string]string{"client_ip": "10.0.0.1", "host": "a.example"})
	defer req.Release()
	for _, tc := range []struct {
		name, value string
		applies     bool
	}{{"host", "A.example", true}, {"host", "b.example", false}, {"host", "a.example", true}, {"client_ip", "11.0.0.1", false}, {"client_ip", "10.0.0.2", true}} {
		req.Set(tc.name, tc.value)
		if got := len(req.Rules()) == 1; got != tc.applies {
			t.Errorf("after %s = %s the rule applies: %v, want %v", tc.name, tc.value, got, tc.applies)
		}
	}
}

type refusing struct{}

func (refusing) Holds(*limit.Request) (bool, error) { return true, &limit.ConditionError{Detail: "no"} }

// A condition that fails does not let its rule apply, and is counted.
func TestFailedConditions(t *testing.T) {
	engine := func(string, limit.Lookup) (limit.Condition, error) { return refusing{}, nil }
	doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "a", Allow: true, Match: limit.MatchSpec{When: "x"}}}}
	set, problems := limit.Options{Conditions: engine}.Compile(doc)
	if problems != nil {
		t.Fatal(problems[0])
	}
	req := set.Only().NewRequest()
	defer req.Release()
	for range 3 {
		if len(req.Rules()) != 0 {
			t.Error("a rule applies whose condition failed")
		}
	}
	if got := set.Rules()[0].Failures(); got != 3 {
		t.Errorf("%d failures, want 3", got)
	}
}

func TestMistakesInConditions(t *testing.T) {
	doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "a", Allow: true, Match: limit.MatchSpec{When: "x"}}}}
	bad := limit.ConditionError{Line: 2, Column: 3, Detail: "d", Hint: "h"}
	engine := func(string, limit.Lookup) (limit.Condition, error) { return nil, &bad }
	set, problems := limit.Options{Conditions: engine}.Compile(doc)
	want := limit.Problem{Path: "rules[0].match.when", Code: "E167", Detail: "d", Hint: "h", Line: 2, Column: 3}
	if set != nil || len(problems) != 1 || len(problems[0]) != 1 || problems[0][0] != want {
		t.Errorf("problems %+v, want %+v", problems, want)
	}
	if bad.Error() != "2:3: d (h)" {
		t.Errorf("the mistake reads %q", bad.Error())
	}
	if set, problems := limit.Compile(doc); set != nil || problems[0][0].Code != "E168" {
		t.Errorf("without an engine: %v, want E168", problems)
	}
}

// A method is what the request says: HEAD is none of [GET], as configs/README.md tells.
func TestMethodsFitThemselvesAlone(t *testing.T) {
	for methods, want := range map[string]map[string]bool{
		"GET": {"GET": true, "HEAD": false}, "GET HEAD": {"GET": true, "HEAD": true, "POST": false}, "": {"GET": true, "HEAD": true},
	} {
		rule := plainRule()
		rule.Match.Methods = strings.Fields(methods)
		set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
		if problems != nil {
			t.Fatal(problems[0])
		}
		for method, applies := range want {
			req := set.Only().NewRequest()
			req.Set("method", method)
			req.Set("client_ip", "192.0.2.1")
			if got := len(req.Rules()) > 0; got != applies {
				t.Errorf("methods [%s]: applies to %s: %v, want %v", methods, method, got, applies)
			}
			req.Release()
		}
	}
}
