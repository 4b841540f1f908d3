package configs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

var update = flag.Bool("update", false, "write the .want files of testdata")

func mistakesOf(t testing.TB, err error) []Mistake {
	t.Helper()
	var rules *RulesError
	if !errors.As(err, &rules) {
		t.Fatalf("error %v, want a *RulesError", err)
	}
	return rules.Mistakes
}

// Each file of warnings has one, and loads all the same.
func TestWarningFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/warn_*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, want at least 3 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			set, warnings, err := CheckRules(file)
			if err != nil || set == nil || len(warnings) != 1 {
				t.Fatalf("CheckRules = %v, %d warnings, %v; want a set and one warning", set, len(warnings), err)
			}
			compareWant(t, file, warnings[0].String()+"\n")
		})
	}
}

// Where so many rules are alike that they are not all compared, that is told.
func TestWarningOfManyAlike(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("schema: spillgate/v1\nnamespace: acme\nrules:\n")
	for i := range 1500 {
		fmt.Fprintf(&text, "- {name: r%d, match: {path: [/*/*/*/*/*/*/*/*/%d, /*/*/*/*/*/*/*/*/*/%d]}, rates: [{limit: 5, per: 1m}]}\n", i, i, i)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := CheckRules(file)
	if err != nil || len(warnings) != 1 {
		t.Fatalf("CheckRules: %d warnings, %v; want one", len(warnings), err)
	}
	if got, hint := warnings[0].String(), "(hint: give more of them a path, method,"; !strings.HasPrefix(got, file+":4:1: W238 rules: ") || !strings.Contains(got, hint) {
		t.Errorf("told %q, want W238 at 4:1, and a hint", got)
	}
}

func TestShippedRulesHaveNoWarnings(t *testing.T) {
	if _, warnings, err := CheckRules("rules.yaml"); err != nil || len(warnings) != 0 {
		t.Errorf("warnings %v, error %v", warnings, err)
	}
}

// compareWant compares what is told of a file with its .want file.
func compareWant(t *testing.T, file, got string) {
	t.Helper()
	want := strings.TrimSuffix(file, ".yaml") + ".want"
	if *update {
		if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(want)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./configs -update, and read it", err)
	}
	if got != string(text) {
		t.Errorf("got  %swant %s", got, text)
	}
}

// Each bad file has one mistake, and its .want file the line that tells it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad_*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d bad files in testdata, want at least 25 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := LoadRules(file)
			mistakes := mistakesOf(t, err)
			if len(mistakes) != 1 {
				t.Fatalf("%d mistakes, want 1:\n%v", len(mistakes), err)
			}
			if mistakes[0].Hint == "" {
				t.Errorf("%v: it says not how to mend it", mistakes[0])
			}
			compareWant(t, file, mistakes[0].String()+"\n")
		})
	}
}

func TestShippedRulesLoad(t *testing.T) {
	set, err := LoadRules("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ns := set.Namespace("shop")
	if ns == nil || set.Written() != 20 {
		t.Fatalf("namespaces %v with %d rules, want shop with 20", set.Names(), set.Written())
	}
	decide := func(method, path string, attributes ...string) string {
		req := ns.NewRequest()
		defer req.Release()
		req.SetHTTP(method, path, "shop.example", "192.0.2.1", nil)
		for i := 0; i < len(attributes); i += 2 {
			req.Set(attributes[i], attributes[i+1])
		}
		text := ""
		for _, r := range req.Rules() {
			text += fmt.Sprintf("%s %v cost %d;", r.Name, r.Allow, r.CostOf(req))
		}
		return text
	}
	for _, tc := range [][2]string{
		{decide("GET", "/healthz"), "health true cost 1;"},
		{decide("POST", "/login", "user", "u1"), "login-user-and-ip false cost 1;failed-logins false cost 1;"},
		{decide("POST", "/api/exports/1", "user", "u1"), "exports false cost 1;"},
		{decide("POST", "/api/uploads/1", "user", "u1"), "uploads false cost 1;all-uploads false cost 1;"},
		{decide("POST", "/api/completions", "user", "u1"), "completions false cost 1000;"},
		{decide("POST", "/login"), "per-address false cost 1;"},
		{decide("GET", "/api/x", "header.X-User-Id", "u1"), "per-user false cost 1;"},
		{decide("GET", "/api/search", "user", "u1"), "per-user false cost 5;"},
		{decide("GET", "/api/x"), "per-address false cost 1;"},
		{decide("GET", "/api/x", "plan", "gold", "user", "u1"), "partners false cost 1;"},
		{decide("GET", "/api/x", "plan", "tin", "user", "u1"), "per-user false cost 1;"},
		{decide("GET", "/api/x", "plan", "gold", "user", "u1", "header.X-Test", "1"), "per-user false cost 1;"},
		{decide("GET", "/api/x", "client_ip", "198.51.100.9"), "per-address false cost 1;blocked false cost 1;"},
	} {
		if tc[0] != tc[1] {
			t.Errorf("rules that apply: %q, want %q", tc[0], tc[1])
		}
	}
}

// Every word of the schema ends in its field.
func TestEveryWordIsRead(t *testing.T) {
	docs, mistakes := parseFile(rulesFile{name: "all.yaml", text: []byte(`
schema: spillgate/v1
namespace: acme
defaults: {algorithm: fixed_window, mode: shadow, consistency: loose, scope: region, charge: each, descriptors: all_or_nothing}
keys:
  ip: {from: client_ip, ipv4_prefix: 24, ipv6_prefix: 48}
  user: {from: [header.X-User-Id, cookie_user]}
tenants: {gold: {multiply: 10}, trial: {multiply: 0.5}}
rules:
- name: all
  tier_from: user
  priority: -3
  group: g
  generation: 4
  match: {path: [/a/**, /b], methods: POST, host: "*.a.example", cidr: [10.0.0.0/8, "::1"], equals: {tier: gold, plan: [a, b]}, has: [user], lacks: org, when: path == "/b"}
  key: [user, ip]
  rates:
  - {name: r, limit: 1_000, per: 1d12h, algorithm: sub_windows, slices: 60, oldest: full, round: up, scope: global, consistency: loose}
  - {limit: 5, per: 1m, align: epoch}
  mode: enforce
  consistency: loose
  margin: {soft: 12.5%, elastic: {up_to: 50%, parent: other}}
  cost: {default: 2, by_route: {"POST /b": 0}, max: 9, from_header: X-Cost}
  on_limit: {status: 503, headers: [github, none], show_headers: all}
  min_gap: 200ms
  charge: all_or_nothing
  count_when: attr("response.status") in ["401", "403"]
  near_limit: 80%
  drop: probabilistic
  penalty: until_reset
  classes: {from: user, order: [low, high], reserve: {high: 10%}}
- name: other
  group: other
  charge: all_or_nothing
  rates:
  - {name: tokens, algorithm: token_bucket, capacity: 10, refill: 5/s, initial: 15}
  - {name: leak, algorithm: leaky_bucket, capacity: 1_000, outflow: 10/500ms, queue: true, max_wait: 2s}
  - {algorithm: sliding_log, limit: 2, per: 1m, count_denied: true}
  margin: {elastic: {up_to: 50%, while: capacity.api < 70%}}
  penalty: 5m
- {name: slots, group: slots, charge: all_or_nothing, rates: [{algorithm: concurrency, limit: 20, lease: 30s}]}
- {name: free, allow: true}
- {name: blocked, deny: true}
`)})
	if len(mistakes) != 0 || len(docs) != 1 {
		t.Fatalf("%d documents, mistakes %v", len(docs), mistakes)
	}
	want := limit.Document{
		Namespace: "acme",
		Defaults:  limit.Defaults{Algorithm: "fixed_window", Mode: "shadow", Consistency: "loose", Scope: "region", Charge: "each", Descriptors: "all_or_nothing"},
		Keys: map[string]limit.KeySource{
			"ip":   {From: []string{"client_ip"}, IPv4Prefix: 24, IPv6Prefix: 48, IP: true},
			"user": {From: []string{"header.X-User-Id", "cookie_user"}},
		},
		Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}, "trial": {Multiply: 0.5}},
		Rules: []limit.RuleSpec{{
			TierFrom: "user",
			Name:     "all", Priority: -3, Group: "g", Generation: 4, Key: []string{"user", "ip"}, Mode: "enforce", Consistency: "loose",
			Match: limit.MatchSpec{Path: []string{"/a/**", "/b"}, Methods: []string{"POST"}, Host: []string{"*.a.example"}, CIDR: []string{"10.0.0.0/8", "::1"},
				Equals: map[string][]string{"tier": {"gold"}, "plan": {"a", "b"}}, Has: []string{"user"}, Lacks: []string{"org"}, When: `path == "/b"`},
			Rates: []limit.RateSpec{
				{Name: "r", Limit: 1000, Per: 36 * time.Hour, Algorithm: "sub_windows", Slices: 60, Oldest: "full", Round: "up", Scope: "global", Consistency: "loose"},
				{Limit: 5, Per: time.Minute, Align: "epoch"},
			},
			Margin:  limit.MarginSpec{SoftPercent: 12.5, Elastic: limit.ElasticSpec{UpToPercent: 50, Parent: "other"}},
			Cost:    limit.CostSpec{Default: 2, ByRoute: map[string]uint64{"POST /b": 0}, Max: 9, FromHeader: "X-Cost"},
			OnLimit: limit.OnLimitSpec{Status: 503, Headers: []string{"github", "none"}, ShowHeaders: "all"},
			MinGap:  200 * time.Millisecond, Charge: "all_or_nothing", CountWhen: `attr("response.status") in ["401", "403"]`,
			NearLimitPercent: 80, Drop: "probabilistic", Penalty: limit.Penalty{UntilReset: true},
			Classes: limit.ClassesSpec{From: "user", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 10}},
		}, {
			Name: "other", Group: "other", Charge: "all_or_nothing",
			Rates: []limit.RateSpec{
				{Name: "tokens", Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}, Initial: 15},
				{Name: "leak", Algorithm: "leaky_bucket", Capacity: 1000, Outflow: limit.Flow{Units: 10, Per: 500 * time.Millisecond}, Queue: true, MaxWait: 2 * time.Second},
				{Algorithm: "sliding_log", Limit: 2, Per: time.Minute, CountDenied: true},
			},
			Margin:  limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}},
			Penalty: limit.Penalty{For: 5 * time.Minute},
		}, {
			Name: "slots", Group: "slots", Charge: "all_or_nothing", Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 20, Lease: 30 * time.Second}},
		}, {Name: "free", Allow: true}, {Name: "blocked", Deny: true}},
	}
	if got := fmt.Sprintf("%+v", docs[0].doc); got != fmt.Sprintf("%+v", want) {
		t.Errorf("read  %s\nwant  %+v", got, want)
	}
	if _, err := compile(docs, nil); err != nil {
		t.Errorf("compile: %v", err)
	}
}

// All mistakes are told at once, in the order of the file, those of the reader
// and those of the compiler alike, and nothing that only follows from another.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := ParseRules("rules.yaml", []byte(`schema: spillgate/v1
namespace: a b
keys:
  "ünï": {from: client_ip}
rules:
- name: "a b"
  rate: [{limit: 1, per: 1m}]
- name: c
  rates:
  - {limit: 5, per: 1 min}
  - {limit: 5, per: 1m}
  - {limit: x, per: 1m}
---
schema: spillgate/v1
namespace: b
rules: []
`))
	var got []string
	for _, m := range mistakesOf(t, err) {
		got = append(got, fmt.Sprintf("%d:%d %s", m.Line, m.Column, m.Code))
	}
	want := "2:12 E101, 4:3 E121, 6:9 E111, 7:3 E007, 10:21 E145, 12:5 E142, 12:13 E009, 16:8 E103"
	if strings.Join(got, ", ") != want {
		t.Errorf("mistakes %s\nwant     %s\n%v", strings.Join(got, ", "), want, err)
	}
}

// A mistake in a condition is shown where it stands, if that can be told.
func TestMistakesInConditionsHaveAPlace(t *testing.T) {
	const head = "schema: spillgate/v1\nnamespace: a\nkeys: {tier: {from: header.X-Tier}, user: {}}\nrules:\n- name: a\n  allow: true\n  match:\n    "
	for written, want := range map[string]string{
		"when: tier == 5":                              "8:16 invalid operation",
		"when: 'tier == 5'":                            "8:17 invalid operation",
		`when: "tier == 5"`:                            "8:17 invalid operation",
		"when: |\n      true and\n        tier == 5":   "10:14 invalid operation",
		"when: |-\n      true and\n\n      tier == 5":  "11:12 invalid operation",
		`when: "tier == 5 or user == \"x\""`:           "8:11 line 1, column 6 of the expression: invalid operation",
		"when: >\n      true and\n      tier == 5":     "8:11 line 1, column 15 of the expression: invalid operation",
		"when: true\n      and tier == 5":              "8:11 line 1, column 15 of the expression: invalid operation",
		"when: |\n\n\n      true and\n      tier == 5": "12:12 invalid operation",
	} {
		_, err := ParseRules("rules.yaml", []byte(head+written+"\n"))
		m := mistakesOf(t, err)[0]
		if got := fmt.Sprintf("%d:%d %s", m.Line, m.Column, m.Detail); m.Code != "E167" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s %s, want %s", written, m.Code, got, want)
		}
	}
}

func TestMistakeIsPrintedLikeACompilers(t *testing.T) {
	_, err := ParseRules("rules.yaml", []byte("schema: spillgate/v1\nnamespace: a\nrules:\n- name: \"é\"\n  rates: [{name: \"ü\\u00fc\", limit: 5, per: 1 min}]\n"))
	text := err.Error()
	for _, want := range []string{
		"rules.yaml:5:44: E145 rules[0].rates[0].per: \"1 min\" is not a duration (hint: 1m)\n",
		"      rates: [{name: \"ü\\u00fc\", limit: 5, per: 1 min}]\n" + strings.Repeat(" ", 4+43) + "^",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the error has no %q:\n%s", want, text)
		}
	}
	long := newSource("x", []byte(strings.Repeat("x", 5000)+"\x1b[31m"))
	if e := long.excerpt(position{1, 5002}); len([]rune(e)) > 2*maxExcerpt+20 || strings.Contains(e, "\x1b") {
		t.Errorf("excerpt of a long line: %q", e)
	}
}

func TestAnchorsAndAliases(t *testing.T) {
	set, err := ParseRules("rules.yaml", []byte(`schema: spillgate/v1
namespace: a
rules:
- {name: x, rates: &r [{limit: 5, per: 1m}]}
- {name: y, rates: *r}
`))
	if err != nil || set.Written() != 2 || set.Rules()[1].Rates[0].Limit != 5 {
		t.Fatalf("rules with an alias: %v, %v", set, err)
	}
}

func TestLoadRulesOfDirectoriesAndSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, namespace string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(minimal(namespace)), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.yaml", "a")
	write("b.yml", "b")
	write(".hidden.yaml", "hidden")
	write("notes.txt", "notes")
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	set, err := LoadRules(dir, a)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(set.Names(), " "); got != "a b" {
		t.Errorf("namespaces %q, want a and b", got)
	}
	write("c.yaml", "a")
	_, err = LoadRules(dir)
	if m := mistakesOf(t, err); len(m) != 1 || m[0].Code != "E102" || filepath.Base(m[0].File) != "c.yaml" || m[0].Line != 2 {
		t.Errorf("one namespace in two files: %v", err)
	}
	if _, err := LoadRules(t.TempDir()); !errors.Is(err, ErrNoRules) {
		t.Errorf("an empty directory: %v, want ErrNoRules", err)
	}
	if _, err := LoadRules(filepath.Join(dir, "none.yaml")); !errors.Is(err, ErrNoRules) {
		t.Errorf("no such file: %v, want ErrNoRules", err)
	}
}

func minimal(namespace string) string {
	return "schema: spillgate/v1\nnamespace: " + namespace + "\nrules: [{name: all, rates: [{limit: 5, per: 1m}]}]\n"
}

// What would take the YAML parser minutes is refused on its tokens.
func TestHostileFilesAreRefusedSoon(t *testing.T) {
	for name, text := range map[string]string{
		"too long":             strings.Repeat("# x\n", maxFileBytes/4+1),
		"keys":                 manyKeys(maxMappingKeys + 1),
		"documents":            strings.Repeat("---\na: b\n", maxDocuments+1),
		"flow depth":           strings.Repeat("[", 100_000),
		"flow depth on lines":  strings.Repeat("[\n", 100_000),
		"block depth":          strings.Repeat("- ", 100_000) + "a",
		"explicit keys":        strings.Repeat("? ", 100_000) + "a",
		"anchors":              strings.Repeat("- &a b\n", maxAnchors+1),
		"anchors on one value": "a: " + strings.Repeat("&a ", 100_000) + "b",
		"tags":                 "a: " + strings.Repeat("!!str ", 100_000) + "b",
		"signs":                "a: [" + strings.Repeat("a,", maxTokens/2+1) + "]",
		"an anchor in itself":  "a: &a [*a]",
		"aliases":              "schema: spillgate/v1\nnamespace: a\nrules:\n- &r {name: r, key: &k [" + strings.Repeat("x,", 300) + "]}\n" + strings.Repeat("- *r\n", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := ParseRules("hostile.yaml", []byte(text))
			if m := mistakesOf(t, err); len(m) == 0 || len(m) > maxMistakes {
				t.Errorf("%d mistakes", len(m))
			}
			if len(err.Error()) > 1<<20 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

func FuzzParseRules(f *testing.F) {
	files, err := filepath.Glob("testdata/bad_*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "rules.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 4096 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := ParseRules("fuzz.yaml", text)
		checkParsed(t, text, set, err)
	})
}

// checkParsed checks what became of a text: a set, or mistakes that stand in it.
func checkParsed(t *testing.T, text []byte, set *limit.Set, err error) {
	t.Helper()
	if (set == nil) == (err == nil) {
		t.Fatalf("set %v and error %v", set, err)
	}
	if err != nil {
		checkMistakes(t, text, mistakesOf(t, err))
	}
}

// checkMistakes checks that mistakes say what and where, in a text.
func checkMistakes(t *testing.T, text []byte, mistakes []Mistake) {
	t.Helper()
	lines := strings.Count(oneBreak.Replace(string(text)), "\n") + 1
	for _, m := range mistakes {
		if m.Code == "" || m.Detail == "" || m.Line < 0 || m.Line > lines {
			t.Fatalf("mistake %+v in a text of %d lines", m, lines)
		}
	}
}
