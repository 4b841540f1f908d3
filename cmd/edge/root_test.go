package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const (
	goodRules = "../../configs/rules.yaml"
	badRules  = "../../configs/testdata/bad_per_words.yaml"
)

// cleanEnv hides the settings of whoever runs the tests.
func cleanEnv(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "SPILLGATE_") {
			t.Setenv(name, "")
		}
	}
}

// commandLine is what somebody types, and has to get: an exit code, and texts
// that stand in what is printed.
type commandLine struct {
	line           string
	code           int
	stdout, stderr string // no stderr: nothing is written there
}

func (c commandLine) run(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(strings.Fields(c.line), strings.NewReader(""), &stdout, &stderr)
	if code != c.code {
		t.Errorf("exit code %d, want %d", code, c.code)
	}
	if !strings.Contains(stdout.String(), c.stdout) {
		t.Errorf("stdout %q, want it to have %q", &stdout, c.stdout)
	}
	if !strings.Contains(stderr.String(), c.stderr) || c.stderr == "" && stderr.Len() > 0 {
		t.Errorf("stderr %q, want it to have %q", &stderr, c.stderr)
	}
	if strings.Contains(stdout.String()+stderr.String(), "0123456789abcdef") {
		t.Error("the secret is shown")
	}
}

func TestCommandLines(t *testing.T) {
	cleanEnv(t)
	const warnRules = "../../configs/testdata/warn_priority_default.yaml"
	for _, tc := range []commandLine{
		{"", 0, "Exit codes: 0 ok", ""},
		{"--help", 0, "validate", ""},
		{"version", 0, "edge ", ""},
		{"version now", 2, "", "Try: edge version --help"},
		{"validat", 2, "", `did you mean "validate"?`},
		{"--loud", 2, "", "unknown flag: --loud"},
		{"validate", 2, "", "Try: edge validate --help"},
		{"validate --loud x", 2, "", "unknown flag: --loud"},
		{"validate " + goodRules, 0, "ok: 1 namespace, 20 rules\n", ""},
		{"validate --strict " + goodRules, 0, "ok: 1 namespace, 20 rules\n", ""},
		{"validate " + warnRules, 0, "ok: 1 namespace, 2 rules, 1 warning\n", warnRules + ":9:3: W201 rules[1].priority: "},
		{"validate --strict " + warnRules, 3, "", "W201"},
		{"validate " + badRules, 3, "", badRules + ":7:23: E145 rules[0].rates[0].per: \"1 min\" is not a duration (hint: 1m)\n      - {limit: 100, per: 1 min}\n" + strings.Repeat(" ", 4+22) + "^\n"},
		{"validate " + goodRules + " " + badRules, 3, "", "E145"},
		{"validate --topology ../../configs/topology.yaml " + warnRules, 0, "ok: 1 namespace, 2 rules, 1 warning\n", "W201"},
		{"validate --topology testdata/pops.yaml testdata/pops-rules.yaml", 3, "", "testdata/pops-rules.yaml:8:5: E230 rules[0].rates[0]: 10 per 1s, loose over 20 edges cannot be held: at twice the limit about "},
		{"validate --topology testdata/far.yaml testdata/far-rules.yaml", 0, "ok: 1 namespace, 1 rule, 1 warning\n", "testdata/far.yaml:2:17: W231 delay.region: 1.54s there and back"},
		{"validate --strict --topology testdata/far.yaml testdata/far-rules.yaml", 3, "", "W231"},
		{"validate --topology testdata/far.yaml testdata/pops-rules.yaml", 3, "", "W231 delay.region"},
		{"validate --topology testdata/pops.yaml testdata/scarce-rules.yaml", 0, "ok: 1 namespace, 1 rule, 3 warnings\n", "testdata/scarce-rules.yaml:8:5: W232 rules[0].rates[0]: 10 per 1s, strict over 20 edges is 0.5 rights for each, and fewer than 4 are scarce: "},
		{"validate --topology testdata/nowhere.yaml " + goodRules, 1, "", "topology: open testdata/nowhere.yaml"},
		{"validate --topology " + goodRules + " " + goodRules, 3, "", "E007"},
		{"validate --format envoy testdata/envoy", 0, "ok: 2 namespaces, 4 rules, 1 warning\n", "testdata/envoy/shop.yaml:14:3: W241 descriptors[1].requests_per_unit: requests_per_unit has no meaning here"},
		{"validate --format envoy --strict testdata/envoy", 3, "", "W241"},
		{"validate --format envoy --topology testdata/pops.yaml testdata/envoy", 3, "", "testdata/envoy/pages.yaml:6:3: E230 rules[0].rates[0]: 10 per 1s"},
		{"validate --format envoy " + goodRules, 3, "", "E240"},
		{"validate testdata/envoy", 3, "", "edge validate --format envoy"},
		{"validate --format yaml " + goodRules, 2, "", "one of spillgate, envoy"},
		{"import", 0, "envoy", ""},
		{"import envoy", 2, "", "Try: edge import envoy --help"},
		{"import envoy testdata/envoy", 0, "namespace: \"pages-of-the-shop\"\n", "testdata/envoy/pages.yaml:1:9: W251 domain: "},
		{"import envoy testdata/envoy-odd.yaml", 1, "name: \"path\"", "testdata/envoy-odd.yaml:3:3: E250 descriptors[0]: has no equal: \"x-user\" is no name of an attribute"},
		{"import envoy " + goodRules, 3, "", "E240"},
		{"validate ../../configs/testdata/none.yaml", 3, "", "there is no rules file"},
		{"config", 0, "effective", ""},
		{"config efective", 2, "", `did you mean "effective"?`},
		{"config effective --region eu --rules-path r --secret 0123456789abcdef", 0, "********", ""},
		{"config effective --region e.u --rules-path r --secret 0123456789abcdef", 3, "e.u", "flag --region: E202 region: "},
		{"config effective --region eu --rules-path r --rules-format envoy --secret 0123456789abcdef", 0, "envoy", ""},
		{"config effective --region eu --rules-path r --rules-format yaml --secret 0123456789abcdef", 3, "", "flag --rules-format: E202 rules.format: \"yaml\": one of spillgate, envoy"},
		{"config effective -c ../../configs/none.yaml", 3, "", "E204"},
	} {
		t.Run(tc.line, tc.run)
	}
}

// Every command explains itself, and takes no argument that it does not name.
func TestCommandsAreDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no description", cmd.CommandPath())
		}
		if cmd.RunE == nil {
			t.Errorf("%s has no RunE: its failures would not reach the exit code", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

func TestBuiltBinaryExits(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "edge")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for file, want := range map[string]int{goodRules: 0, badRules: 3} {
		cmd := exec.Command(binary, "validate", file)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("edge validate %s exits with %d (%v), want %d\n%s", file, got, err, want, out)
		}
	}
}
