package limit_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func withKeys(rule limit.RuleSpec, keys ...string) limit.Document {
	d := limit.Document{Namespace: "n", Rules: []limit.RuleSpec{rule}, Keys: map[string]limit.KeySource{}}
	for _, k := range keys {
		d.Keys[k] = limit.KeySource{From: []string{"header.X-Key"}}
	}
	return d
}

// A key that is declared under one name and used under another would limit
// nobody.
func TestMisspeltKeys(t *testing.T) {
	by := func(key string) limit.RuleSpec { r := plainRule(); r.Key = []string{key}; return r }
	matching := func(m limit.MatchSpec) limit.RuleSpec { r := plainRule(); r.Match = m; return r }
	for name, tc := range map[string]struct {
		doc  limit.Document
		want string // "": all is well
	}{
		"a letter is missing":      {withKeys(by("user"), "usr"), `rules[0].key[0]: "user" is not declared, and no rule uses the key "usr" (did you mean "usr"? else rename the key)`},
		"a letter too many":        {withKeys(by("user"), "users"), `did you mean "users"?`},
		"another letter":           {withKeys(by("tenant"), "tenent"), `did you mean "tenent"?`},
		"two letters swapped":      {withKeys(by("user"), "uesr"), `did you mean "uesr"?`},
		"two edits of a long word": {withKeys(by("customer"), "costumr"), ""},
		"two swaps":                {withKeys(by("customer"), "ucstomre"), `did you mean "ucstomre"?`},
		"in has":                   {withKeys(matching(limit.MatchSpec{Has: []string{"user"}}), "usr"), "rules[0].match.has[0]"},
		"in lacks":                 {withKeys(matching(limit.MatchSpec{Lacks: []string{"user"}}), "usr"), "rules[0].match.lacks[0]"},
		"in equals":                {withKeys(matching(limit.MatchSpec{Equals: map[string][]string{"user": {"x"}}}), "usr"), "rules[0].match.equals.user"},
		"both are declared":        {withKeys(by("user"), "user", "users"), ""},
		"both are used":            {withKeys(matching(limit.MatchSpec{Has: []string{"user"}, Lacks: []string{"users"}}), "users"), ""},
		"another word":             {withKeys(by("user"), "tenant"), ""},
		"short words":              {withKeys(by("id"), "ip"), ""},
		"an attribute of requests": {withKeys(by("host"), "hots"), ""},
		"a header":                 {withKeys(by("header.X-User"), "header_X_User"), ""},
	} {
		_, problems := limit.Compile(tc.doc)
		got := ""
		for _, ps := range problems {
			got += ps.Error()
			if len(ps) != 1 || ps[0].Code != "E125" {
				t.Errorf("%s: %v, want one E125", name, ps)
			}
		}
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A name that is almost that of what all requests have is warned of, wherever it
// stands, unless the rules say what it is.
func TestNamesNearBuiltInOnes(t *testing.T) {
	for word, meant := range map[string]string{
		"clientip": "client_ip", "Client_IP": "client_ip", "clientIp": "client_ip", "cleint_ip": "client_ip", "client_p": "client_ip", "lient_ip": "client_ip",
		"client_ips": "client_ip", "ip": "client_ip", "IP": "client_ip", "remote_addr": "client_ip", "real_ip": "client_ip", "source_ip": "client_ip",
		"Method": "method", "methods": "method", "metod": "method", "http_method": "method",
		"Path": "path", "paths": "path", "paht": "path", "url": "path", "request_uri": "path",
		"Host": "host", "hots": "host", "hst": "host", "hostname": "host",

		"client_ip": "", "method": "", "path": "", "host": "", "header.Hots": "", "header.X-Client-Ip": "",
		"user": "", "account": "", "plan": "", "tier": "", "tenant": "", "org": "", "api_key": "", "client": "", "client_id": "", "clientId": "", "method2": "", "host_1": "", "vip": "", "id": "", "region": "",
		"cost": "", "post": "", "most": "", "math": "", "pact": "", "part": "", "_": "", "x": "", "remote_address": "",
	} {
		for place, put := range map[string]func(*limit.Document){
			"rules[0].key[0]":               func(d *limit.Document) { d.Rules[0].Key = []string{word} },
			"rules[0].match.has[0]":         func(d *limit.Document) { d.Rules[0].Match.Has = []string{word} },
			"rules[0].match.lacks[0]":       func(d *limit.Document) { d.Rules[0].Match.Lacks = []string{word} },
			"rules[0].match.equals." + word: func(d *limit.Document) { d.Rules[0].Match.Equals = map[string][]string{word: {"GET"}} },
			"rules[0].tier_from": func(d *limit.Document) {
				d.Rules[0].TierFrom, d.Tenants = word, map[string]limit.TenantSpec{"gold": {Multiply: 2}}
			},
			"rules[0].classes.from": func(d *limit.Document) {
				d.Rules[0].Rates[0].Limit = 100
				d.Rules[0].Classes = limit.ClassesSpec{From: word, Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 50}}
			},
			"keys.other.from[1]": func(d *limit.Document) { d.Keys["other"] = limit.KeySource{From: []string{"user", word}} },
		} {
			for _, said := range []bool{false, true} {
				doc := withKeys(plainRule())
				put(&doc)
				if said {
					doc.Keys[word] = limit.KeySource{From: []string{word}}
				}
				set, problems := limit.Compile(doc)
				if set == nil {
					if meant != "" {
						t.Errorf("%s at %s: %v, want it to compile", word, place, problems)
					}
					continue
				}
				got := limit.Problem{}
				for _, w := range set.Warnings()[0] {
					if w.Code == "W229" {
						got = w
					}
				}
				switch {
				case meant == "" || said:
					if got.Code != "" {
						t.Errorf("%s at %s, said to be meant: %v: warned %v, want nothing", word, place, said, got)
					}
				case got.Path != place || !strings.HasPrefix(got.Hint, "did you mean "+meant+"?"):
					t.Errorf("%s at %s: warned %v, want it there to name %s", word, place, got, meant)
				}
			}
		}
	}
}

// Headers that are gone when a request was read are warned of; Host is host.
func TestHeadersThatNoRequestHas(t *testing.T) {
	for name, warned := range map[string]bool{"header.Host": false, "header.host": false, "header.Transfer-Encoding": true, "header.trailer": true, "header.Content-Length": false} {
		doc := withKeys(plainRule())
		doc.Rules[0].Key = []string{name}
		set, problems := limit.Compile(doc)
		if set == nil {
			t.Fatal(problems)
		}
		if got := slices.ContainsFunc(set.Warnings()[0], func(p limit.Problem) bool { return p.Code == "W229" && p.Path == "rules[0].key[0]" }); got != warned {
			t.Errorf("%s: warned of %t, want %t", name, got, warned)
		}
		req := set.Only().NewRequest()
		req.SetHTTP("GET", "/", "api.example", "", nil)
		if got := len(req.Rules()) == 1; got != strings.EqualFold(name, "header.Host") {
			t.Errorf("%s: the rule applies to a request with a host and no headers: %t", name, got)
		}
		req.Release()
	}
}

// A key that is declared without a source is an attribute of its name, and may be as
// misspelt; one with another source is what that is.
func TestDeclaredNamesNearBuiltInOnes(t *testing.T) {
	for name, tc := range map[string]struct {
		source limit.KeySource
		want   int
	}{
		"no source":      {limit.KeySource{IPv6Prefix: 48}, 1},
		"another source": {limit.KeySource{From: []string{"client_ip"}, IPv6Prefix: 48}, 0},
		"a header":       {limit.KeySource{From: []string{"header.X-Ip"}}, 0},
		"itself":         {limit.KeySource{From: []string{"ip"}}, 0},
	} {
		rule := plainRule()
		rule.Key = []string{"ip"}
		set, problems := limit.Compile(limit.Document{Namespace: "n", Keys: map[string]limit.KeySource{"ip": tc.source}, Rules: []limit.RuleSpec{rule}})
		if set == nil {
			t.Fatalf("%s: %v", name, problems)
		}
		if got := len(set.Warnings()[0]); got != tc.want {
			t.Errorf("%s: %d warnings, want %d: %v", name, got, tc.want, set.Warnings()[0])
		}
	}
}

// A key that stands for another key would read an attribute that nobody sends.
func TestKeysOfKeysAreRefused(t *testing.T) {
	header := limit.KeySource{From: []string{"header.X-User"}}
	for name, tc := range map[string]struct {
		keys map[string]limit.KeySource
		want string // "": all is well
	}{
		"another key":          {map[string]limit.KeySource{"who": {From: []string{"client_ip", "user"}}, "user": header}, "keys.who.from[1]"},
		"of several sources":   {map[string]limit.KeySource{"who": {From: []string{"user"}}, "user": {From: []string{"user", "header.X-User"}}}, "keys.who.from[0]"},
		"its prefix":           {map[string]limit.KeySource{"who": {From: []string{"client_ip"}}, "client_ip": {IPv6Prefix: 48}}, "keys.who.from[0]"},
		"the other prefix":     {map[string]limit.KeySource{"who": {From: []string{"header.X-A", "addr"}, IPv6Prefix: 56}, "addr": {IPv6Prefix: 48, IPv4Prefix: 24}}, "keys.who.from[1]"},
		"a prefix of its own":  {map[string]limit.KeySource{"who": {From: []string{"client_ip"}, IPv6Prefix: 56}, "client_ip": {IPv6Prefix: 48}}, ""},
		"itself":               {map[string]limit.KeySource{"user": {From: []string{"user", "header.X-User"}}}, ""},
		"a key that is itself": {map[string]limit.KeySource{"who": {From: []string{"user"}}, "user": {From: []string{"user"}}}, ""},
		"a key of no source":   {map[string]limit.KeySource{"who": {From: []string{"user"}}, "user": {}}, ""},
	} {
		_, problems := limit.Compile(limit.Document{Namespace: "n", Keys: tc.keys, Rules: []limit.RuleSpec{plainRule()}})
		switch {
		case tc.want == "" && problems == nil: // as it should be
		case problems == nil || len(problems[0]) != 1 || problems[0][0].Code != "E127" || problems[0][0].Path != tc.want || !strings.Contains(problems[0][0].Hint, "header.X-User") && !strings.Contains(problems[0][0].Hint, "_prefix: "):
			t.Errorf("%s: %v, want E127 at %q", name, problems, tc.want)
		}
	}
}

// What all requests have is found there, and nowhere else.
func TestSourcesOfWhatAllRequestsHaveAreRefused(t *testing.T) {
	for _, name := range []string{"client_ip", "method", "path", "host"} {
		for from, want := range map[string]string{"header.X-Real-Ip": "E128", name: ""} {
			keys := map[string]limit.KeySource{name: {From: []string{name, from}}}
			_, problems := limit.Compile(limit.Document{Namespace: "n", Keys: keys, Rules: []limit.RuleSpec{plainRule()}})
			got := ""
			for _, ps := range problems {
				got += ps[0].Code
			}
			if got != want {
				t.Errorf("%s from %s: %v, want %q", name, from, problems, want)
			}
		}
	}
}

// Many keys against many words must not take their product in time.
func TestManyUnusedKeys(t *testing.T) {
	took := func(names int) time.Duration {
		rule := plainRule()
		var keys []string
		for i := range names {
			keys = append(keys, fmt.Sprintf("unused_key_%06d", i))
			rule.Match.Has = append(rule.Match.Has, fmt.Sprintf("undeclared_%06d", i))
		}
		least := time.Duration(math.MaxInt64)
		for range 3 { // the least of it is least disturbed
			began := time.Now()
			if _, problems := limit.Compile(withKeys(rule, keys...)); problems != nil {
				t.Fatal(problems[0])
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	if few, many := took(2000), took(20_000); many > 40*few {
		t.Errorf("20,000 unused keys take %v, 2,000 take %v: want it linear", many, few)
	}
}

func TestMethodsAreTokens(t *testing.T) {
	for method, ok := range map[string]bool{"GET": true, "M-SEARCH": true, "FOO BAR": false, "GET,POST": false, "get": false, "": false, "GÉT": false} {
		rule := plainRule()
		rule.Match.Methods = []string{method}
		if _, problems := limit.Compile(withKeys(rule)); (problems == nil) != ok {
			t.Errorf("method %q: %v, want it taken: %v", method, problems, ok)
		}
	}
}

// Before a node has rules there are none to ask.
func TestNoSetHasNoRules(t *testing.T) {
	var none *limit.Set
	if none.Names() != nil || none.Rules() != nil || none.Written() != 0 || none.Only() != nil || none.Namespace("x") != nil {
		t.Error("a set that there is not has rules")
	}
}
