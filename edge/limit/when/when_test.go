package when

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expr-lang/expr"

	"github.com/spillgate/spillgate/edge/limit"
)

// compile makes a namespace of one rule with the condition.
func compile(text string) (*limit.Namespace, error) {
	ns, _, err := compileWants(text)
	return ns, err
}

// compileWants tells also what the condition wants.
func compileWants(text string) (ns *limit.Namespace, wants []limit.Want, err error) {
	conditions := func(text string, lookup limit.Lookup) (limit.Condition, error) {
		c, err := Compile(text, lookup)
		if err == nil {
			wants = c.(limit.Wanting).Wants()
		}
		return c, err
	}
	set, problems := limit.Options{Conditions: conditions}.Compile(limit.Document{
		Namespace: "t", Keys: map[string]limit.KeySource{"tier": {From: []string{"header.X-Tier"}}, "user": {}},
		Rules: []limit.RuleSpec{{Name: "a", Allow: true, Match: limit.MatchSpec{When: text}}},
	})
	if problems != nil {
		return nil, nil, errors.New(at(problems[0][0]))
	}
	return set.Only(), wants, nil
}

func at(p limit.Problem) string {
	return fmt.Sprintf("%d:%d %s %s (%s)", p.Line, p.Column, p.Code, p.Detail, p.Hint)
}

func applies(t testing.TB, ns *limit.Namespace, attributes map[string]string) bool {
	t.Helper()
	req := ns.NewRequest()
	defer req.Release()
	for name, value := range attributes {
		req.Set(name, value)
	}
	return len(req.Rules()) == 1
}

func TestConditions(t *testing.T) {
	request := map[string]string{
		"method": "POST", "path": "/a/b", "host": "A.example", "client_ip": "::ffff:10.0.0.7",
		"header.X-Tier": "gold", "user": "u1", "size": "120", "header.X-Beta": "Yes",
	}
	for text, want := range map[string]bool{
		`true`:           true,
		`tier == "gold"`: true,
		`tier != "gold"`: false,
		`tier == 'gold' and user in ["u1", "u2"]`:         true,
		`user not in ["u1", "u2"]`:                        false,
		`lower(host) == "a.example"`:                      true,
		`path startsWith "/a/" && path endsWith "b"`:      true,
		`path contains "x" || method == "POST"`:           true,
		`path matches "^/[a-z]/b$"`:                       true,
		`not (path matches "^/c")`:                        true,
		`inCIDR(client_ip, "10.0.0.0/8")`:                 true,
		`inCIDR(client_ip, "::ffff:10.0.0.0/104")`:        true,
		`inCIDR(client_ip, "192.0.2.1", "2001:db8::/32")`: false,
		`inCIDR(user, "0.0.0.0/0", "::/0")`:               false,
		`has("size") and int(attr("size")) > 100`:         true,
		`int(attr("size")) in [119, 120]`:                 true,
		`int(attr("size")) >= -5`:                         true,
		`header("x-beta") == "Yes" and has("tier")`:       true,
		`has("other")`:                                    false,
		`method != ""`:                                    true,
		`int(attr("other")) == 0`:                         false, // fails
		`int(user) < 5 or true`:                           false, // fails
		`true or int(user) < 5`:                           true,  // settled before
		`has("other") == has("tier")`:                     false,
		`has("tier") ? method == "POST" : false`:          true,
	} {
		ns, err := compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := applies(t, ns, request); got != want {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
	}
}

// Who writes a number longer gets around no rule: zeros before it count for
// nothing, and what no int holds is the largest or the smallest one.
func TestNumbersOfAnyLength(t *testing.T) {
	zeros, nines := strings.Repeat("0", 100), strings.Repeat("9", 100)
	for text, sizes := range map[string]map[string]bool{ // whether the rule applies
		`int(attr("size")) > 1000`: {
			"5000": true, "1001": true, "1000": false, "00000000000000000005000": true, zeros + "1000": false, zeros + "1001": true,
			"9999999999999999999": true, "9223372036854775808": true, "18446744073709551616": true, nines: true, zeros + nines: true,
			"-" + nines: false, "-9223372036854775809": false, zeros: false,
		},
		`int(attr("size")) == 9223372036854775807`: {
			"9223372036854775806": false, "9223372036854775807": true, zeros + "9223372036854775807": true, "9223372036854775808": true, nines: true, "-" + nines: false,
		},
		`int(attr("size")) < -9223372036854775807`: { // the smallest
			"-9223372036854775807": false, "-9223372036854775808": true, "-9223372036854775809": true, "-" + zeros + nines: true, nines: false,
		},
		`int(attr("size")) == 0`: {"0": true, zeros: true, "-0": true, "-" + zeros: true, zeros + "1": false},
		`int(attr("size")) < 5 or int(attr("size")) >= 5`: { // all numbers
			"": false, "-": false, "--1": false, "+5000": false, " 5000": false, "5_000": false, "0x10": false, "1e3": false, "5.0": false, nines + "x": false, "٣": false, "7": true,
		},
	} {
		ns, err := compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for size, want := range sizes {
			if got := applies(t, ns, map[string]string{"size": size}); got != want {
				t.Errorf("%s of %q = %v, want %v", text, size, got, want)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`teir == "gold"`:                        "1:1 E167 unknown name teir",
		"true and\n  tier == 5":                 "2:8 E167 invalid operation: == (mismatched types string and int) (attributes are text; int(x) is a number)",
		`tier`:                                  "0:0 E167 expected bool, but got string",
		`tier == `:                              "1:8 E167 unexpected token EOF",
		`tier = "gold"`:                         "1:6 E167",
		`nope(tier)`:                            "1:1 E167 unknown name nope",
		`has(tier)`:                             "1:5 E167 a constant is wanted here",
		`has("a b")`:                            "1:5 E167 \"a b\" is not the name of an attribute",
		`has()`:                                 "1:1 E167 not enough arguments to call has",
		`inCIDR(client_ip, "10.1.2.3/8")`:       "1:19 E167 \"10.1.2.3/8\" is no network, but an address in one (10.0.0.0/8; or 10.1.2.3, for the one address)",
		`inCIDR(client_ip, "10.0.0.0/8", "10")`: "1:33 E167 \"10\" is not a network",
		`tier matches "("`:                      "1:6 E167 error parsing regexp",
		`tier matches user`:                     "1:14 E167 a constant is wanted here",
		`tier + user == "x"`:                    "1:6 E167 this is not available in a condition",
		`all([1, 2], # > 0)`:                    "1:1 E167",
		`1 in 1..1000000000`:                    "1:7 E167 a list of constants is wanted here",
		`len(tier) > 3`:                         "1:1 E167 this is not available",
		`tier in ["a", user]`:                   "1:15 E167 a constant is wanted here",
		`tier == "a" and tier == "b"`:           "0:0 E166 this contradicts itself",
		`let x = 1; x == 1`:                     "1:5 E167",
		`tier[0] == "g"`:                        "1:5 E167",
		`tier < "gold"`:                         "1:6 E167 this is not available",
		`nil == nil`:                            "1:5 E167",
		strings.Repeat("(", 5000):               "0:0 E167 5000 bytes; a condition has at most 4096",
		strings.Repeat("!", 3000) + "true":      "1:3004 E167 compilation failed: expression exceeds maximum allowed nodes",
		strings.Repeat("(", 4000):               "1:4000 E167 unexpected token EOF",
	} {
		_, err := compile(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// What is known of a response has names with a dot, in count_when only.
func TestConditionsOnResponses(t *testing.T) {
	counts := func(text string) string {
		rule := limit.RuleSpec{Name: "a", CountWhen: text, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}
		set, problems := limit.Options{Conditions: Compile}.Compile(limit.Document{
			Namespace: "t", Keys: map[string]limit.KeySource{"tier": {}, "user": {}}, Rules: []limit.RuleSpec{rule},
		})
		if problems != nil {
			return at(problems[0][0])
		}
		req := set.Only().NewRequest()
		req.Set("response.status", "401")
		req.Set("response.outcome", "declined")
		return fmt.Sprint(set.Rules()[0].Counts(req))
	}
	for text, want := range map[string]string{
		`response.status in [401, 402, 403]`:                        "true",
		`response.status == 401 and response.outcome == "declined"`: "true",
		`response.status >= 500 or tier == "gold"`:                  "false",
		`response.outcome in ["declined", "failed"]`:                "true",
		`has("response.outcome")`:                                   "true",
		`int(attr("response.status")) == 401`:                       "true",
		`response["status"] == 401`:                                 "true",
		`response.size > 10`:                                        "1:15 E167 invalid operation: > (mismatched types string and int)",
		`response.status == "401"`:                                  "1:17 E167 invalid operation: == (mismatched types int and string)",
		`response == "401"`:                                         "1:1 E167 unknown name response",
		`response.status.code == 401`:                               "1:17 E167",
		`response.status + 1 == 402`:                                "1:17 E167 this is not available",
		`user.status == 401`:                                        "1:6 E167",
	} {
		if got := counts(text); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if _, err := compile(`response.status == 401`); err == nil {
		t.Error("when: may ask for the status of a response")
	}
}

// generate draws an expression of a kind.
func generate(rng *rand.Rand, kind string, depth int) string {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	sub := func(kind string) string { return generate(rng, kind, depth-1) }
	switch kind {
	case "word":
		return one("tier", "user", "path", `"gold"`, `"u1"`, `""`, `attr("size")`, `header("X-Tier")`, `lower(tier)`, `lower("GOLD")`)
	case "number":
		return one("1", "-1", "120", "int(attr(\"size\"))", "int(user)")
	}
	if depth == 0 {
		return one("true", "false", `has("user")`, `inCIDR(client_ip, "10.0.0.0/8", "::1")`)
	}
	switch rng.IntN(9) {
	case 0:
		return "not (" + sub("truth") + ")"
	case 1, 2:
		return "(" + sub("truth") + one(" and ", " or ", " && ", " || ", " == ", " != ") + sub("truth") + ")"
	case 3, 4:
		return "(" + sub("word") + one(" == ", " != ", " contains ", " startsWith ", " endsWith ", " not contains ") + sub("word") + ")"
	case 5:
		return "(" + sub("number") + one(" == ", " != ", " < ", " <= ", " > ", " >= ") + sub("number") + ")"
	case 6:
		return "(" + sub("word") + one(" in ", " not in ") + `["gold", "u1", ""])`
	case 7:
		return "(" + sub("word") + ` matches "^[gu].?")`
	}
	return "(" + sub("truth") + " ? " + sub("truth") + " : " + sub("truth") + ")"
}

// library evaluates an expression with the library's own machine.
func library(text string, attributes map[string]string) (bool, error) {
	env := map[string]any{}
	for _, name := range []string{"tier", "user", "path", "client_ip"} {
		env[name] = attributes[name]
	}
	fn := func(name string, t any, f func(...any) (any, error)) expr.Option { return expr.Function(name, f, t) }
	program, err := expr.Compile(text, expr.Env(env), expr.AsBool(), expr.Optimize(false), expr.DisableAllBuiltins(),
		fn("has", new(func(string) bool), func(p ...any) (any, error) { return attributes[p[0].(string)] != "", nil }),
		fn("attr", new(func(string) string), func(p ...any) (any, error) { return attributes[p[0].(string)], nil }),
		fn("header", new(func(string) string), func(p ...any) (any, error) { return attributes["header."+p[0].(string)], nil }),
		fn("lower", new(func(string) string), func(p ...any) (any, error) { return strings.ToLower(p[0].(string)), nil }),
		fn("int", new(func(string) int), func(p ...any) (any, error) { return strconv.Atoi(p[0].(string)) }),
		fn("inCIDR", new(func(string, string, ...string) bool), func(p ...any) (any, error) {
			addr, _ := netip.ParseAddr(p[0].(string))
			for _, s := range p[1:] {
				if n, err := limit.ParseNetwork(s.(string)); err == nil && n.Contains(addr) {
					return true, nil
				}
			}
			return false, nil
		}))
	if err != nil {
		return false, err
	}
	v, err := expr.Run(program, env)
	if err != nil {
		return false, nil // the rule does not apply
	}
	return v.(bool), nil
}

// The closures say what the library's machine says.
func TestEqualsLibrary(t *testing.T) {
	held := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		text := generate(rng, "truth", 3)
		one := func(of ...string) string { return of[rng.IntN(len(of))] }
		tier := one("", "gold", "GOLD")
		attributes := map[string]string{
			"tier": tier, "header.X-Tier": tier, "user": one("", "u1", "7"), "size": one("", "120", "x"),
			"path": one("/", "/u1"), "client_ip": one("10.0.0.1", "11.0.0.1", ""),
		}
		ns, err := compile(text)
		want, libErr := library(text, attributes)
		if err != nil || libErr != nil {
			t.Fatalf("seed %d: %s: %v; the library: %v", seed, text, err, libErr)
		}
		if got := applies(t, ns, attributes); got != want {
			t.Errorf("seed %d: %s of %v = %v, the library's %v", seed, text, attributes, got, want)
		}
		if want {
			held++
		}
	}
	if held < 400 || held > 1600 {
		t.Errorf("%d of 2000 conditions held: this test sees too little", held)
	}
}

const usual = `tier in ["gold", "silver"] and path startsWith "/api/" and not inCIDR(client_ip, "10.0.0.0/8", "192.168.0.0/16") and int(header("Content-Length")) > 1000`

var usualHeader = map[string][]string{"X-Tier": {"silver"}, "Content-Length": {"5000"}}

func TestNothingIsAllocated(t *testing.T) {
	ns, err := compile(usual)
	if err != nil {
		t.Fatal(err)
	}
	req := ns.NewRequest()
	defer req.Release()
	huge := strings.Repeat("9", 200)
	for _, length := range []string{"5000", huge, "none"} {
		header := map[string][]string{"X-Tier": {"silver"}, "Content-Length": {length}}
		matched := 0
		allocs := testing.AllocsPerRun(100, func() {
			req.SetHTTP("GET", "/api/x", "a.example", "2001:db8::1", header)
			matched = len(req.Rules())
		})
		if want := map[string]int{"5000": 1, huge: 1, "none": 0}[length]; allocs != 0 || matched != want {
			t.Errorf("%v allocations, %d rules; want 0 and %d", allocs, matched, want)
		}
	}
}

func BenchmarkCondition(b *testing.B) {
	ns, err := compile(usual)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		req := ns.NewRequest()
		req.SetHTTP("GET", "/api/x", "a.example", "2001:db8::1", usualHeader)
		if len(req.Rules()) != 1 {
			b.Fatal("the rule does not apply")
		}
		req.Release()
	}
}

// BenchmarkLibrary is the same by the library's machine, for comparison.
func BenchmarkLibrary(b *testing.B) {
	env := map[string]any{"tier": "silver", "path": "/api/x", "client_ip": "2001:db8::1"}
	net := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16")}
	program, err := expr.Compile(usual, expr.Env(env), expr.DisableAllBuiltins(),
		expr.Function("inCIDR", func(p ...any) (any, error) {
			addr := limit.NormalAddr(p[0].(string))
			return net[0].Contains(addr) || net[1].Contains(addr), nil
		}, new(func(string, ...string) bool)),
		expr.Function("int", func(p ...any) (any, error) { return strconv.Atoi(p[0].(string)) }, new(func(string) int)),
		expr.Function("header", func(...any) (any, error) { return "5000", nil }, new(func(string) string)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := expr.Run(program, env); v != true {
			b.Fatal(v, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{usual, `a ?? b`, `"\x`, `1..2 | all(#)`, `{a: 1}.a`, "if true { 1 } else { 2 }", "`x` == tier // c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lookups := 0
		c, err := Compile(text, func(string) (limit.Attribute, bool) {
			lookups++
			return limit.Attribute{Known: lookups%2 == 0}, true
		})
		var mistake *limit.ConditionError
		if (c == nil) == (err == nil) || err != nil && !errors.As(err, &mistake) {
			t.Fatalf("Compile(%q) = %v, %v", text, c, err)
		}
		if err == nil {
			_, _ = c.Holds(nil)
		}
	})
}
