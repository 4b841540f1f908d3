package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
)

var update = flag.Bool("update", false, "write the .want files of testdata")

// runTest runs `edge test` with the given arguments.
func runTest(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(append([]string{"test"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// The example of the specification, the tests of the shipped rules, and one
// limit over two regions pass.
func TestRuleTestsThatShip(t *testing.T) {
	for _, file := range []string{"testdata/sliding.test.yaml", "../../configs/rules.test.yaml", "testdata/regions.test.yaml", "testdata/slow.test.yaml"} {
		code, stdout, stderr := runTest(file)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "\nok: ") || strings.Contains(stdout, "FAIL") {
			t.Errorf("edge test %s: exit code %d, stderr %q\n%s", file, code, stderr, stdout)
		}
	}
}

var age = regexp.MustCompile(`answer [0-9.ms]+ before`)

// Each testdata/wrong_*.test.yaml expects something that does not happen, and
// must fail with the text of its .want file.
func TestWrongExpectationsFail(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong_*.test.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files with wrong expectations, want at least 3 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			code, stdout, stderr := runTest(file)
			if code != 1 || stderr != "" {
				t.Errorf("exit code %d, stderr %q, want 1 and nothing", code, stderr)
			}
			// How long ago an edge was answered about a key hangs on when who looks,
			// which may be tuned without making a verdict any other.
			stdout = age.ReplaceAllString(stdout, "answer <age> before")
			want := strings.TrimSuffix(file, ".test.yaml") + ".want"
			if *update {
				if err := os.WriteFile(want, []byte(stdout), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			text, err := os.ReadFile(want)
			if err != nil {
				t.Fatalf("%v; write it with: go test ./cmd/edge -run TestWrongExpectationsFail -update, and read it", err)
			}
			if stdout != string(text) {
				t.Errorf("got\n%swant\n%s", stdout, text)
			}
		})
	}
}

func TestRuleTestCommandLines(t *testing.T) {
	const sliding = "testdata/sliding.test.yaml"
	for _, tc := range []struct {
		line           string
		code           int
		stdout, stderr string
	}{
		{"", 2, "", "Try: edge test --help"},
		{"-o xml " + sliding, 2, "", "one of text, json"},
		{"--run ( " + sliding, 2, "", "missing closing )"},
		{"--run nobody " + sliding, 1, "", `no case has a name that matches "nobody"`},
		{"--run sliding " + sliding + " testdata/regions.test.yaml", 0, "ok: 1 case, 10 requests\n", ""},
		{"testdata/none.test.yaml", 3, "", "testdata/none.test.yaml: E311 cannot be read"},
		{"testdata/sliding.yaml " + sliding, 3, "", `testdata/sliding.yaml:1:1: E007 schema: "schema" is not known here`},
		{"../../configs/testdata/ruletests/bad_at_goes_back.test.yaml ../../configs/testdata/ruletests/bad_no_cases.test.yaml", 3, "", "bad_no_cases.test.yaml:2:1: E312"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			code, stdout, stderr := runTest(strings.Fields(tc.line)...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) || tc.stderr == "" && stderr != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %d, %q, %q", code, stdout, stderr, tc.code, tc.stdout, tc.stderr)
			}
			if code == 3 && stdout != "" {
				t.Errorf("a case ran although a file has mistakes: %q", stdout)
			}
		})
	}
}

// The example in the help does what it says.
func TestHelpOfRuleTests(t *testing.T) {
	_, help, _ := runTest("--help")
	from, to := strings.Index(help, "  rules: rules.yaml"), strings.Index(help, "\nEach case runs")
	if from < 0 || to < from {
		t.Fatalf("the help has no example:\n%s", help)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules.yaml":  "schema: spillgate/v1\nnamespace: acme\nrules: [{name: api, key: user, rates: [{limit: 7, per: 1m}]}]\n",
		"a.test.yaml": strings.ReplaceAll(help[from:to], "\n  ", "\n")[2:],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, stdout, stderr := runTest(filepath.Join(dir, "a.test.yaml")); code != 0 {
		t.Errorf("exit code %d, want 0\n%s%s", code, stdout, stderr)
	}
}

func TestRuleTestJSON(t *testing.T) {
	code, stdout, stderr := runTest("-o", "json", "testdata/sliding.test.yaml", "testdata/wrong_verdict.test.yaml")
	if code != 1 || stderr != "" {
		t.Errorf("exit code %d, stderr %q, want 1 and nothing", code, stderr)
	}
	var got struct {
		Passed, Failed int
		Cases          []struct {
			File, Name string
			Passed     bool
			Requests   int
			Failures   []struct {
				Line, Step  int
				Want, Got   verdicts
				Differences []difference
				Decision    decisionJSON
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if got.Passed != 1 || got.Failed != 1 || len(got.Cases) != 2 || !got.Cases[0].Passed || got.Cases[0].Requests != 10 || got.Cases[1].Passed {
		t.Fatalf("results %+v", got)
	}
	f := got.Cases[1].Failures[0]
	if f.Line != 7 || f.Step != 3 || f.Want != (verdicts{2, 0}) || f.Got != (verdicts{1, 1}) || len(f.Differences) != 2 {
		t.Errorf("failure %+v", f)
	}
	d := f.Decision
	if d.Request != 2 || d.Allowed || d.Rule != "api" || d.Limit != 7 || d.RetryAfterMS != 6001 || d.Local != 7 || d.AgeMS < 0 || d.Regions != 1 ||
		!d.At.Equal(time.Date(2026, 1, 1, 0, 1, 18, 0, time.UTC)) {
		t.Errorf("decision %+v", d)
	}
}

// The same file twice says the same, to the last millisecond of age.
func TestRuleTestsRepeatThemselves(t *testing.T) {
	files := []string{"-o", "json", "testdata/regions.test.yaml", "testdata/wrong_regions.test.yaml"}
	_, first, _ := runTest(files...)
	if _, again, _ := runTest(files...); again != first {
		t.Errorf("two runs differ:\n%s\n%s", first, again)
	}
}

// ruleTest reads a rule test that stands in testdata's place.
func ruleTest(t *testing.T, text string) *configs.RuleTest {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("testdata/sliding.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"sliding.yaml": rules, "t.test.yaml": []byte(text)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	test, err := configs.ReadRuleTest(filepath.Join(dir, "t.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return test
}

func TestSwitchesOfCuts(t *testing.T) {
	cuts := []struct{ region, from, to string }{{"eu", "1s", "5s"}, {"eu", "4s", "9s"}, {"us", "2s", "3s"}, {"eu", "9s", "10s"}, {"eu", "20s", "21s"}}
	text := "rules: sliding.yaml\nregions: {eu: [e], us: [u]}\ncases:\n- name: a\n  cut:\n"
	for _, c := range cuts {
		text += "  - {region: " + c.region + ", from: " + c.from + ", to: " + c.to + "}\n"
	}
	test := ruleTest(t, text+"  steps: [{at: 0s, edge: e, allow: 1}]\n")
	var got []string
	for _, s := range switchesOf(test.Cases[0].Cuts) {
		word := " joins"
		if s.cut {
			word = " leaves"
		}
		got = append(got, s.region+word+" "+s.at.String())
	}
	want := "eu leaves 1s, us leaves 2s, us joins 3s, eu joins 10s, eu leaves 20s, eu joins 21s"
	if strings.Join(got, ", ") != want {
		t.Errorf("switches %s, want %s", strings.Join(got, ", "), want)
	}
}
