package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
)

// run runs one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newRootCommand(), args, stdin, stdout, stderr)
}

func newRootCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "edge",
		Short: "Spillgate's edge: one rate limit over many regions, decided in memory",
		Long: `Spillgate's edge: one rate limit over many regions, decided in memory.

Exit codes: 0 ok, 1 failure, 2 usage, 3 invalid config, 4 unreachable, 5 would be denied.`,
	},
		newDemoCommand(),
		newServeCommand(),
		newValidateCommand(),
		newTestCommand(),
		newExplainCommand(),
		newImportCommand(),
		newDeferredCommand(),
		newConfigCommand(),
	)
}
