package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

func newValidateCommand() *cobra.Command {
	strict := false
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check rules files together, and tell every mistake",
		Long: `Check rules files, or directories of *.yaml, together, as edge serve reads them;
it leaves out *.test.yaml, which edge test reads.
Every mistake is told with its line, an excerpt and a hint; the exit code is 3 then.
Warnings are told too: of what works, but hardly as it was meant.`,
		Example: "  edge validate configs/rules.yaml\n  edge validate --strict configs/rules.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, warnings, err := configs.CheckRules(paths...)
			if err != nil {
				return err
			}
			if strict && len(warnings) > 0 {
				return &configs.RulesError{Mistakes: warnings}
			}
			for _, w := range warnings {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), w.Text()); err != nil {
					return err
				}
			}
			told := ""
			if len(warnings) > 0 {
				told = ", " + count(len(warnings), "warning")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s, %s%s\n", count(len(set.Names()), "namespace"), count(len(set.Rules()), "rule"), told)
			return err
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for mistakes")
	return cmd
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
