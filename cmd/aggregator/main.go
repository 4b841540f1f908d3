// Command aggregator joins the counts of a region's edges and exchanges them
// with the other regions.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newRootCommand(), args, stdin, stdout, stderr)
}

func newRootCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "aggregator",
		Short: "Spillgate's aggregator: a region's counts, merged and exchanged",
		Long: `Spillgate's aggregator: a region's counts, merged and exchanged.

Exit codes: 0 ok, 1 failure, 2 usage, 3 invalid config, 4 unreachable.`,
	},
		newServeCommand(),
		newRulesCommand(),
		newKeysCommand(),
		newTenantsCommand(),
		newRegionsCommand(),
		newAuthCommand(),
		newRightsCommand(),
		newConfigCommand(),
	)
}

func newConfigCommand() *cobra.Command {
	return cli.ConfigCommand("aggregator",
		func(cmd *cobra.Command) { configs.BindAggregatorFlags(cmd.Flags()) },
		func(cmd *cobra.Command) (cli.Settings, error) {
			s, err := configs.LoadAggregator(cmd.Flags())
			if s == nil {
				return nil, err
			}
			return s, err
		})
}
