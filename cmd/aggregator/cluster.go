package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/regional"
)

func newRegionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "regions",
		Short: "Say how an aggregator hears each region, its own last",
		Long: `Say how an aggregator hears each region, its own last: ok; silent, nothing was heard for 2 s;
deaf, it is heard, and hears nothing of this region; catching_up; never_heard; unknown; self.
TOLD UNTIL is until when it has told what it counted, ONE WAY how long frames take to it.`,
	}
	output := cli.OutputFlag(cmd)
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		var told struct {
			Regions []regional.RegionState `json:"regions"`
		}
		if err := a.ask(ctx, http.MethodGet, "/admin/v1/regions", nil, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "REGION\tSTATE\tHEARD\tTOLD UNTIL\tONE WAY\tSTORE\tHEARS NOTHING OF")
			for _, r := range told.Regions {
				store, way := "ok", "-"
				if r.Unstored {
					store = "down"
				}
				if r.WayMS > 0 {
					way = (time.Duration(r.WayMS) * time.Millisecond).String()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Region, r.State, clock(r.Heard), clock(r.Told), way, store, strings.Join(r.Unheard, ","))
			}
			return w.Flush()
		})
	})
}

// clock is an instant as a table has it.
func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func newRulesTruthCommand() *cobra.Command {
	namespace := ""
	cmd := &cobra.Command{
		Use:   "truth RULE",
		Short: "Say by how much a rule's limits were exceeded in truth, and who caused it",
		Long: `Say by how much a rule's limits were exceeded in truth, since the aggregator started and as
far as it watches keys: windows that were judged, windows that were over, what was admitted
above the limit, or denied below it, the worst window, and the regions and PoPs that caused it.`,
		Args: cobra.ExactArgs(1),
	}
	output := cli.OutputFlag(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "", "in this `namespace` alone")
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		query := url.Values{}
		if namespace != "" {
			query.Set("namespace", namespace)
		}
		var told struct {
			Region       string               `json:"region"`
			Rule         string               `json:"rule"`
			Rates        []regional.RateTruth `json:"rates"`
			UnknownRates int                  `json:"unknown_rates"`
		}
		if err := a.ask(ctx, http.MethodGet, "/admin/v1/rules/"+url.PathEscape(args[0])+"/truth", query, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAMESPACE\tRATE\tLIMIT\tWINDOWS\tOVER\tADMITTED ABOVE\tDENIED BELOW\tWORST\tBY REGION\tBY POP")
			for _, r := range told.Rates {
				worst := "-"
				if r.Worst != nil {
					worst = fmt.Sprintf("+%.1f %%", 100*r.Worst.Ratio)
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", r.Namespace, r.Rate, r.Limit, r.Seen.Windows, r.Seen.Over, r.Seen.Hits, r.Seen.Under, worst, causes(r.Regions), causes(r.PoPs))
			}
			return w.Flush()
		})
	})
}

// causes are who admitted too much, and how much.
func causes(of []regional.Cause) string {
	var said []string
	for _, c := range of {
		name := c.Name
		if name == "" {
			name = "?"
		}
		said = append(said, fmt.Sprintf("%s %.0f", name, c.Hits))
	}
	return strings.Join(said, ", ")
}
