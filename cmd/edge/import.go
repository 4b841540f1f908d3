package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func newImportCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "import",
		Short: "Write rules that say what the configuration of another limiter says",
	}, newImportEnvoyCommand())
}

func newImportEnvoyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "envoy DIR...",
		Short: "Write rules that say what envoyproxy/ratelimit's files say",
		Long: `Write rules of our own, to standard output, that say what files of envoyproxy/ratelimit,
or directories of *.yaml, say.

Of what has no equal it says so, with its line: codes that begin with E are of what was
left out, and the exit code is 1 then; W of what was written, and differs. It warns of
variables of the environment, too, by which the reference decides otherwise than its
files say: run it in that environment. To serve the files as they are, and decide as the
reference does, use rules.format: envoy.`,
		Example: "  edge import envoy /data/ratelimit/config >rules.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			text, notes, err := configs.ImportEnvoy(paths...)
			if err != nil {
				return err
			}
			left := false
			for _, n := range append(notes, configs.EnvoyVariables(os.Environ())...) {
				left = left || strings.HasPrefix(n.Code, "E")
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), n.Text()); err != nil {
					return err
				}
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return err
			}
			if left {
				return &cli.Reported{Code: cli.ExitFailure}
			}
			return nil
		},
	}
}
