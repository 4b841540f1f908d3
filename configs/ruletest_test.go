package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each bad rule test has one mistake, and its .want file the text that tells
// it.
func TestBadRuleTests(t *testing.T) {
	files, err := filepath.Glob("testdata/ruletests/bad_*.test.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d bad rule tests in testdata, want at least 30 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := ReadRuleTest(file)
			if mistakes := mistakesOf(t, err); len(mistakes) != 1 {
				t.Fatalf("%d mistakes, want 1:\n%v", len(mistakes), err)
			}
			got, want := err.Error()+"\n", strings.TrimSuffix(file, ".test.yaml")+".want"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			text, err := os.ReadFile(want)
			if err != nil {
				t.Fatalf("%v; write it with: go test ./configs -run TestBadRuleTests -update, and read it", err)
			}
			if got != string(text) {
				t.Errorf("got\n%swant\n%s", got, text)
			}
		})
	}
}

// writeTest writes a rule test beside the rules of testdata/ruletests.
func writeTest(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"limit.yaml", "other.yaml", "broken.yaml"} {
		rules, err := os.ReadFile(filepath.Join("testdata/ruletests", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), rules, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "t.test.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Every word of a rule test ends in its field.
func TestEveryWordOfARuleTestIsRead(t *testing.T) {
	test, err := ReadRuleTest(writeTest(t, `
rules: [limit.yaml, other.yaml, limit.yaml]
regions: {us: us-1, eu: [eu-1, eu-2]}
delay: {edge: 2ms, region: 120ms}
cases:
- name: everything
  start: 2026-03-04T05:06:07+01:00
  cut: [{region: us, from: 9s, to: 10s}, {region: eu, from: 1s, to: 2m}]
  steps:
  - {at: 1m30s, every: 100ms, times: 3, edge: eu-2, namespace: acme, attributes: {user: u1, header.x-user-id: u2, path: /a}, cost: 2, peek: true, allow: 1, deny: 2,
     rule: api, policy: api.minute, zone: soft, remaining: 0, retry_after: 1s500ms, delay: 20ms, near_limit: true}
- name: all that is done
  steps:
  - {at: 0s, edge: us-1, namespace: other, trusted: true, capacity: {db: 105%}, response: {status: 401, code: UNAUTHENTICATED}, allow: 1}
  - {at: 0s, edge: us-1, namespace: acme, times: 2, every: 1s, attributes: {user: u1}, report: 5, remaining: 2}
  - {at: 1s, edge: us-1, namespace: acme, attributes: {user: u1}, give_back: 4}
  - {at: 2s, capacity: {api: 0.5, db: 0}}
- name: defaults
  steps:
  - {at: 0s, edge: us-1, namespace: other, deny: 1}
  - {at: 0s, times: 5, edge: us-1, namespace: other, deny: 2, rule: none, policy: none, zone: none}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(test.Rules) != 2 {
		t.Errorf("%d documents of rules, want 2: a file named twice is read once", len(test.Rules))
	}
	cluster := fmt.Sprintf("%v %v %v", test.Regions, test.EdgeDelay, test.RegionDelay)
	if want := "[{us [us-1]} {eu [eu-1 eu-2]}] 2ms 120ms"; cluster != want {
		t.Errorf("cluster %s, want %s", cluster, want)
	}
	c := test.Cases[0]
	if c.Name != "everything" || c.Line != 6 || !c.Start.Equal(time.Date(2026, 3, 4, 4, 6, 7, 0, time.UTC)) || fmt.Sprint(c.Cuts) != "[{eu 1s 2m0s} {us 9s 10s}]" {
		t.Errorf("case %q on line %d, start %v, cuts %v", c.Name, c.Line, c.Start, c.Cuts)
	}
	s := c.Steps[0]
	want := s.Last
	if got := fmt.Sprintln(*want.Rule, *want.Policy, *want.Zone, *want.Remaining, *want.RetryAfter, *want.Delay, *want.NearLimit); got != "api api.minute soft 0 1.5s 20ms true\n" {
		t.Errorf("expectation %q", got)
	}
	s.Last = Expectation{}
	if got, want := fmt.Sprint(s), "{10 1m30s 100ms 3 0 eu-2 acme map[header.x-user-id:u2 path:/a user:u1] 2 true false map[] map[] 1 2 {<nil> <nil> <nil> <nil> <nil> <nil> <nil>}}"; got != want {
		t.Errorf("step %s\nwant %s", got, want)
	}
	for i, want := range []string{
		"{14 0s 0s 1 0 us-1 other map[] 0 false true map[code:UNAUTHENTICATED status:401] map[db:1.05] 1 0 {<nil> <nil> <nil> <nil> <nil> <nil> <nil>}}",
		"{15 0s 1s 2 1 us-1 acme map[user:u1] 5 false false map[] map[] 0 0 {<nil> <nil> <nil> <nil> <nil> <nil> <nil>}}",
		"{16 1s 0s 1 2 us-1 acme map[user:u1] 4 false false map[] map[] 0 0 {<nil> <nil> <nil> <nil> <nil> <nil> <nil>}}",
		"{17 2s 0s 1 3   map[] 0 false false map[] map[api:0.5 db:0] 0 0 {<nil> <nil> <nil> <nil> <nil> <nil> <nil>}}",
	} {
		s := test.Cases[1].Steps[i]
		if i == 1 && *s.Last.Remaining != 2 {
			t.Errorf("a report expects %d to remain, want 2", *s.Last.Remaining)
		}
		s.Last = Expectation{}
		if got := fmt.Sprint(s); got != want {
			t.Errorf("step %s\nwant %s", got, want)
		}
	}
	d := test.Cases[2]
	if !d.Start.Equal(defaultStart) || d.Steps[0].Times != 1 || d.Steps[0].Allow != 0 || d.Steps[1].Allow != 3 || *d.Steps[1].Last.Rule != NoRule {
		t.Errorf("defaults: %+v", d)
	}
}

// A file without regions has one edge, which steps need not name.
func TestRuleTestOfOneEdge(t *testing.T) {
	test, err := ReadRuleTest(writeTest(t, "rules: limit.yaml\ncases:\n- {name: a, steps: [{at: 0s, allow: 1}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s := test.Cases[0].Steps[0]; len(test.Regions) != 1 || s.Edge != test.Regions[0].Edges[0] || s.Namespace != "acme" {
		t.Errorf("regions %v, step at edge %q, namespace %q", test.Regions, s.Edge, s.Namespace)
	}
}

// All mistakes are told at once, those of the rules after those of the test.
func TestAllMistakesOfARuleTest(t *testing.T) {
	file := writeTest(t, `
rules: [limit.yaml, broken.yaml]
regions: {eu: [eu-1], us: [eu-1]}
delays: {edge: 1ms}
cases:
- name: a
  steps:
  - {at: 5s, edge: eu-1, alow: 1}
  - {at: 3s, edge: eu-1, times: two, allow: 1}
  - {at: 6s, edge: ap-1, allow: 2}
`)
	_, err := ReadRuleTest(file)
	var got []string
	for _, m := range mistakesOf(t, err) {
		got = append(got, fmt.Sprintf("%s:%d %s", filepath.Base(m.File), m.Line, m.Code))
	}
	want := "t.test.yaml:3 E313, t.test.yaml:4 E007, t.test.yaml:8 E007, t.test.yaml:9 E301, t.test.yaml:9 E009, t.test.yaml:10 E303, broken.yaml:4 E145"
	if strings.Join(got, ", ") != want {
		t.Errorf("mistakes %s\nwant     %s\n%v", strings.Join(got, ", "), want, err)
	}
}

func TestDurationText(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "5ms": 5 * time.Millisecond, "1m": time.Minute, "1h": time.Hour, "1h0m5s": time.Hour + 5*time.Second,
		"366d": 366 * 24 * time.Hour, "1d2h": 26 * time.Hour, "10s": 10 * time.Second,
	} {
		got := durationText(d)
		if back, err := ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("durationText(%v) = %s, want %s; read back %v (%v)", d, got, want, back, err)
		}
	}
}

func TestRuleTestThatIsNotThere(t *testing.T) {
	_, err := ReadRuleTest("testdata/ruletests/none.test.yaml")
	if m := mistakesOf(t, err); len(m) != 1 || m[0].Code != "E311" {
		t.Errorf("mistakes %v, want one E311", m)
	}
}

// Tests may stand in the folder of the rules.
func TestRulesFoldersLeaveTestsOut(t *testing.T) {
	file := writeTest(t, "rules: limit.yaml\ncases:\n- {name: a, steps: [{at: 0s, allow: 1}]}\n")
	dir := filepath.Dir(file)
	if err := os.Remove(filepath.Join(dir, "broken.yaml")); err != nil {
		t.Fatal(err)
	}
	set, err := LoadRules(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(set.Names(), ", "); got != "acme, other" {
		t.Errorf("namespaces %s, want acme, other", got)
	}
}

func FuzzReadRuleTest(f *testing.F) {
	files, _ := filepath.Glob("testdata/ruletests/*.test.yaml")
	for _, file := range append(files, "rules.test.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		src := newSource("testdata/ruletests/fuzz.test.yaml", []byte(text))
		trees, mistakes := parseTree(src, []byte(text))
		if len(mistakes) > 0 || len(trees) != 1 {
			return
		}
		// Paths of rules stay out: a fuzzer must not read what it names.
		for i, e := range trees[0].entries {
			if e.key == "rules" {
				trees[0].entries[i].value = &node{kind: kindText, text: "limit.yaml"}
			}
		}
		r := &testReader{reader: newReader(src), test: &RuleTest{}}
		r.file(trees[0])
		if len(r.mistakes) > 0 {
			return
		}
		for _, c := range r.test.Cases {
			for _, s := range c.Steps {
				if s.Act == ActSet && s.Edge == "" {
					continue // at all edges
				}
				if s.Act == ActAsk && s.Allow+s.Deny != s.Times || s.Act != ActAsk && s.Allow+s.Deny != 0 || s.Times < 1 || s.At < 0 || s.Every < 0 || s.Edge == "" || s.Namespace == "" {
					t.Errorf("accepted %+v", s)
				}
			}
		}
	})
}
