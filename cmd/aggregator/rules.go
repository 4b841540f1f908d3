package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsrules"
)

func newRulesCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "rules",
		Short: "Show and change the rules that edges and aggregators read from NATS (rules.source: kv)",
		Long: `Show and change the rules that edges and aggregators read from NATS (rules.source: kv):
a document a namespace, in a JetStream bucket, with the last 64 versions of each.

They read the settings of an aggregator (nats, rules.kv, rules.format). To look takes the
rights of an aggregator, with --region; to change takes those of an operator
(deploy/nats/users.conf), in any region: what is written at a mirror is written where that
is from.`,
	},
		newRulesInitCommand(),
		newRulesListCommand(),
		newRulesGetCommand(),
		newRulesHistoryCommand(),
		newRulesApplyCommand(),
		newRulesRollbackCommand(),
		newRulesRemoveCommand(),
	)
}

// rulesTimeout bounds what a command asks of JetStream.
const rulesTimeout = 20 * time.Second

func newRulesInitCommand() *cobra.Command {
	origin, replicas := "", 1
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the bucket of rules, or a region's mirror of it",
		Long: `Make the bucket of rules in the JetStream domain that the settings name, or, with
--origin, a mirror of the bucket that the domain named there has. One region has the
bucket that is written to, each other region a mirror. Run again it changes what the
settings say otherwise, and no rules.`,
		Example: "  aggregator rules init --rules-kv-domain eu --replicas 3 --nats-urls nats://eu.example:4222 --nats-nkey operator.nk\n" +
			"  aggregator rules init --rules-kv-domain us --origin eu --nats-urls nats://us.example:4222 --nats-nkey operator.nk",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBucket(cmd, func(ctx context.Context, s *configs.AggregatorSettings, bus *natsbus.Bus) error {
				js, err := bus.JetStream(s.Rules.KV.Domain)
				if err != nil {
					return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
				}
				if _, err := natsrules.Make(ctx, js, s.Rules.KV.Bucket, origin, replicas); err != nil {
					return fmt.Errorf("%w; see that these are an operator's credentials (--nats-nkey), and the domain is this server's region's (--rules-kv-domain)", err)
				}
				what := "bucket"
				if origin != "" {
					what = "mirror of " + origin + "'s bucket"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "The %s %s is there.\n", what, s.Rules.KV.Bucket)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&origin, "origin", "", "JetStream `domain` whose bucket this one mirrors (default: none, it is the one that is written to)")
	cmd.Flags().IntVar(&replicas, "replicas", 1, "servers that have it, of the domain's: 1, 3 or 5")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

func newRulesListCommand() *cobra.Command {
	return listing(&cobra.Command{
		Use:   "list",
		Short: "List namespaces, with their newest versions",
	}, func(ctx context.Context, store *natsrules.Store, _ []string) ([]natsrules.Version, error) {
		return store.All(ctx)
	})
}

func newRulesHistoryCommand() *cobra.Command {
	return listing(&cobra.Command{
		Use:   "history NAMESPACE",
		Short: "List the versions of a namespace that are kept, the oldest first",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, store *natsrules.Store, args []string) ([]natsrules.Version, error) {
		return store.History(ctx, args[0])
	})
}

// listing has a command print what versions there are.
func listing(cmd *cobra.Command, versions func(context.Context, *natsrules.Store, []string) ([]natsrules.Version, error)) *cobra.Command {
	output := cli.OutputFlag(cmd)
	configs.BindAggregatorFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withRules(cmd, func(ctx context.Context, _ configs.Format, store *natsrules.Store) error {
			all, err := versions(ctx, store, args)
			if err != nil {
				return err
			}
			return writeVersions(cmd.OutOrStdout(), *output, all)
		})
	}
	return cmd
}

func newRulesGetCommand() *cobra.Command {
	number := uint64(0)
	cmd := &cobra.Command{
		Use:     "get NAMESPACE",
		Short:   "Print the document of a namespace",
		Example: "  aggregator rules get shop >shop.yaml\n  aggregator rules get shop --version 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRules(cmd, func(ctx context.Context, _ configs.Format, store *natsrules.Store) error {
				v, err := versionOf(ctx, store, args[0], number)
				switch {
				case err != nil:
					return err
				case v.Deleted:
					return fmt.Errorf("namespace %s was taken away by version %d, of %s: --version names one before", v.Namespace, v.Number, v.At.Format(time.RFC3339))
				}
				_, err = io.WriteString(cmd.OutOrStdout(), v.Text)
				return err
			})
		},
	}
	cmd.Flags().Uint64Var(&number, "version", 0, "its `number` (default: the newest)")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

// versionOf is one version of a namespace; number 0: the newest.
func versionOf(ctx context.Context, store *natsrules.Store, namespace string, number uint64) (natsrules.Version, error) {
	if number == 0 {
		return store.Get(ctx, namespace)
	}
	all, err := store.History(ctx, namespace)
	if err != nil {
		return natsrules.Version{}, err
	}
	for _, v := range all {
		if v.Number == number {
			return v, nil
		}
	}
	return natsrules.Version{}, fmt.Errorf("namespace %s has no version %d any more: aggregator rules history %s lists those that are kept", namespace, number, namespace)
}

// writeVersions prints versions without their documents.
func writeVersions(out io.Writer, as cli.Output, all []natsrules.Version) error {
	type version struct {
		Namespace string    `json:"namespace"`
		Number    uint64    `json:"version"`
		At        time.Time `json:"at"`
		Author    string    `json:"author,omitempty"`
		Message   string    `json:"message,omitempty"`
		Bytes     int       `json:"bytes"`
		Deleted   bool      `json:"deleted,omitempty"`
	}
	told := make([]version, len(all))
	for i, v := range all {
		told[i] = version{v.Namespace, v.Number, v.At, v.Author, v.Message, len(v.Text), v.Deleted}
	}
	if as == cli.OutputJSON {
		return json.NewEncoder(out).Encode(map[string]any{"versions": told})
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tVERSION\tAT\tAUTHOR\tBYTES\tMESSAGE")
	for _, v := range told {
		size := fmt.Sprint(v.Bytes)
		if v.Deleted {
			size = "removed"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", v.Namespace, v.Number, v.At.Format(time.RFC3339), line(v.Author), size, line(v.Message))
	}
	return w.Flush()
}

// line is a text as it stands in a table: on one line, and with nothing that a terminal acts on.
func line(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}

// withRules runs do with the bucket that the settings name.
func withRules(cmd *cobra.Command, do func(context.Context, configs.Format, *natsrules.Store) error) error {
	return withBucket(cmd, func(ctx context.Context, s *configs.AggregatorSettings, bus *natsbus.Bus) error {
		js, err := bus.JetStream(s.Rules.KV.Domain)
		if err != nil {
			return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
		}
		store, err := natsrules.Open(ctx, js, s.Rules.KV.Bucket)
		if err != nil {
			if errors.Is(err, natsrules.ErrNone) {
				err = fmt.Errorf("%w; aggregator rules init makes it", err)
			}
			return err
		}
		return do(ctx, s.Rules.Format, store)
	})
}

func withBucket(cmd *cobra.Command, do func(context.Context, *configs.AggregatorSettings, *natsbus.Bus) error) (err error) {
	s, err := configs.LoadOperator(cmd.Flags())
	if err != nil {
		return err
	}
	s.Log.Level = max(s.Log.Level, slog.LevelWarn)
	stopped, stop := cli.UntilSignal(cmd.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(stopped, rulesTimeout)
	defer cancel()
	inbox := "" // an operator's, unless it is as the aggregators of a region, whose credentials can look
	if s.Region != "" {
		inbox = s.Region + ".operator"
	}
	bus, err := natsbus.Connect(cli.NATS(s.NATS, "aggregator rules", inbox, cli.Logger(cmd.ErrOrStderr(), s.Log)))
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	if err = do(ctx, s, bus); errors.Is(err, natsrules.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", cli.ErrUnreachable, errors.Join(err, bus.Status().Err))
	}
	return err
}
