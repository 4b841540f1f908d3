package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func newTestCommand() *cobra.Command {
	var run pattern
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run rule tests: requests at virtual times, and the verdicts you expect",
		Long: `Run rule tests: requests at virtual times, and the verdicts you expect.

  rules: rules.yaml                  # relative to this file; may be a list
  regions: {eu: [eu-1], us: [us-1]}  # without it: one edge, which steps need not name
  delay: {edge: 5ms, region: 80ms}   # one way; these are the defaults
  cases:
  - name: seven a minute
    start: 2026-01-01T00:00:00Z
    cut: [{region: us, from: 10s, to: 20s}]
    steps:
    - {at: 0s, times: 7, edge: eu-1, attributes: {user: u1}, allow: 7}
    - {at: 1s, times: 2, edge: us-1, attributes: {user: u1}, deny: 2, retry_after: 60s}

Each case runs on a new cluster of real edges and aggregators whose clock and
network are simulated, so that it repeats itself exactly, and hours of it pass
in milliseconds. Steps that overlap in time (every:) run interleaved. A step may
also name namespace, cost, peek and trusted (it comes from a trusted proxy), and
expect rule, policy, zone, remaining, retry_after, delay (in a queue) and
near_limit of its last request. retry_after is compared as the Retry-After
header has it, in whole seconds rounded up, or in milliseconds where it is given
so.

  - {at: 2s, attributes: {user: u1}, response: {status: 401}, allow: 1}  # answered so: for count_when
  - {at: 3s, attributes: {user: u1}, report: 5}     # charged after the fact, as by POST /v1/report
  - {at: 4s, attributes: {user: u1}, give_back: 1}  # a slot is released, a cost refunded
  - {at: 5s, capacity: {api: 0.5}}                  # half of it in use, for an hour, at all edges

Exit codes: 0 all as expected, 1 not so, 3 the test or its rules have mistakes.`,
		Example: "  edge test configs/rules.test.yaml\n  edge test --run login -o json configs/rules.test.yaml",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().Var(&run, "run", "run only the cases whose name matches")
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		tests, err := readRuleTests(files)
		if err != nil {
			return err
		}
		var show reporter = &textReport{w: cmd.OutOrStdout()}
		if *output != cli.OutputText {
			show = &objectReport{w: cmd.OutOrStdout(), as: output}
		}
		return runRuleTests(tests, run.Regexp, show)
	}
	return cmd
}

// readRuleTests reads all files, for the mistakes of all of them.
func readRuleTests(files []string) (tests []*configs.RuleTest, err error) {
	var all configs.RulesError
	for _, file := range files {
		test, err := configs.ReadRuleTest(file)
		var told *configs.RulesError
		switch {
		case errors.As(err, &told):
			all.Mistakes = append(all.Mistakes, told.Mistakes...)
		case err != nil:
			return nil, err
		default:
			tests = append(tests, test)
		}
	}
	if len(all.Mistakes) > 0 {
		return nil, &all
	}
	return tests, nil
}

// reporter shows results as they come, and their sum.
type reporter interface {
	result(*caseResult) error
	sum(passed, failed int) error
}

func runRuleTests(tests []*configs.RuleTest, only *regexp.Regexp, show reporter) error {
	passed, failed := 0, 0
	for _, test := range tests {
		for i := range test.Cases {
			c := &test.Cases[i]
			if only != nil && !only.MatchString(c.Name) {
				continue
			}
			result, err := playCase(test, c)
			if err != nil {
				return fmt.Errorf("%s:%d: case %q: %w", test.File, c.Line, c.Name, err)
			}
			if result.Passed {
				passed++
			} else {
				failed++
			}
			if err := show.result(result); err != nil {
				return err
			}
		}
	}
	if passed+failed == 0 {
		return fmt.Errorf("no case has a name that matches %q", only)
	}
	if err := show.sum(passed, failed); err != nil {
		return err
	}
	if failed > 0 {
		return &cli.Reported{Code: cli.ExitFailure}
	}
	return nil
}

// pattern is a flag that holds a regular expression, nil where it is not
// given.
type pattern struct{ *regexp.Regexp }

// String implements pflag.Value.
func (p *pattern) String() string {
	if p.Regexp == nil {
		return ""
	}
	return p.Regexp.String()
}

// Type implements pflag.Value.
func (p *pattern) Type() string { return "REGEXP" }

// Set implements pflag.Value.
func (p *pattern) Set(s string) (err error) {
	p.Regexp, err = regexp.Compile(s)
	return err
}
