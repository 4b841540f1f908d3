package limit_test

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// A constant that nothing is ever equal to is told, wherever in a condition it
// stands; one that may be meant is left alone.
func TestConstantsThatNothingEquals(t *testing.T) {
	for text, want := range map[string]string{
		`method == "post" or has("user")`:            "E162",
		`not (path == "/a" and "post" != method)`:    "E162",
		`verb in ["GET", "put"]`:                     "E162",
		`method startsWith "po"`:                     "E162",
		`method startsWith "PO"`:                     "",
		`method == "" or path == ""`:                 "",
		`method == path or attr("method2") == "get"`: "",
		`host == "A.example"`:                        "E164",
		`host == "a.example:80" ? true : false`:      "E164",
		`host == "[2001:db8::1]"`:                    "E164",
		`host in ["a.example", "2001:db8::1"]`:       "",
		`host contains ":80"`:                        "",
		`site contains "Example"`:                    "E164",
		`tier == "Gold" or tier startsWith "A?"`:     "",
		`lower(tier) == "Gold"`:                      "E167",
		`lower(tier) in ["gold", "Tin"]`:             "E167",
		`lower(tier) == "gold"`:                      "",
		`path == "/a?b" or true == false`:            "E161",
		`path startsWith "/a?b"`:                     "E161",
		`path == "/a%20b" or has("user")`:            "W215",
		`path == "/a//b" or has("user")`:             "W215",
		`path contains "//"`:                         "W215",
		`path startsWith "/."`:                       "",
		`path contains "/../"`:                       "",
		`path == "/a%3Fb" or path endsWith "/"`:      "",
		`path == "/100%" or path == "*"`:             "",
		`path == "/a/*"`:                             "W215",
		`path matches "/a%20b"`:                      "W215",
		`path contains "?debug"`:                     "E161",
		`path matches "\\?debug"`:                    "E161",
		`path == "api"`:                              "W215",
		`path in ["/api", "b"]`:                      "W215",
		`path startsWith "api"`:                      "W215",
		`lower(path) == "/a%3fb"`:                    "",
		`lower(path) == "/a%2fb"`:                    "W215",
		`lower(host) == "a.example:80"`:              "E164",
		`lower(path) startsWith "api"`:               "W215",
		`path contains "api" or path endsWith "api"`: "",
		`path matches "^api"`:                        "W215",
		`path matches "(^api|^[a-z]+)/x?"`:           "W215",
		`path matches "^a*b?c"`:                      "W215",
		`path matches "^(/|api)" or has("user")`:     "",
		`path matches "^[^a-z]?api"`:                 "",
		`path matches "^.api"`:                       "",
		`path matches "^/api|^api"`:                  "",
		`path matches "(?m)^api"`:                    "",
		`path matches "^$|^/"`:                       "",
		`path matches "^x*"`:                         "",
		`path matches "api"`:                         "",
		`tier matches "^api"`:                        "",
		`host matches "^EXAMPLE"`:                    "E164",
		`host matches "(?i)^EXAMPLE"`:                "",
		`host matches "^(Example|example)"`:          "",
		`host matches "[A-Z]?x"`:                     "",
		`method matches "^get$"`:                     "E162",
		`method matches "^(GET|POST)$"`:              "",
		`lower(method) == "get"`:                     "",
		`lower(method) == "get post"`:                "E162",
		`host == "münchen.de"`:                       "W244",
		`site endsWith ".münchen.de"`:                "W244",
		`host == "xn--mnchen-3ya.de"`:                "",
		`client_ip == "10.0.0.0/8"`:                  "W213",
		`client_ip in ["10.0.0.0/8", "::1"]`:         "W213",
		`client_ip startsWith "10.0.0.0/8"`:          "W213",
		`tier == "10.0.0.0/8"`:                       "",
		`client_ip == "::1" or has("user")`:          "W213",
		`client_ip startsWith "10."`:                 "",
	} {
		for _, where := range []string{"when", "count_when"} {
			rule := plainRule()
			if where == "when" {
				rule.Match.When = text
			} else {
				rule.CountWhen = text
			}
			set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{
				Namespace: "n", Rules: []limit.RuleSpec{rule},
				Keys: map[string]limit.KeySource{"tier": {}, "verb": {From: []string{"method"}}, "site": {From: []string{"host"}}},
			})
			if set != nil {
				problems = set.Warnings()
			}
			got := ""
			for _, p := range problems[0] {
				if p.Code == "W222" { // these ask nothing of the response
					continue
				}
				got += p.Code
				if p.Hint == "" || p.Line != 1 || p.Column < 2 {
					t.Errorf("%s %s: %+v, want a hint and a place", where, text, p)
				}
			}
			if got != want {
				t.Errorf("%s %s: told %q, want %q", where, text, got, want)
			}
		}
	}
}

// A status that no response has, and conditions that do not look at the response.
func TestCountWhenThatMissesTheResponse(t *testing.T) {
	for text, want := range map[string]string{
		`response.status == 401`:                                                    "",
		`response.status in [401, 403]`:                                             "",
		`response.status >= 500 and response.status < 600`:                          "",
		`response.status >= 4000`:                                                   "W214",
		`response.status > 0`:                                                       "W214",
		`response.status in []`:                                                     "W214",
		`response.status == 401 and response.status == 403`:                         "W214",
		`has("response.status")`:                                                    "W214",
		`response.status == 200 ? true : true`:                                      "W214",
		`response.status == 600 and response.code == "OK"`:                          "W223",
		`response.status == 600 or response.code == "OK"`:                           "W223",
		`response.code == "Unavailable"`:                                            "W223",
		`response.code in ["NotFound", "NOT_FOUND"]`:                                "W223",
		`response.code == "14" or response.code == "CANCELED"`:                      "W223W223",
		`response.code startsWith "UN" and response.code contains "_"`:              "",
		`response.code startsWith "Un"`:                                             "W223",
		`response.code matches "^(UNAVAILABLE|INTERNAL)$"`:                          "",
		`lower(response.code) == "unavailable"`:                                     "",
		`response.code != "OK" and response.code != ""`:                             "",
		`response.status == 600`:                                                    "W223",
		`response.status in [99]`:                                                   "W223",
		`response.status == 4010`:                                                   "W223",
		`response.status in [401, 42]`:                                              "W223",
		`response.code == "UNAUTHENTICATED"`:                                        "",
		`response.statsu == "401"`:                                                  "W228",
		`attr("response.Status") in ["401", "403"]`:                                 "W228",
		`has("response.http_status")`:                                               "W228",
		`response.stats == "5" and response.codes != ""`:                            "W228W228",
		`response.codes != "" or response.codes == "x"`:                             "W228",
		`response.grpc_code == "NOT_FOUND"`:                                         "W228",
		`response.cost != "1" or response.size == "1"`:                              "",
		`response.mode == "a" or response.decline_code == "b" or response._ == "c"`: "",
		`method == "GET"`:                                                           "W222",
		`method == "POST" and response.outcome == "no"`:                             "",
	} {
		rule := plainRule()
		rule.CountWhen = text
		set, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "n", Rules: []limit.RuleSpec{rule}})
		if set == nil {
			t.Fatalf("%s: %v", text, problems)
		}
		got := ""
		for _, p := range set.Warnings()[0] {
			got += p.Code
		}
		if got != want {
			t.Errorf("%s: warned of %q, want %q", text, got, want)
		}
	}
}

// Where a misspelt name is why a condition cannot be read, that is told.
func TestMisspeltNamesOfTheResponseAreTold(t *testing.T) {
	for text, want := range map[string]string{
		`response.statsu == 401`:       "did you mean response.status?",
		`response.statsu in [401]`:     "did you mean response.status?",
		`int(response.status) == 401`:  "",
		`response.attempts > 10`:       "",
		`response.codes == nosuchname`: "did you mean response.code?",
	} {
		rule := plainRule()
		rule.CountWhen = text
		_, problems := limit.Options{Conditions: when.Compile}.Compile(limit.Document{Namespace: "n", Rules: []limit.RuleSpec{rule}})
		if len(problems) != 1 || len(problems[0]) != 1 || problems[0][0].Code != "E167" {
			t.Errorf("%s: %v, want one E167", text, problems)
			continue
		}
		if hint := problems[0][0].Hint; !strings.HasPrefix(hint, want) || strings.Contains(hint, "did you mean") != (want != "") {
			t.Errorf("%s: hint %q, want it to begin with %q", text, hint, want)
		}
	}
}

// A path is compared as it is read, so that reading it again changes nothing.
func TestNormalPath(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "/a": "/a", "/a/": "/a/", "//a": "/a", "/%6Cogin": "/login", "/a/../b/": "/b/", "/a%2Fb": "/a/b",
		"/a%3fb": "/a%3Fb", "/a%3Fb": "/a%3Fb", "/my%20docs/**": "/my docs/**", "/100%": "/100%", "/%zz%41": "/%zzA", "/.well-known": "/.well-known",
	} {
		if got := limit.NormalPath(path); got != want || limit.NormalPath(got) != got {
			t.Errorf("NormalPath(%q) = %q, and of that %q; want %q", path, got, limit.NormalPath(got), want)
		}
	}
}
