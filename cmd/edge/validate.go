package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
)

func newValidateCommand() *cobra.Command {
	strict, topology, format := false, "", configs.FormatSpillgate
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check rules files together, and tell every mistake",
		Long: `Check rules files, or directories of *.yaml, together, as edge serve reads them;
it leaves out *.test.yaml, which edge test reads. With --format envoy they are the
configuration of envoyproxy/ratelimit, a domain a file.
Every mistake is told with its line, an excerpt and a hint; the exit code is 3 then.
Warnings are told too: of what works, but hardly as it was meant.

With --topology FILE limits are held against the place where they are to work:
  regions: {eu: 2, us: 10}                        # edges of each
  delay: {region: 80ms, edge: 5ms}                # one way; these are the defaults
  sync: {interval: 100ms, urgent_interval: 20ms}  # likewise
Those that cannot be held there are refused, as edges admit three quarters of the limit
more before they hear of each other, at twice the limit; those that are exceeded by a
fifth, or by all of the limit under a surge, are warned of. Each with what would help.
So are delays that are longer than frames are waited for, and strict limits of less than
four requests an edge.`,
		Example: "  edge validate configs/rules.yaml\n  edge validate --strict configs/rules.yaml\n  edge validate --topology configs/topology.yaml configs/rules.yaml\n  edge validate --format envoy /data/ratelimit/config",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, warnings, err := checkRules(format, topology, paths)
			if err == nil && strict && len(warnings) > 0 {
				return &configs.RulesError{Mistakes: warnings}
			}
			for _, w := range warnings {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), w.Text()); err != nil {
					return err
				}
			}
			if err != nil {
				return err
			}
			told := ""
			if len(warnings) > 0 {
				told = ", " + count(len(warnings), "warning")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s, %s%s\n", count(len(set.Names()), "namespace"), count(set.Written(), "rule"), told)
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for mistakes")
	cmd.Flags().Var(&format, "format", "`format` of the rules: "+strings.Join(configs.Formats, ", "))
	cmd.Flags().StringVar(&topology, "topology", "", "`file` that says over how many edges, how far apart, the limits are to hold")
	return cmd
}

// checkRules checks rules, over a topology where one is named. What that warns of is told
// with what it refuses, as it may be why.
func checkRules(format configs.Format, topology string, paths []string) (*limit.Set, []configs.Mistake, error) {
	if topology == "" {
		return format.Check(paths...)
	}
	t, distant, err := configs.ReadTopology(topology)
	if err != nil {
		return nil, nil, err
	}
	set, warnings, err := format.CheckOver(t, paths...)
	return set, append(distant, warnings...), err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
