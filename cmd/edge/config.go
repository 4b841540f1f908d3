package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the edge's settings",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEffectiveCommand())
	return cmd
}

func newEffectiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "effective",
		Short: "Print each setting with where its value came from",
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := configs.LoadEdge(cmd.Flags())
			if settings != nil { // shown even if something is wrong: that is when one looks
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "KEY\tVALUE\tFROM")
				for _, s := range settings.Effective() {
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.From)
				}
				if flushErr := w.Flush(); flushErr != nil {
					return flushErr
				}
			}
			return err
		},
	}
	configs.BindEdgeFlags(cmd.Flags())
	return cmd
}
