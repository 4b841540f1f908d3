package main

import (
	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func newConfigCommand() *cobra.Command {
	return cli.ConfigCommand("edge",
		func(cmd *cobra.Command) { configs.BindEdgeFlags(cmd.Flags()) },
		func(cmd *cobra.Command) (cli.Settings, error) {
			s, err := configs.LoadEdge(cmd.Flags())
			if s == nil {
				return nil, err
			}
			return s, err
		})
}
