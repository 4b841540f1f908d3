package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/edge/demo"
	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func newDemoCommand() *cobra.Command {
	cfg := demo.Default()
	var cuts demo.CutList
	var output string
	var showRules bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show one limit held over several regions, with nothing installed",
		Long: `Show one limit held over several regions, in one process and with nothing
installed: edges and aggregators as edge serve and aggregator serve run them,
over an embedded NATS, with the delays of a wide area between the regions.

Traffic is generated, or a log is replayed in its order, again and again: the
combined format, gzip or plain; lines that are not understood are skipped and
counted. Each client goes to the region that a hash of its address names, as by
geo-routing; 10 % of requests roam and come in at another region. The edges of a
region take turns. Call any edge meanwhile: its answers count in the same limits.

Each admission is logged exactly, across all regions at once. Over-admission is
the worst window of that log above its limit, and is not told of buckets, slots and
elastic margins; drift is the worst |believed - true|
at an edge that has just decided, looking at the 50 fullest counters four times a
second. Both are parts of the limit. Hits under way are drift too, so under load
it is seldom 0.`,
		Example: `  edge demo
  edge demo --log access.log.gz --cut eu@10s+5s
  edge demo --for 15s -o json
  edge demo --no-traffic --rules configs/rules.yaml`,
		// Here and not in RunE: what is wrong with flags is a usage error.
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return err
			}
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %s: want text or json", output)
			}
			if flags := cmd.Flags(); flags.Changed("redis-url") && cfg.RedisURL == "" {
				return errors.New("--redis-url is empty: leave it out to keep the counts in memory")
			} else if flags.Changed("for") && cfg.For == 0 {
				return errors.New("--for 0s: want a time such as 15s; leave it out to run until Ctrl-C")
			}
			cfg.Cuts = cuts
			return cfg.Validate()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showRules {
				_, err := io.WriteString(cmd.OutOrStdout(), demo.Rules)
				return err
			}
			ctx, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			out := demo.Output{
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), JSON: output == "json",
				Logger: cli.Logger(cmd.ErrOrStderr(), configs.LogSettings{Level: slog.LevelWarn}),
			}
			out.Rewrite = isTerminal(out.Stdout)
			if out.JSON {
				out.Rewrite = isTerminal(out.Stderr)
			}
			return demo.Run(ctx, cfg, out)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&cfg.Regions, "regions", cfg.Regions, "how many `regions`, 1 to 20")
	fs.IntVar(&cfg.Edges, "edges", cfg.Edges, "how many `edges` in each region, 1 to 50")
	fs.StringVar(&cfg.Listen, "listen", cfg.Listen, "`address` of the first edge; the others take the ports that follow, region by region; port 0: free ones")
	fs.StringVar(&cfg.LogFile, "log", "", "access log to replay, a `file` in combined format, gzip or plain (default: generated traffic)")
	fs.IntVar(&cfg.Rate, "rate", cfg.Rate, "`requests` a second, over all edges")
	fs.BoolVar(&cfg.NoTraffic, "no-traffic", false, "leave the edges to your own requests")
	fs.StringVar(&cfg.RulesFile, "rules", "", "rules `file` in place of the demo's own; traffic goes to its first namespace by name")
	fs.BoolVar(&showRules, "show-rules", false, "print the demo's own rules and exit")
	fs.DurationVar(&cfg.Delay, "delay", cfg.Delay, "`time` that a message between two regions takes, one way")
	fs.Var(&cuts, "cut", "cut a region off the others, such as eu@5s+5s: after 5 s, for 5 s; may be given again")
	fs.StringVar(&cfg.RedisURL, "redis-url", "", "keep the regions' counts in this Redis, a `URL` (default: in memory)")
	fs.DurationVar(&cfg.For, "for", 0, "end by itself after this `time` (default: with Ctrl-C)")
	fs.StringVarP(&output, "output", "o", "text", "`format` of the summary: text, or json, with all progress on stderr")
	return cmd
}

// isTerminal says that somebody looks at w as it is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
