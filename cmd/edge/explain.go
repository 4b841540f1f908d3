package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/edge/httpapi"
)

func newExplainCommand() *cobra.Command {
	namespace, cost, timeout, server := "", uint64(0), 5*time.Second, cli.Server{}
	cmd := &cobra.Command{
		Use:   "explain [ATTRIBUTE=VALUE]...",
		Short: "Ask a running edge how a request stands with every rule, and why",
		Long: `Ask a running edge how a request stands with every rule, and why: rules that do
not apply with the first thing that the request has not, and the others with what
is counted here and elsewhere, this edge's share, and how far the limit may be
exceeded. Nothing is charged. It asks the admin listener (POST /v1/explain).

Attributes are those of POST /v1/check: method, path, host, client_ip,
header.NAME and any other that rules name.

Exit codes: 0 it would pass, 5 it would be denied, 4 the edge cannot be reached.`,
		Example: "  edge explain client_ip=192.0.2.1 method=GET path=/api/x header.X-User-Id=u1\n  edge explain --namespace shop --cost 5 -o json user=u1",
	}
	flags := cmd.Flags()
	server.Bind(cmd, "http://127.0.0.1:6070")
	flags.StringVar(&namespace, "namespace", "", "`name` of the rules; may be left out where the edge has one namespace")
	flags.Uint64Var(&cost, "cost", 0, "what the request costs; 0: as the rules say")
	flags.DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	output := cli.OutputFlag(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		for _, arg := range args {
			if name, _, ok := strings.Cut(arg, "="); !ok || name == "" {
				return fmt.Errorf("%q is no attribute: want NAME=VALUE, such as client_ip=192.0.2.1", arg)
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		attributes := map[string]string{}
		for _, arg := range args {
			name, value, _ := strings.Cut(arg, "=")
			attributes[name] = value
		}
		ask := map[string]any{"attributes": attributes}
		if namespace != "" {
			ask["namespace"] = namespace
		}
		if cost > 0 {
			ask["cost"] = cost
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		body, err := askExplain(ctx, server, ask)
		if err != nil {
			return err
		}
		var e httpapi.Explained
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("%s answers what is no explanation: %w", server.URL, err)
		}
		err = output.Write(cmd.OutOrStdout(), json.RawMessage(body), func(out io.Writer) error { return printExplained(out, &e) })
		if err == nil && !e.Allowed {
			return &cli.Reported{Code: cli.ExitDenied}
		}
		return err
	}
	return cmd
}

// askExplain asks an edge, and returns its answer.
func askExplain(ctx context.Context, server cli.Server, ask any) ([]byte, error) {
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	status, _, body, err := server.Ask(ctx, http.MethodPost, "/v1/explain", http.Header{"Content-Type": {"application/json"}}, string(text))
	if err != nil || status == http.StatusOK {
		return body, err
	}
	var problem struct{ Detail, Field string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" || problem.Field == "path" {
		problem.Detail = "it is no admin listener of an edge, or of an older one"
	}
	return nil, fmt.Errorf("%d %s: %s", status, http.StatusText(status), problem.Detail)
}

// printExplained prints an explanation for people: what decided, then rule by rule.
func printExplained(w io.Writer, e *httpapi.Explained) error {
	out := &bytes.Buffer{}
	verdict := "ALLOW"
	if !e.Allowed {
		verdict = "DENY"
	}
	switch {
	case e.Policy != "":
		fmt.Fprintf(out, "%s by %s\n", verdict, e.Policy)
	case e.Rule != "":
		fmt.Fprintf(out, "%s by rule %s\n", verdict, e.Rule)
	default:
		fmt.Fprintf(out, "%s: no rule applies\n", verdict)
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Applies {
			continue
		}
		fmt.Fprintf(out, "\n%s (priority %d, %s)", r.Name, r.Priority, r.Mode)
		if r.Does != "" {
			fmt.Fprintf(out, ": %ss all that it matches", r.Does)
		}
		if r.Key != "" {
			fmt.Fprintf(out, "  %s", r.Key)
		}
		fmt.Fprintln(out)
		if r.Tenant != nil {
			fmt.Fprintf(out, "  %s\n", tenantTold(r.Tenant))
		}
		for _, x := range r.Exceptions {
			fmt.Fprintf(out, "  exception %s: %s", x.ID, x.Does)
			if x.Rate != "" {
				fmt.Fprintf(out, " of %s", x.Rate)
			}
			if x.Until != nil {
				fmt.Fprintf(out, ", until %s", x.Until.Format(time.RFC3339))
			}
			fmt.Fprintln(out)
		}
		for j := range r.Rates {
			printRate(out, &r.Rates[j])
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "\nDo not apply:\n"
	for i := range e.Rules {
		if r := &e.Rules[i]; !r.Applies {
			fmt.Fprintf(t, "%s  %s\t%s\t%s\n", head, r.Name, r.Miss.Field, r.Miss.Detail)
			head = ""
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if e.More > 0 {
		fmt.Fprintf(out, "  and %d more\n", e.More)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// tenantTold is whose limits a rule has, in words.
func tenantTold(t *httpapi.ExplainedTenant) string {
	who, from := fmt.Sprintf("tenant %q", t.Name), map[string]string{"store": "by the store", "document": "by the document"}[t.From]
	if t.Name == "" {
		who = "no tenant"
	}
	if t.Until != nil {
		from += " until " + t.Until.UTC().Format(time.RFC3339)
	}
	switch {
	case t.Unknown && t.Tier != "":
		return fmt.Sprintf("%s: tier %q %s, which the document has not: the rule's own limits", who, t.Tier, from)
	case t.Unknown:
		return fmt.Sprintf("%s: a multiplier %s that the rule cannot have: its own limits", who, from)
	case t.From == "":
		return who + ": the rule's own limits"
	case t.Tier == "":
		return fmt.Sprintf("%s: limits times %v, %s", who, t.Multiply, from)
	}
	return fmt.Sprintf("%s: tier %s, limits times %v, %s", who, t.Tier, t.Multiply, from)
}

func printRate(w io.Writer, r *httpapi.ExplainedRate) {
	fmt.Fprintf(w, "  %s: %d per %s, %s, %s", r.Policy, r.Limit, r.Window, r.Scope, r.Consistency)
	if r.Ceiling > r.Limit {
		fmt.Fprintf(w, ", up to %d with its margin", r.Ceiling)
	}
	fmt.Fprintf(w, "\n    %s", meanings[r.Verdict])
	if r.Verdict != "admit" {
		fmt.Fprintf(w, "; try again in %v", time.Duration(r.RetryAfterMS)*time.Millisecond)
	}
	fmt.Fprintf(w, "\n    used %d here, %d elsewhere; %d left", r.Local, r.Merged, r.Remaining)
	switch {
	case !r.Seen:
		fmt.Fprint(w, "; this edge had not seen the key")
	case r.AgeMS < 0:
		fmt.Fprint(w, "; nothing was heard of it yet")
	default:
		fmt.Fprintf(w, "; heard of %v ago", time.Duration(r.AgeMS)*time.Millisecond)
	}
	if s := r.Share; s != nil && !s.Far {
		fmt.Fprintf(w, "\n    share: %d left of %.0f %% of the region's %.0f %%", s.Left, 100*s.Edge, 100*s.Region)
		if s.Kept >= 1 {
			fmt.Fprintf(w, "; %.0f kept for regions that are cut off", s.Kept)
		}
	} else if s != nil {
		fmt.Fprint(w, "\n    share: the limit is far off, none is needed")
	}
	if r.Rights != nil {
		fmt.Fprintf(w, "\n    rights: %d", *r.Rights)
	}
	if r.ErrorBound != nil {
		fmt.Fprintf(w, "\n    may be exceeded by %d now, by %d under a surge", *r.ErrorBound, *r.ErrorBoundSurge)
	}
	fmt.Fprintln(w)
}

// meanings are those of verdicts.
var meanings = map[string]string{
	"admit":   "would admit",
	"limit":   "denies: the limit is used up",
	"share":   "denies: this edge's share is used up, while the limit has room",
	"penalty": "denies: a penalty for what was before",
	"min_gap": "denies: too soon after the last request",
	"drop":    "denies: dropped by chance, in the margin",
	"cut_off": "denies: others cannot be heard of, and on_partition is closed",
}
