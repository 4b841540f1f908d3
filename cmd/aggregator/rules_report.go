package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/regional/adminapi"
)

func newRulesReportCommand() *cobra.Command {
	namespace := ""
	cmd := &cobra.Command{
		Use:   "report [RULE]",
		Short: "Say what edges of all regions decide, rule by rule",
		Long: `Say what edges of all regions decide, rule by rule: of the last minute the requests a second,
and which part of them was denied, of how many different keys, and denied to how many, by an
estimate that is an eighth off (what the first rate of a rule counts beyond the edge); and where a rule has a candidate, or is rolled out in some
regions (apply --regions) and so compared with what it was, which part the one denies and
the other admits: ONLY LIVE is what the limits in force deny alone, and ONLY CANDIDATE what the
candidate's do, or those of before. Edges tell every ten seconds. RULE - is requests to which
no rule applied. Regions that do not answer within a second are not in it, and are told.`,
		Example: "  aggregator rules report\n  aggregator rules report per-user --namespace shop -o json",
		Args:    cobra.MaximumNArgs(1),
	}
	output := cli.OutputFlag(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "", "in this `namespace` alone")
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		query, path := url.Values{}, "/admin/v1/decisions"
		if namespace != "" {
			query.Set("namespace", namespace)
		}
		if len(args) > 0 {
			path = "/admin/v1/rules/" + url.PathEscape(args[0]) + "/decisions"
		}
		var told adminapi.Tells
		if err := a.ask(ctx, http.MethodGet, path, query, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		if err := output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error { return printReport(out, told.Rules) }); err != nil {
			return err
		}
		for _, of := range shortOf(told.Regions) {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: "+of)
		}
		return nil
	})
}

func printReport(out io.Writer, rules []adminapi.RuleTells) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tRULE\tEDGES\tREQUESTS/S\tDENIED\tKEYS\tDENIED\tCOMPARED/S\tONLY LIVE\tONLY CANDIDATE\tREGIONS")
	for _, r := range rules {
		name, live, candidate := line(r.Rule), "-", "-"
		if name == "" {
			name = "-"
		}
		if r.Compared > 0 {
			live, candidate = percent(r.OnlyLive), percent(r.OnlyCandidate)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%s\t%d\t%d\t%.1f\t%s\t%s\t%s\n", line(r.Namespace), name, r.Edges, r.PerSecond, percent(r.Denied), r.Keys, r.KeysDenied, r.Compared, live, candidate, line(strings.Join(slices.Sorted(maps.Keys(r.Regions)), ",")))
	}
	return w.Flush()
}

// percent is a part as a table has it.
func percent(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) }

// shortOf says what is not in a report.
func shortOf(regions []adminapi.RegionTells) (said []string) {
	for _, r := range regions {
		switch {
		case !r.Heard:
			said = append(said, "region "+line(r.Region)+" does not answer, and is not in it")
		case r.Partial > 0:
			said = append(said, fmt.Sprintf("region %s: %d of %d edges are yet to tell all", line(r.Region), r.Partial, r.Edges))
		case r.LeftOut > 0:
			said = append(said, fmt.Sprintf("region %s: %d rules are left out: ask by --namespace, or for one", line(r.Region), r.LeftOut))
		}
	}
	return said
}
