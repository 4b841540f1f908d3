package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

func newValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check rules files together, and tell every mistake",
		Long: `Check rules files, or directories of *.yaml, together, as edge serve reads them;
it leaves out *.test.yaml, which edge test reads.
Every mistake is told with its line, an excerpt and a hint; the exit code is 3 then.`,
		Example: "  edge validate configs/rules.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, err := configs.LoadRules(paths...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s, %s\n", count(len(set.Names()), "namespace"), count(len(set.Rules()), "rule"))
			return err
		},
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
