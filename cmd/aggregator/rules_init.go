package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsentries"
	"github.com/spillgate/spillgate/sync/natsrules"
)

func newRulesInitCommand() *cobra.Command {
	origin, replicas := "", 1
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the bucket of rules, or a region's mirror of it, and the audit log beside it",
		Long: `Make the bucket of rules in the JetStream domain that the settings name, or, with
--origin, a mirror of the bucket that the domain named there has; beside it the bucket of
what changes one by one, as tenants do (its name and _entries), or a mirror of that; and the
region's audit log. One region has the bucket that is written to, each other region a mirror. Run again
it changes what the settings say otherwise, and no rules.

It speaks to NATS by an operator's key (deploy/nats/users.conf).`,
		Example: "  aggregator rules init --rules-kv-domain eu --replicas 3 --nats-urls nats://eu.example:4222 --nats-nkey operator.nk\n" +
			"  aggregator rules init --rules-kv-domain us --origin eu --nats-urls nats://us.example:4222 --nats-nkey operator.nk",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			s, err := configs.LoadOperator(cmd.Flags())
			if err != nil {
				return err
			}
			s.Log.Level = max(s.Log.Level, slog.LevelWarn)
			stopped, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			ctx, cancel := context.WithTimeout(stopped, rulesTimeout)
			defer cancel()
			bus, err := natsbus.Connect(cli.NATS(s.NATS, "aggregator rules", "", cli.Logger(cmd.ErrOrStderr(), s.Log)))
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
			}
			defer func() { err = errors.Join(err, bus.Close()) }()
			js, err := bus.JetStream(s.Rules.KV.Domain)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
			}
			if _, err = natsrules.Make(ctx, js, s.Rules.KV.Bucket, origin, replicas); err == nil {
				_, err = natsentries.Make(ctx, js, s.Rules.KV.Bucket, origin, replicas)
			}
			if err == nil {
				err = natsaudit.Make(ctx, js, s.Rules.KV.Bucket, replicas)
			}
			if err != nil {
				return fmt.Errorf("%w: %w; see that these are an operator's credentials (--nats-nkey), and the domain is this server's region's (--rules-kv-domain)", cli.ErrUnreachable, errors.Join(err, bus.Status().Err))
			}
			what := "bucket"
			if origin != "" {
				what = "mirror of " + origin + "'s bucket"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The %s %s is there, what stands beside it (tenants), and its audit log.\n", what, s.Rules.KV.Bucket)
			return err
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "JetStream `domain` whose bucket this one mirrors (default: none, it is the one that is written to)")
	cmd.Flags().IntVar(&replicas, "replicas", 1, "servers that have it, of the domain's: 1, 3 or 5")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}
