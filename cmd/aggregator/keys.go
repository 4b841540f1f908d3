package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/regional/adminapi"
)

func newKeysCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "keys",
		Short: "Show how single keys stand, have them begin anew, and give them other limits for some time",
		Long: `Show how single keys stand, have them begin anew, and give them other limits for some time.

A key is what a rule counts by: the values of its key, each by its name (user=u1), or what
it is called (--name), as keys top and keys get tell it. They ask the admin listener of any
aggregator (--server), in any region, as aggregator rules does. A viewer may look, an editor
change what holds for keys of namespaces that are his; it is in every region within a second,
where edges read their rules from NATS (rules.source: kv), and in the audit log.`,
	},
		newKeysTopCommand(),
		newKeysGetCommand(),
		newKeysResetCommand(),
		newKeysGrantCommand(),
		newKeysOverrideCommand(),
		newKeysExceptionsCommand(),
		newKeysRemoveCommand(),
	)
}

// keyed is a command about one key.
type keyed struct {
	asking
	name, rate string
}

// keyArgs says what is wrong with the arguments of a command about one key.
func (k *keyed) keyArgs(_ *cobra.Command, args []string) error {
	if len(args) < 2 {
		return errors.New("want a namespace, a rule, and the values of its key, such as: shop per-user user=u1")
	}
	for _, arg := range args[2:] {
		if name, _, ok := strings.Cut(arg, "="); !ok || name == "" {
			return fmt.Errorf("%q is no part of a key: want NAME=VALUE, such as user=u1", arg)
		}
	}
	return nil
}

// bind has a command be about one key.
func (k *keyed) bind(cmd *cobra.Command) {
	cmd.Args = k.keyArgs
	cmd.Flags().StringVar(&k.name, "name", "", "what the key is called, 16 hexadecimal `digits`, in place of its values")
}

// body is what is sent of the key, and what is to hold for it.
func (k *keyed) body(args []string, more map[string]any) string {
	body := map[string]any{"rule": args[1]}
	if k.name != "" {
		body["name"] = k.name
	}
	if k.rate != "" {
		body["rate"] = k.rate
	}
	if len(args) > 2 {
		key := map[string]string{}
		for _, arg := range args[2:] {
			name, value, _ := strings.Cut(arg, "=")
			key[name] = value
		}
		body["key"] = key
	}
	for name, value := range more {
		body[name] = value
	}
	text, _ := json.Marshal(body) // of texts and numbers it never fails
	return string(text)
}

func newKeysGetCommand() *cobra.Command {
	var k keyed
	cmd := &cobra.Command{
		Use:   "get NAMESPACE RULE [NAME=VALUE]...",
		Short: "Show how a key stands with each rate of its rule: counts by whom, penalties, exceptions",
		Long: `Show how a key stands with each rate of its rule: what is used of the limit, by which edges
of the region and which other regions, since when; until when it is kept out; and what holds
for it alone. What an edge has counted and not yet told is not in it: edge explain asks one.

Aggregators can name a key by its values where they have the cluster's secret (secret_file).`,
		Example: "  aggregator keys get shop per-user user=u1\n  aggregator keys get shop per-user --name 4ad6d74dcee4a8b9 -o json",
	}
	k.bind(cmd)
	cmd.Flags().StringVar(&k.rate, "rate", "", "of this rate alone, by its `name`")
	output := cli.OutputFlag(cmd)
	return k.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		var key adminapi.KeyInfo
		if err := k.ask(ctx, http.MethodPost, at(args[0], "keys", "get"), nil, nil, k.body(args, nil), &key); err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), key, func(out io.Writer) error { return writeKey(out, &key) })
	})
}

// writeKey prints how a key stands.
func writeKey(out io.Writer, key *adminapi.KeyInfo) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "Key %s of rule %s in namespace %s", key.Name, line(key.Rule), line(key.Namespace))
	if key.CountedAs != "" {
		fmt.Fprintf(w, ", called %s since it was reset", key.CountedAs)
	}
	fmt.Fprintln(w, "\n\nRATE\tUSED\tLIMIT\tASKED\tPENALTY UNTIL\tFROM")
	for i := range key.Rates {
		r := &key.Rates[i]
		asked := "-"
		if r.Asked != nil {
			asked = fmt.Sprintf("%g", *r.Asked)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", line(r.Rate), r.Used, r.Limit, asked, when(r.PenaltyUntil), r.Basis)
	}
	fmt.Fprintln(w, "\nRATE\tCOUNTED BY\tREGION\tPOP\tUSED\tAGE")
	for i := range key.Rates {
		for _, by := range key.Rates[i].By {
			who := by.Who
			if by.Node != "" {
				who += " " + by.Node
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%v\n", line(key.Rates[i].Rate), who, by.Region, line(by.PoP), by.Used, time.Duration(by.AgeMS)*time.Millisecond)
		}
	}
	if len(key.Exceptions) > 0 {
		fmt.Fprintln(w)
		writeExceptions(w, key.Exceptions)
	}
	return w.Flush()
}

func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// writeExceptions prints a line an exception.
func writeExceptions(w io.Writer, all []adminapi.ExceptionInfo) {
	fmt.Fprintln(w, "ID\tRULE\tRATE\tDOES\tKEY\tUNTIL\tAT\tAUTHOR\tMESSAGE")
	for i := range all {
		e := &all[i]
		does, key := e.Kind, e.Name
		switch {
		case e.Add != nil:
			does = fmt.Sprintf("+%d", *e.Add)
		case e.Limit != nil:
			does = fmt.Sprintf("limit %d", *e.Limit)
		}
		if len(e.Key) > 0 {
			key = line(strings.Join(e.Key, ","))
		}
		rate := e.Rate
		if rate == "" {
			rate = "all"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, line(e.Rule), line(rate), does, key, when(e.Until), e.At.UTC().Format(time.RFC3339), line(e.Author), line(e.Message))
	}
}

func newKeysTopCommand() *cobra.Command {
	by, namespace, rule, limit := "denied", "", "", uint64(20)
	var a asking
	cmd := &cobra.Command{
		Use:   "top",
		Short: "List the keys of which most was denied, used, or admitted beyond the limit",
		Long: `List the keys of which there is most, by what they are called, of the lanes that the
aggregator asked has: where a region has several, each has its part.

By denied: what edges say is asked for in a window, of adaptive limits, and was not
admitted. By allowed: what is used, as a part of the limit. By cost: what is used. By
over_admitted: what was admitted beyond the limit of late, as slices that are over tell.`,
		Example: "  aggregator keys top\n  aggregator keys top --by cost --namespace shop --rule per-user --limit 100",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&by, "by", by, "denied, allowed, cost, or over_admitted")
	flags.StringVar(&namespace, "namespace", "", "of this `name` alone")
	flags.StringVar(&rule, "rule", "", "of this `name` alone")
	flags.Uint64Var(&limit, "limit", limit, "at most so many, up to 1000")
	output := cli.OutputFlag(cmd)
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		query := numbers(map[string]uint64{"limit": limit})
		for name, value := range map[string]string{"by": by, "namespace": namespace, "rule": rule} {
			if value != "" {
				query.Set(name, value)
			}
		}
		var told struct {
			By    string            `json:"by"`
			Keys  []adminapi.TopKey `json:"keys"`
			Owned int               `json:"owned_lanes"`
			Lanes int               `json:"lanes"`
		}
		if err := a.ask(ctx, http.MethodGet, "/admin/v1/keys/top", query, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		if told.Owned < told.Lanes {
			fmt.Fprintf(cmd.ErrOrStderr(), "this aggregator has %d of %d lanes: others of the region have the other keys\n", told.Owned, told.Lanes)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NAMESPACE\tRULE\tRATE\tNAME\tUSED\tLIMIT\tDENIED\tOVER\tPENALTY UNTIL")
			for _, k := range told.Keys {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", k.Namespace, line(k.Rule), line(k.Rate), k.Name, k.Used, k.Limit, k.Denied, k.OverAdmitted, when(k.PenaltyUntil))
			}
			return w.Flush()
		})
	})
}

// excepting is a command that has something hold for one key.
type excepting struct {
	keyed
	replace, dry bool
	message      string
	ttl          string
	until        string
	output       *cli.Output
}

func (e *excepting) bind(cmd *cobra.Command) {
	e.keyed.bind(cmd)
	cmd.Flags().BoolVar(&e.dry, "dry-run", false, "change nothing, and say what would be")
	cmd.Flags().StringVarP(&e.message, "message", "m", "", "why")
	e.output = cli.OutputFlag(cmd)
}

// ends has it end some time.
func (e *excepting) ends(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.ttl, "for", "", "`how long` it holds, such as 30m, 24h or 7d")
	cmd.Flags().StringVar(&e.until, "until", "", "or until `when`, such as 2026-12-24T18:00:00Z")
	cmd.Flags().StringVar(&e.rate, "rate", "", "of this rate, by its `name`")
	cmd.Flags().BoolVar(&e.replace, "replace", false, "in the place of one that holds already")
	cmd.MarkFlagsOneRequired("for", "until")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
}

// do has it hold.
func (e *excepting) do(ctx context.Context, cmd *cobra.Command, what string, args []string, more map[string]any) error {
	if e.ttl != "" {
		more["ttl"] = e.ttl
	}
	if e.until != "" {
		more["until"] = e.until
	}
	query := url.Values{}
	if e.dry {
		query.Set("dry_run", "1")
	}
	if e.message != "" {
		query.Set("message", e.message)
	}
	header := http.Header{}
	if e.replace {
		header.Set("If-Match", "*")
	}
	var done adminapi.ExceptionChange
	err := e.ask(ctx, http.MethodPost, at(args[0], "keys", what), query, header, e.body(args, more), &done)
	var p *adminapi.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusConflict && strings.HasPrefix(p.Hint, "If-Match"):
		return fmt.Errorf("%s (--replace replaces it; aggregator keys remove ends it)", p.Detail)
	case err != nil:
		return explained(cmd, err)
	}
	return e.output.Write(cmd.OutOrStdout(), done, func(out io.Writer) error {
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		if writeExceptions(w, []adminapi.ExceptionInfo{done.ExceptionInfo}); e.dry {
			fmt.Fprintln(cmd.ErrOrStderr(), "nothing is changed")
		}
		return w.Flush()
	})
}

func newKeysResetCommand() *cobra.Command {
	var e excepting
	cmd := &cobra.Command{
		Use:   "reset NAMESPACE RULE [NAME=VALUE]...",
		Short: "Have a key begin anew: nothing of it is counted, and it is out of any penalty",
		Long: `Have a key begin anew: nothing of it is counted, and it is out of any penalty, by all rates
of its rule, and its candidate's. From then on it counts under another name, in every region
within a second. It stays so for good (aggregator keys exceptions lists it); once the longest
window of the rule is over it may be removed, and makes room.

Of a strict limit as much again may be admitted in the window: those who hold rights in the
old name hold them until they run out, and they count no more.`,
		Example: "  aggregator keys reset shop per-user user=u1 -m 'ticket 4711'",
	}
	e.bind(cmd)
	return e.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return e.do(ctx, cmd, "reset", args, map[string]any{})
	})
}

func newKeysGrantCommand() *cobra.Command {
	var e excepting
	add := uint64(0)
	cmd := &cobra.Command{
		Use:     "grant NAMESPACE RULE [NAME=VALUE]...",
		Short:   "Give a key more than its limit for some time",
		Long:    "Give a key more than its limit for some time, whatever that is by then; without --rate by\neach rate of its rule. Not of strict limits, whose rights would outlast it.",
		Example: "  aggregator keys grant shop per-user user=u1 --add 50 --for 1h\n  aggregator keys grant shop per-user user=u1 --rate minute --add 50 --until 2026-12-24T18:00:00Z",
	}
	e.bind(cmd)
	e.ends(cmd)
	cmd.Flags().Uint64Var(&add, "add", 0, "`how much` more")
	_ = cmd.MarkFlagRequired("add") // it is there
	return e.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return e.do(ctx, cmd, "grant", args, map[string]any{"add": add})
	})
}

func newKeysOverrideCommand() *cobra.Command {
	var e excepting
	limit := uint64(0)
	cmd := &cobra.Command{
		Use:     "override NAMESPACE RULE [NAME=VALUE]...",
		Short:   "Give a key another limit for some time, larger or smaller; 0 shuts it out",
		Long:    "Give a key another limit for some time, larger or smaller; 0 shuts it out. Of a rule with\nseveral rates --rate says which. Not of strict limits, whose rights would outlast it.",
		Example: "  aggregator keys override shop per-user user=u1 --limit 100 --for 24h\n  aggregator keys override shop per-user user=u1 --rate minute --limit 0 --for 10m",
	}
	e.bind(cmd)
	e.ends(cmd)
	cmd.Flags().Uint64Var(&limit, "limit", 0, "the `limit`")
	_ = cmd.MarkFlagRequired("limit") // it is there
	return e.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return e.do(ctx, cmd, "override", args, map[string]any{"limit": limit})
	})
}

func newKeysExceptionsCommand() *cobra.Command {
	rule, after, limit := "", uint64(0), uint64(100)
	var a asking
	cmd := &cobra.Command{
		Use:   "exceptions NAMESPACE",
		Short: "List what holds for single keys: resets, grants, overrides",
		Args:  cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&rule, "rule", "", "of this `name` alone")
	flags.Uint64Var(&after, "after", 0, "where to go on, as the list before said")
	flags.Uint64Var(&limit, "limit", limit, "at most so many, up to 1000")
	output := cli.OutputFlag(cmd)
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		query := numbers(map[string]uint64{"after": after, "limit": limit})
		if rule != "" {
			query.Set("rule", rule)
		}
		var told struct {
			Exceptions []adminapi.ExceptionInfo `json:"exceptions"`
			After      uint64                   `json:"after"`
			Unreadable []string                 `json:"unreadable"`
		}
		if err := a.ask(ctx, http.MethodGet, at(args[0], "exceptions"), query, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		for _, what := range told.Unreadable {
			fmt.Fprintf(cmd.ErrOrStderr(), "cannot be read: %s\n", line(what))
		}
		if told.After > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "there may be more: --after %d\n", told.After)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error {
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			writeExceptions(w, told.Exceptions)
			return w.Flush()
		})
	})
}

func newKeysRemoveCommand() *cobra.Command {
	message := ""
	var a asking
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE ID",
		Short: "End an exception: of a reset, what was counted before counts again, if its window is not over",
		Args:  cobra.ExactArgs(2),
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", "why")
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		query := url.Values{}
		if message != "" {
			query.Set("message", message)
		}
		var done adminapi.ExceptionChange
		err := a.ask(ctx, http.MethodDelete, at(args[0], "exceptions", url.PathEscape(args[1])), query, http.Header{"If-Match": {"*"}}, "", &done)
		if err != nil {
			return explained(cmd, err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of rule %s is removed.\n", done.ID, line(done.Rule))
		return err
	})
}
