package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
)

func newRightsCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "rights",
		Short: "Show the region's log of rights in strict limits, vouch for it, or take rights back",
	},
		newRightsShowCommand(),
		newRightsTrustCommand(),
		newRightsListCommand(),
		newRightsRevokeCommand(),
	)
}

func newRightsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print how old the log of each lane is, and what is wrong with its Redis",
		Long: `Print how old the log of each lane is, and what is wrong with its Redis.

A log that is new, or may have lost something, grants nothing of a strict limit
until it is older than a lease (15 s) and the limit's window.`,
		Example: "  aggregator rights show --config configs/aggregator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withRights(cmd, func(ctx context.Context, log *redisstore.Rights, s *configs.AggregatorSettings) error {
				lanes, err := look(ctx, log)
				if err != nil {
					return err
				}
				if err := writeRights(cmd.OutOrStdout(), lanes, s.Lanes); err != nil {
					return err
				}
				if err := log.Durable(ctx); err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
				}
				return nil
			})
		},
	}
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

func newRightsTrustCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Vouch that the log has everything, so that strict limits grant at once",
		Long: `Vouch that the log of rights in strict limits has everything, so that they
grant at once, and not after a lease (15 s) and the window.

Do it where a cluster is new, once in each region, or where another Redis serves
the log and you know that it has all that the one before had. Else wait: where an
edge holds rights that the log does not know, or has spent some in the window that
runs, STRICT LIMITS ARE EXCEEDED by as much. Aggregators may run meanwhile: they
take their lanes anew.`,
		Example: "  aggregator rights trust --yes --config configs/aggregator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withRights(cmd, func(ctx context.Context, log *redisstore.Rights, s *configs.AggregatorSettings) error {
				lanes, err := look(ctx, log)
				if err != nil {
					return err
				}
				if err := writeRights(cmd.OutOrStdout(), lanes, s.Lanes); err != nil {
					return err
				}
				for _, l := range lanes {
					if l.Lanes != 0 && l.Lanes != s.Lanes {
						return fmt.Errorf("nothing is changed: the log is of %d lanes, and %d are configured: its keys would be in other lanes. Aggregators that are started with %d begin it anew; or configure lanes: %d", l.Lanes, s.Lanes, s.Lanes, l.Lanes)
					}
				}
				if !yes {
					return errors.New("nothing is changed: say --yes if no edge holds rights that this log does not know, nor spent some in a window that still runs")
				}
				if err := log.Trust(ctx); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "The log of all %d lanes of %s is trusted.\n", s.Lanes, s.Region)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: without it nothing is changed")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

// withRights runs do with the log that the settings name.
func withRights(cmd *cobra.Command, do func(context.Context, *redisstore.Rights, *configs.AggregatorSettings) error) error {
	s, err := configs.LoadAggregator(cmd.Flags())
	if err != nil {
		return err
	}
	log, err := rightsIn(s, slog.New(slog.DiscardHandler))
	switch {
	case err != nil:
		return err
	case log == nil:
		return fmt.Errorf("%w: no redis.url and no redis.addrs: without a Redis there is no log of rights, and strict limits deny everything", cli.ErrInvalidConfig)
	}
	ctx, stop := cli.UntilSignal(cmd.Context())
	defer stop()
	return errors.Join(do(ctx, log, s), log.Close())
}

func look(ctx context.Context, log *redisstore.Rights) ([]redisstore.LaneLog, error) {
	lanes, err := log.Look(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, cli.ErrUnreachable)
	}
	return lanes, nil
}

// writeRights prints a line a lane.
func writeRights(out io.Writer, lanes []redisstore.LaneLog, configured int) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "LANE\tAGE\tKEYS\tGRANTS")
	for _, l := range lanes {
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\n", l.Lane, age(l), l.Keys, grants(l, configured))
	}
	return w.Flush()
}

// longAgo is older than any window: a log that somebody vouched for.
const longAgo = 10 * 366 * 24 * time.Hour

func age(l redisstore.LaneLog) string {
	switch {
	case l.Lanes == 0:
		return "none"
	case l.Age > longAgo:
		return "trusted"
	}
	return l.Age.Round(time.Second).String()
}

// grants says of which windows rights are granted now.
func grants(l redisstore.LaneLog, configured int) string {
	switch {
	case l.Lanes == 0:
		return "nothing: no aggregator took it yet"
	case l.Lanes != configured:
		return fmt.Sprintf("it is of %d lanes, %d are configured", l.Lanes, configured)
	case l.Moved:
		return "nothing, until an aggregator takes it: another server has it than wrote it"
	case l.Age > longAgo:
		return "all windows"
	}
	if window := escrow.LongestWindow(deltasync.DefaultLease, l.Age); window > 0 {
		return "windows of up to " + window.Round(time.Second).String()
	}
	return "nothing yet"
}
