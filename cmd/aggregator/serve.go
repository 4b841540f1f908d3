package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/adminapi"
	"github.com/spillgate/spillgate/sync/natsbus"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an aggregator",
		Long: `Run an aggregator: join the counts of the region's edges, keep them in Redis,
exchange subtotals with the other regions.

It starts without NATS or Redis and says so. Without redis.url, or redis.addrs,
it keeps counts in memory: they are gone when it stops, but for what living edges send again.
With rules.path it tells what limits admitted in truth; SIGHUP reads the rules again.`,
		Example: "  aggregator serve --config configs/aggregator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := configs.LoadAggregator(cmd.Flags())
			if err != nil {
				return err
			}
			ctx, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			return serve(ctx, settings, cli.Logger(cmd.ErrOrStderr(), settings.Log))
		},
	}
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

// serve runs an aggregator until ctx ends.
//
//	bus ──► aggregator ──► store          admin listener ──► stats
//	            ▲
//	          rules
//
// Teardown, last in first out: rules watcher; aggregator (stops serving, last exports
// and writes), admin listener, bus, store.
func serve(ctx context.Context, s *configs.AggregatorSettings, log *slog.Logger) (err error) {
	// Operators send it to every daemon: one that nobody listens for kills.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if err := checkRoom(s); err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	var agg *regional.Aggregator
	store, err := openStore(s, func() time.Time { return agg.Now() }, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	reg := cli.Registry(cli.Version())
	config := aggregatorConfig(s)
	config.Logger, config.Registerer = log, reg
	rights, err := openRights(s, log)
	if err != nil {
		return err
	}
	if rights != nil {
		defer func() { err = errors.Join(err, rights.Close()) }()
		config.Rights = rights
	}
	var bus *natsbus.Bus // who reads rules from it does so once it is there
	var rules cli.Rules
	if s.Rules.Set() {
		if rules, err = cli.OpenRules(ctx, s.Rules, s.Region, func() *natsbus.Bus { return bus }, reg, log); err != nil {
			return err
		}
		config.Rules = rules.Set()
	}
	var inForce atomic.Pointer[limit.Set] // for whoever asks of single keys
	inForce.Store(config.Rules)
	if agg, err = regional.New(config, store); err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	bus, err = natsbus.Connect(cli.NATS(s.NATS, "aggregator "+s.Region+"/"+s.Name, s.Region+"."+s.Name, log))
	if err != nil { // a server that is away is none
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	cli.NATSMetrics(reg, bus.Status)
	admin, handler, err := openAdmin(s, log)
	if err != nil {
		return err
	}
	handler.Subject, handler.Connected, handler.Metrics = agg, func() bool { return bus.Status().Connected }, reg
	if s.Rules.Source == configs.SourceKV {
		handler.Rules = rulebook(s.Rules, bus, log)
	}
	if handler.Keys, err = keybook(s, bus, agg, inForce.Load, log); err != nil {
		return errors.Join(err, admin.Close())
	}
	log.Info("aggregator serves", "region", s.Region, "name", s.Name, "peers", s.Peers, "admin", admin.Addr().String())

	routes := httpapi.Routes(adminapi.New(handler))
	if s.Admin.Loopback() {
		routes = httpapi.Local(routes)
	}
	outer := cli.NewStage(context.WithoutCancel(ctx))
	outer.Go("admin listener", func(ctx context.Context) error {
		return httpapi.NewServer(routes, httpapi.ServerConfig{Logger: log}).Serve(ctx, admin)
	})
	inner := cli.NewStage(ctx)
	inner.Go("aggregator", func(ctx context.Context) error { return agg.Run(ctx, bus) })
	if versions, kept := rules.(cli.Versioned); kept {
		inner.Go("rollouts", func(ctx context.Context) error {
			handler.Rules.RunRollouts(ctx, versions.Newest)
			return nil
		})
	}
	if rules != nil {
		reloads := cli.NewReloads(reg)
		inner.Go("rules", func(ctx context.Context) error {
			rules.Run(ctx, func(set *limit.Set, _ []configs.Mistake) error { // edges tell its warnings
				agg.SetRules(set)
				inForce.Store(set)
				reloads.OK(set.Written(), log)
				return nil
			}, func(err error) { reloads.Failed(err, log) })
			return nil
		})
		inner.Go("SIGHUP", func(ctx context.Context) error { return cli.ReloadOnHangup(ctx, hangups, rules) })
	}
	select {
	case <-inner.Done():
	case <-outer.Done():
	}
	log.Info("aggregator drains")
	return errors.Join(inner.Stop(), outer.Stop())
}
