package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

func TestExitCodes(t *testing.T) {
	mistake := configs.Mistake{File: "rules.yaml", Line: 3, Column: 5, Code: "E145", Detail: "no"}
	for _, tc := range []struct {
		name   string
		err    error
		code   int
		stderr string
	}{
		{"none", nil, 0, ""},
		{"failure", errors.New("boom"), 1, "tool: boom\n"},
		{"rules", fmt.Errorf("load: %w", &configs.RulesError{Mistakes: []configs.Mistake{mistake}}), 3, "load: rules.yaml:3:5: E145 no\n"},
		{"settings", &configs.SettingsError{Mistakes: []configs.Mistake{mistake}}, 3, "rules.yaml:3:5: E145 no\n"},
		{"no rules", fmt.Errorf("rules: %w at x", configs.ErrNoRules), 3, "tool: rules: there is no rules file at x\n"},
		{"unreachable", fmt.Errorf("nats://10.0.0.1:4222: %w", ErrUnreachable), 4, "tool: nats://10.0.0.1:4222: unreachable\n"},
		{"unreachable among others", errors.Join(errors.New("boom"), ErrUnreachable), 4, "tool: boom\nunreachable\n"},
		{"reported", fmt.Errorf("x: %w", &Reported{Code: 1}), 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := Parent(&cobra.Command{Use: "tool", Short: "t"}, &cobra.Command{
				Use: "do", RunE: func(*cobra.Command, []string) error { return tc.err },
			})
			var stdout, stderr bytes.Buffer
			if code := Run(root, []string{"do"}, strings.NewReader(""), &stdout, &stderr); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if stderr.String() != tc.stderr {
				t.Errorf("stderr %q, want %q", &stderr, tc.stderr)
			}
		})
	}
}

func TestOutputFlag(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want Output
	}{
		{nil, 0, OutputText}, {[]string{"-o", "json"}, 0, OutputJSON}, {[]string{"--output=text"}, 0, OutputText}, {[]string{"-o", "xml"}, 2, ""},
	} {
		cmd := &cobra.Command{Use: "do"}
		output, got := OutputFlag(cmd), Output("")
		cmd.RunE = func(*cobra.Command, []string) error {
			got = *output
			return nil
		}
		var stdout, stderr bytes.Buffer
		code := Run(Parent(&cobra.Command{Use: "tool"}, cmd), append([]string{"do"}, tc.args...), strings.NewReader(""), &stdout, &stderr)
		if code != tc.code || got != tc.want {
			t.Errorf("%v: exit code %d and %q, want %d and %q", tc.args, code, got, tc.code, tc.want)
		}
		if tc.code == 2 && !strings.Contains(stderr.String(), "one of text, json") {
			t.Errorf("%v: stderr %q does not name the choices", tc.args, &stderr)
		}
	}
}
