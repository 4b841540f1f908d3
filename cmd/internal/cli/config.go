package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

// Settings is a daemon's settings as far as they are shown.
type Settings interface{ Effective() []configs.Effective }

// ConfigCommand makes `config effective`: bind defines the daemon's flags, load
// reads its settings and returns nil where there are none to show.
func ConfigCommand(process string, bind func(*cobra.Command), load func(*cobra.Command) (Settings, error)) *cobra.Command {
	effective := &cobra.Command{
		Use:   "effective",
		Short: "Print each setting with where its value came from",
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := load(cmd)
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
	bind(effective)
	return Parent(&cobra.Command{Use: "config", Short: "Show the " + process + "'s settings"}, effective)
}
