package main

import (
	"context"
	"errors"
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
)

func newTenantsCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "tenants",
		Short: "Show and change what tenants have: a tier of the rules, or a multiplier of their own",
		Long: `Show and change what tenants have beside the documents of rules: a tier, which is a name
of the document's tenants:, or a multiplier of their own. A tenant is what tier_from names in
a request. One that changes compiles no rules and resets no counters, and is in force within
a second in every region, where edges read their rules from NATS (rules.source: kv).

They ask the admin listener of any aggregator (--server), in any region, as aggregator rules
does. A viewer may look, an editor change tenants of namespaces that are his.`,
	},
		newTenantsListCommand(),
		newTenantsGetCommand(),
		newTenantsSetCommand(),
		newTenantsRemoveCommand(),
		newTenantsImportCommand(),
	)
}

// tenantAt is where a tenant is.
func tenantAt(namespace, tenant string) string {
	return at(namespace, "tenants", url.PathEscape(tenant))
}

func newTenantsListCommand() *cobra.Command {
	prefix := ""
	cmd := &cobra.Command{Use: "list NAMESPACE", Short: "List the tenants of a namespace that have something, by name", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&prefix, "prefix", "", "those that begin with this `text` alone")
	output := cli.OutputFlag(cmd)
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		told := struct {
			Tenants    []adminapi.TenantInfo `json:"tenants"`
			Unreadable []string              `json:"unreadable"`
		}{[]adminapi.TenantInfo{}, []string{}}
		query := numbers(map[string]uint64{"limit": adminapi.MostTenants})
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		newest := map[string]int{} // one that changes meanwhile comes again
		for {
			var page struct {
				Tenants    []adminapi.TenantInfo `json:"tenants"`
				Unreadable []string              `json:"unreadable"`
				After      uint64                `json:"after"`
			}
			if err := a.ask(ctx, http.MethodGet, at(args[0], "tenants"), query, nil, "", &page); err != nil {
				return explained(cmd, err)
			}
			for _, t := range page.Tenants {
				if i, again := newest[t.Tenant]; again {
					told.Tenants[i] = t
					continue
				}
				newest[t.Tenant] = len(told.Tenants)
				told.Tenants = append(told.Tenants, t)
			}
			told.Unreadable = append(told.Unreadable, page.Unreadable...)
			if page.After == 0 {
				break
			}
			query.Set("after", strconv.FormatUint(page.After, 10))
		}
		slices.SortFunc(told.Tenants, func(a, b adminapi.TenantInfo) int { return strings.Compare(a.Tenant, b.Tenant) })
		for _, wrong := range told.Unreadable {
			fmt.Fprintln(cmd.ErrOrStderr(), line(wrong))
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error { return tenantTable(out, told.Tenants) })
	})
}

func tenantTable(out io.Writer, tenants []adminapi.TenantInfo) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tTIER\tMULTIPLY\tUNTIL\tCHANGED\tBY\tMESSAGE")
	for _, t := range tenants {
		tier, multiply := "-", "-"
		if t.Tier != "" {
			tier = line(t.Tier)
		} else {
			multiply = strconv.FormatFloat(t.Multiply, 'g', -1, 64)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", line(t.Tenant), tier, multiply, clock(t.Until), t.At.Format(time.RFC3339), line(t.Author), line(t.Message))
	}
	return w.Flush()
}

func newTenantsGetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get NAMESPACE TENANT", Short: "Show what a tenant has", Args: cobra.ExactArgs(2)}
	output := cli.OutputFlag(cmd)
	var a asking
	return a.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		var told adminapi.TenantInfo
		if err := a.ask(ctx, http.MethodGet, tenantAt(args[0], args[1]), nil, nil, "", &told); err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), told, func(out io.Writer) error { return tenantTable(out, []adminapi.TenantInfo{told}) })
	})
}

// tenanting is a command that changes tenants.
type tenanting struct {
	asking
	dry     bool
	message string
}

func (c *tenanting) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "change nothing, and say what would be")
	cmd.Flags().StringVarP(&c.message, "message", "m", "", "why")
}

func (c *tenanting) query() url.Values {
	query := url.Values{}
	if c.dry {
		query.Set("dry_run", "1")
	}
	if c.message != "" {
		query.Set("message", c.message)
	}
	return query
}

// change changes one tenant, over what it has.
func (c *tenanting) change(ctx context.Context, method, namespace, tenant, body string) (done adminapi.TenantChange, err error) {
	var now adminapi.TenantInfo
	over := http.Header{"If-None-Match": {"*"}}
	var p *adminapi.Problem
	switch err := c.ask(ctx, http.MethodGet, tenantAt(namespace, tenant), nil, nil, "", &now); {
	case err == nil:
		over = http.Header{"If-Match": {now.ETag}}
	case errors.As(err, &p) && p.Status == http.StatusUnprocessableEntity: // it cannot be read
		over = http.Header{"If-Match": {"*"}}
	case errors.As(err, &p) && p.Status == http.StatusNotFound && method == http.MethodPut:
	default:
		return done, err
	}
	err = c.ask(ctx, method, tenantAt(namespace, tenant), c.query(), over, body, &done)
	return done, err
}

func newTenantsSetCommand() *cobra.Command {
	var c tenanting
	var ask adminapi.TenantAsk
	until := ""
	cmd := &cobra.Command{
		Use:     "set NAMESPACE TENANT (--tier TIER | --multiply N)",
		Short:   "Have a tenant have a tier of the document, or a multiplier of its own",
		Example: "  aggregator tenants set shop acme --tier gold -m 'they pay'\n  aggregator tenants set shop acme --multiply 3.5 --for 24h",
		Args:    cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&ask.Tier, "tier", "", "a `name` of the document's tenants")
	cmd.Flags().Float64Var(&ask.Multiply, "multiply", 0, "its own `multiplier` of the limits of rules with tier_from")
	cmd.Flags().StringVar(&ask.TTL, "for", "", "for this `time` alone, such as 24h")
	cmd.Flags().StringVar(&until, "until", "", "until this `instant` alone, such as 2030-01-31T00:00:00Z")
	cmd.MarkFlagsOneRequired("tier", "multiply")
	cmd.MarkFlagsMutuallyExclusive("tier", "multiply")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	c.bind(cmd)
	output := cli.OutputFlag(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if until != "" {
			t, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return fmt.Errorf("%w: --until %s: want an instant such as 2030-01-31T00:00:00Z", cli.ErrInvalidConfig, until)
			}
			ask.Until = &t
		}
		done, err := c.change(ctx, http.MethodPut, args[0], args[1], encoded(ask))
		if err != nil {
			return explained(cmd, err)
		}
		return output.Write(cmd.OutOrStdout(), done, func(out io.Writer) error { return tenantTable(out, []adminapi.TenantInfo{done.TenantInfo}) })
	})
}

func newTenantsRemoveCommand() *cobra.Command {
	var c tenanting
	cmd := &cobra.Command{Use: "remove NAMESPACE TENANT...", Short: "Have tenants have what the document says", Args: cobra.MinimumNArgs(2)}
	c.bind(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		for _, tenant := range args[1:] {
			if _, err := c.change(ctx, http.MethodDelete, args[0], tenant, ""); err != nil {
				return explained(cmd, err)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: removed%s\n", line(tenant), c.would()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *tenanting) would() string {
	if c.dry {
		return " (it would be: this is a dry run)"
	}
	return ""
}
