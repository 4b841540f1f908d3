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
	"github.com/spillgate/spillgate/edge/deferred"
	"github.com/spillgate/spillgate/sync/natsbus"
)

func newDeferredCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "deferred",
		Short: "Make or change the region's queue of deferred requests",
	}, newDeferredApplyCommand())
}

// applyTimeout bounds a call to JetStream, of the operator's.
const applyTimeout = 5 * time.Second

func newDeferredApplyCommand() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Have the region's queue of deferred requests be as the edges' settings say",
		Long: `Have the region's queue of deferred requests be as the edges' settings say: three
JetStream streams, and the consumer by which the edges do what waits. It prints what
is missing and what differs; with --yes it makes and changes that. What waits stays,
and where all is as it is to be nothing is done, so it may be run again at any time:
where it fails halfway it says what is done and what is left, and goes on with that then.
Edges that waited for it go on within seconds.

It reads the edges' settings (region, proxy.defer, nats) and needs the rights of an
operator, as the edges' do not make or change streams (deploy/nats/users.conf): name
her key with --nats-nkey, and with --nats-urls a server of the region, as what comes
over the leaf of a PoP has the rights of that.

What JetStream cannot change in a stream that is there is told, with what would help.`,
		Example: "  edge deferred apply --config configs/edge.yaml --nats-nkey operator.nk --nats-urls nats://192.0.2.1:4222\n  edge deferred apply --yes --region eu --proxy-defer-domain eu --proxy-defer-max-bytes 2GiB",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := configs.LoadDeferred(cmd.Flags())
			if err != nil {
				return err
			}
			s.Log.Level = max(s.Log.Level, slog.LevelWarn)
			ctx, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			return applyDeferred(ctx, s, yes, cmd.OutOrStdout(), cli.Logger(cmd.ErrOrStderr(), s.Log))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: without it nothing is changed")
	configs.BindEdgeFlags(cmd.Flags())
	return cmd
}

func applyDeferred(ctx context.Context, s *configs.EdgeSettings, yes bool, out io.Writer, log *slog.Logger) (err error) {
	// The inbox is one of the edges': so their credentials can look, too.
	bus, err := natsbus.Connect(cli.NATS(s.NATS, "edge deferred apply", s.Region+"."+s.PoP+".operator", log))
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	js, err := bus.JetStream(s.Proxy.Defer.Domain)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	cfg := deferredConfig(s, log)
	cfg.Timeout = applyTimeout
	look := func() (*deferred.Plan, error) {
		plan, err := deferred.Inspect(ctx, js, cfg)
		if errors.Is(err, deferred.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", cli.ErrUnreachable, errors.Join(err, bus.Status().Err))
		}
		return plan, err
	}
	plan, err := look()
	if err != nil {
		return err
	}
	if err := writePlan(out, plan); err != nil {
		return err
	}
	if !plan.Fits() && !yes {
		return errors.New("nothing is changed: say --yes to have it made and changed so")
	}
	if !plan.Fits() {
		if err := plan.Apply(ctx); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w; JetStream is away, or these credentials may not do that: name the operator's (--nats-nkey), at a server of the region (--nats-urls)", err)
			}
			return err
		}
		if plan, err = look(); err != nil {
			return fmt.Errorf("all of that is made and changed, and then could not be looked at: %w", err)
		}
		if !plan.Fits() {
			return fmt.Errorf("JetStream has made it otherwise: %v", plan)
		}
	}
	_, err = fmt.Fprintf(out, "The queue of deferred requests of %s is as these settings say.\n", s.Region)
	return err
}

// writePlan prints a line for each part that is as it is to be, or missing, and for each
// setting that differs.
func writePlan(out io.Writer, plan *deferred.Plan) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSETTING\tIS\tWANT")
	for _, p := range plan.Parts {
		switch {
		case p.Missing:
			fmt.Fprintf(w, "%s\t\tmissing\t\n", p.Name)
		case len(p.Differs) == 0:
			fmt.Fprintf(w, "%s\t\tok\t\n", p.Name)
		}
		for _, d := range p.Differs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, d.Setting, d.Is, d.Want)
		}
	}
	return w.Flush()
}
