package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/regional/adminapi"
	"github.com/spillgate/spillgate/sync/natsaudit"
)

func newRulesCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "rules",
		Short: "Show and change the rules that edges and aggregators read from NATS (rules.source: kv)",
		Long: `Show and change the rules that edges and aggregators read from NATS (rules.source: kv):
a document a namespace, in a JetStream bucket, with the last 64 versions of each.

They ask the admin listener of any aggregator (--server), in any region, which asks who
you are: a token, in a file (--token-file) or in SPILLGATE_ADMIN_TOKEN, that aggregator
auth token makes. A viewer may look, an editor change namespaces that are his, an admin
take them away and read the audit log. But for init, which makes the bucket, and speaks
to NATS by an operator's key.`,
	},
		newRulesInitCommand(),
		newRulesListCommand(),
		newRulesGetCommand(),
		newRulesHistoryCommand(),
		newRulesDiffCommand(),
		newRulesValidateCommand(),
		newRulesApplyCommand(),
		newRulesPromoteCommand(),
		newRulesRevertCommand(),
		newRulesRollbackCommand(),
		newRulesRemoveCommand(),
		newRulesAuditCommand(),
		newRulesTruthCommand(),
		newRulesReportCommand(),
	)
}

// rulesTimeout bounds a call.
const rulesTimeout = 20 * time.Second

// asking is a command that asks an aggregator.
type asking struct{ cli.Server }

// command has cmd ask: do is what it does.
func (a *asking) command(cmd *cobra.Command, do func(ctx context.Context, cmd *cobra.Command, args []string) error) *cobra.Command {
	a.Bind(cmd, "http://127.0.0.1:6071")
	a.BindAccess(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := cli.UntilSignal(cmd.Context())
		defer stop()
		return do(ctx, cmd, args)
	}
	return cmd
}

// ask asks for what is at a path, and reads it into, which is a *string for what is no JSON. A problem
// is an error, an *adminapi.Problem, or wraps cli.ErrUnreachable.
func (a *asking) ask(ctx context.Context, method, path string, query url.Values, header http.Header, body string, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	status, _, text, err := a.Ask(ctx, method, path, header, body)
	if err != nil {
		return err
	}
	if status >= 300 {
		var p adminapi.Problem
		if json.Unmarshal(text, &p) != nil || p.Detail == "" {
			return fmt.Errorf("%s %s: %d %s: it is no admin listener of an aggregator, or of an older one (--server says where that is)", method, path, status, http.StatusText(status))
		}
		return &p
	}
	if to, plain := into.(*string); plain {
		*to = string(text)
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: its answer is none of an aggregator: %w", method, path, err)
	}
	return nil
}

// at is where a namespace is.
func at(namespace string, more ...string) string {
	path := "/admin/v1/namespaces/" + url.PathEscape(namespace)
	for _, m := range more {
		path += "/" + m
	}
	return path
}

// numbers are the parameters that are not 0.
func numbers(named map[string]uint64) url.Values {
	query := url.Values{}
	for name, n := range named {
		if n != 0 {
			query.Set(name, strconv.FormatUint(n, 10))
		}
	}
	return query
}

func newRulesListCommand() *cobra.Command {
	return versionsCommand(&cobra.Command{Use: "list", Short: "List namespaces, with their newest versions"}, "namespaces",
		func([]string) string { return "/admin/v1/namespaces" })
}

func newRulesHistoryCommand() *cobra.Command {
	return versionsCommand(&cobra.Command{Use: "history NAMESPACE", Short: "List the versions of a namespace that are kept, the oldest first", Args: cobra.ExactArgs(1)}, "versions",
		func(args []string) string { return at(args[0], "versions") })
}

// versionsCommand lists the versions that are at a path, under a name.
func versionsCommand(cmd *cobra.Command, under string, path func([]string) string) *cobra.Command {
	output := cli.OutputFlag(cmd)
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		told := map[string]json.RawMessage{}
		if err := a.ask(ctx, http.MethodGet, path(args), nil, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		var versions []adminapi.VersionInfo
		var unreadable []string
		if err := json.Unmarshal(told[under], &versions); err != nil {
			return err
		}
		if said := told["unreadable"]; said != nil {
			if err := json.Unmarshal(said, &unreadable); err != nil {
				return err
			}
		}
		for _, what := range unreadable {
			fmt.Fprintf(cmd.ErrOrStderr(), "what is newest cannot be read, and what was before stays in force: %s\n", what)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error { return writeVersions(out, versions) })
	})
}

// writeVersions prints a line a version.
func writeVersions(out io.Writer, all []adminapi.VersionInfo) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	until := ""
	if slices.ContainsFunc(all, func(v adminapi.VersionInfo) bool { return v.Until != nil }) {
		until = "\tUNTIL"
	}
	fmt.Fprintln(w, "NAMESPACE\tVERSION\tIN\tAT\tAUTHOR\tBYTES\tMESSAGE"+until)
	for _, v := range all {
		size, in := fmt.Sprint(v.Bytes), "all"
		if len(v.Regions) > 0 {
			in = strings.Join(v.Regions, ",")
		}
		if v.Deleted {
			size = "removed"
		}
		if u := v.Until; u != nil {
			until = "\t" + line(u.Text)
			if u.State != "" {
				until += ": " + line(u.State)
			}
		} else if until != "" {
			until = "\t"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s%s\n", v.Namespace, v.Version, in, v.At.Format(time.RFC3339), line(v.Author), size, line(v.Message), until)
	}
	return w.Flush()
}

func newRulesGetCommand() *cobra.Command {
	number := uint64(0)
	cmd := &cobra.Command{
		Use:     "get NAMESPACE",
		Short:   "Print the document of a namespace",
		Example: "  aggregator rules get shop >shop.yaml\n  aggregator rules get shop --version 3",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().Uint64Var(&number, "version", 0, "its `number` (default: the newest)")
	return printing(cmd, func(args []string) (string, url.Values) {
		return at(args[0]), numbers(map[string]uint64{"version": number})
	})
}

func newRulesDiffCommand() *cobra.Command {
	from, to := uint64(0), uint64(0)
	cmd := &cobra.Command{
		Use:     "diff NAMESPACE",
		Short:   "Compare two versions of a namespace, as diff -u does",
		Example: "  aggregator rules diff shop\n  aggregator rules diff shop --from 3 --to 5",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "`number` of the older one (default: the one before --to)")
	cmd.Flags().Uint64Var(&to, "to", 0, "`number` of the newer one (default: the newest)")
	return printing(cmd, func(args []string) (string, url.Values) {
		return at(args[0], "diff"), numbers(map[string]uint64{"from": from, "to": to})
	})
}

// printing prints the text that is at a path.
func printing(cmd *cobra.Command, of func([]string) (string, url.Values)) *cobra.Command {
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		path, query := of(args)
		text := ""
		if err := a.ask(ctx, http.MethodGet, path, query, http.Header{"Accept": {"application/yaml, text/x-diff"}}, "", &text); err != nil {
			return explained(cmd, err)
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	})
}

func newRulesAuditCommand() *cobra.Command {
	namespace, who, before, limit := "", "", uint64(0), uint64(100)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what was done to rules, and tried, the newest first",
		Long: `List what was done to rules by way of the aggregators of the region that is asked, and
tried, the newest first. A change has a line when it is begun, and one with what became of it.
Nobody can change or take away what stands there; it goes after 400 days.`,
	}
	flags := cmd.Flags()
	flags.StringVar(&namespace, "namespace", "", "of this `name` alone")
	flags.StringVar(&who, "who", "", "by this `name` alone")
	flags.Uint64Var(&before, "before", 0, "older than the entry of this `number`")
	flags.Uint64Var(&limit, "limit", limit, "at most so many, up to 1000")
	output := cli.OutputFlag(cmd)
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		query := numbers(map[string]uint64{"before": before, "limit": limit})
		for name, value := range map[string]string{"namespace": namespace, "who": who} {
			if value != "" {
				query.Set(name, value)
			}
		}
		var told struct {
			Entries []natsaudit.Entry `json:"entries"`
			Before  uint64            `json:"before"`
		}
		if err := a.ask(ctx, http.MethodGet, "/admin/v1/audit", query, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NUMBER\tAT\tWHO\tFROM\tACTION\tNAMESPACE\tRULE\tVERSION\tRESULT\tMESSAGE")
			for _, e := range told.Entries {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Number, e.At.Format(time.RFC3339), line(e.Who), e.From, e.Action, line(e.Namespace), line(e.Rule), e.Version, line(e.Result), line(e.Message))
			}
			if told.Before > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "there may be older ones: --before %d\n", told.Before)
			}
			return w.Flush()
		})
	})
}

// line is a text as it stands in a table: on one line, and with nothing that a terminal acts on.
func line(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}
