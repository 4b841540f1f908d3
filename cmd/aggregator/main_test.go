package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

func TestCommandLines(t *testing.T) {
	cleanEnv(t)
	for _, tc := range []struct {
		line           string
		code           int
		stdout, stderr string
	}{
		{"", 0, "Exit codes: 0 ok", ""},
		{"--help", 0, "serve", ""},
		{"version", 0, "aggregator ", ""},
		{"version now", 2, "", "Try: aggregator version --help"},
		{"serv", 2, "", `did you mean "serve"?`},
		{"validate", 2, "", `there is no command "validate"`},
		{"--loud", 2, "", "unknown flag: --loud"},
		{"serve now", 2, "", "Try: aggregator serve --help"},
		{"serve", 3, "", "region"},
		{"serve --region e.u", 3, "", "flag --region: E202 region: "},
		{"serve -c ../../configs/none.yaml", 3, "", "E204"},
		{"config", 0, "effective", ""},
		{"config efective", 2, "", `did you mean "effective"?`},
		{"config effective", 3, "region", "region"},
		{"config effective --region eu --redis-url redis://:hunter2hunter2@127.0.0.1:6379/0", 0, "redis://********@127.0.0.1:6379/0", ""},
		{"config effective -c ../../configs/aggregator.yaml", 0, "  file\n", ""},
		{"rules apply x.yaml --max-denied 5% --min-requests 7", 3, "", "--max-denied, --min-requests: without --regions it is in force everywhere at once"},
		{"rules apply x.yaml --regions us --promote-after soon", 2, "", "--promote-after"},
		{"rules report a b", 2, "", "Try: aggregator rules report --help"},
		{"config effective --region eu --lanes many", 3, "lanes", "flag --lanes: E202 lanes: "},
	} {
		t.Run(tc.line, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(strings.Fields(tc.line), strings.NewReader(""), &stdout, &stderr)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.Contains(stdout.String(), tc.stdout) {
				t.Errorf("stdout %q, want it to have %q", &stdout, tc.stdout)
			}
			if !strings.Contains(stderr.String(), tc.stderr) || tc.stderr == "" && stderr.Len() > 0 {
				t.Errorf("stderr %q, want it to have %q", &stderr, tc.stderr)
			}
			if strings.Contains(stdout.String()+stderr.String(), "hunter2hunter2") {
				t.Error("the password is shown")
			}
		})
	}
}

// All mistakes of the settings are told at once.
func TestServeTellsEveryMistake(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_LANES", "0")
	var stdout, stderr bytes.Buffer
	code := run([]string{"serve", "--region", "e.u", "--redis-url", "http://h"}, strings.NewReader(""), &stdout, &stderr)
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	for _, want := range []string{"flag --region", "flag --redis-url", "environment SPILLGATE_LANES"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr %q does not tell of %q", &stderr, want)
		}
	}
}

// Every command explains itself, and its failures reach the exit code.
func TestCommandsAreDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.RunE == nil {
			t.Errorf("%s has no description or no RunE", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}
