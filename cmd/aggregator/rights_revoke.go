package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
)

func newRightsListCommand() *cobra.Command {
	var edge string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print which edges hold rights by the region's log, and whose were taken back",
		Long: `Print which edges hold rights by the region's log, and whose were taken back.
With --edge it prints those of one edge, or PoP, key by key. LASTS is for how long
what is spent counts, as the edge says. The log knows edges by a hash of their name;
what lapsed lately may stand there yet, as may what was returned since it was written.
A key of a global limit is in the log of one region, its home.`,
		Example: "  aggregator rights list --config configs/aggregator.yaml\n  aggregator rights list --edge eu/ams/edge-1 --config configs/aggregator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			who := escrow.Revoked{}
			if edge != "" {
				var err error
				if who, err = whose(edge, ""); err != nil {
					return err
				}
			}
			return withRights(cmd, func(ctx context.Context, log *redisstore.Rights, s *configs.AggregatorSettings) error {
				held, revoked, err := holders(ctx, log)
				if err != nil {
					return err
				}
				return writeHolders(cmd.OutOrStdout(), held, revoked, who, edge)
			})
		},
	}
	cmd.Flags().StringVar(&edge, "edge", "", "of which edge (REGION/POP/NAME), or PoP (REGION/POP), or what list prints for one")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

func newRightsRevokeCommand() *cobra.Command {
	var (
		edge, key string
		yes, undo bool
		over      uint64
	)
	cmd := &cobra.Command{
		Use:   "revoke --edge NAME",
		Short: "Take an edge's rights in strict limits back, or a PoP's",
		Long: `Take an edge's rights in strict limits back, or those of all edges of a PoP.
They are answered no more and granted nothing, until --undo: so they deny all of
these limits when their lease has ended (15 s), and what they held is others' when
what they spent has left the window, too (revoke prints when that is). No limit is
exceeded by that, by edges that keep to their leases.

With --over N it is others' at once: STRICT LIMITS MAY BE EXCEEDED, all together by N
at the most, which must be what revoke says that they hold, or more.

It is done in the log of one region. A key of a global limit is in that of its home:
do it in each region. It lasts as long as the log, and the number of lanes. Aggregators
may run meanwhile, and take their lanes anew; those of builds that do not know of
it go on granting. A PoP that means ill is better kept out by its credentials, and its
rights then run out, or are taken back here.`,
		Example: "  aggregator rights revoke --edge eu/ams/edge-1 --yes --config configs/aggregator.yaml\n  aggregator rights revoke --edge eu/ams --over 250 --yes --config configs/aggregator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			who, err := whose(edge, key)
			if err != nil {
				return err
			}
			force := cmd.Flags().Changed("over")
			if undo && force {
				return fmt.Errorf("--undo and --over: want one of them")
			}
			return withRights(cmd, func(ctx context.Context, log *redisstore.Rights, s *configs.AggregatorSettings) error {
				out := cmd.OutOrStdout()
				if undo {
					if !yes {
						return errors.New("nothing is changed: say --yes to have it granted rights again")
					}
					if err := log.Restore(ctx, who); err != nil {
						return err
					}
					_, err := fmt.Fprintf(out, "%s is granted rights again in %s.\n", edge, s.Region)
					return err
				}
				held, _, err := holders(ctx, log)
				if err != nil {
					return err
				}
				sum, keys, free := held.sum(who)
				if !yes {
					return fmt.Errorf("nothing is changed: %s holds %d rights in %d keys; say --yes to have them free %v after it is answered last, or --over %d --yes to have them free now and strict limits exceeded by as much",
						edge, sum, keys, free, sum)
				}
				if err := log.Revoke(ctx, who); err != nil {
					return err
				}
				if !force {
					_, err := fmt.Fprintf(out, "%s is granted nothing any more in %s. What it holds, %d rights in %d keys, is free in %v, or when it returns it.\n", edge, s.Region, sum, keys, free)
					return err
				}
				if held, _, err = holders(ctx, log); err != nil {
					return err
				}
				if sum, _, _ = held.sum(who); sum > over {
					return fmt.Errorf("%s is granted nothing any more; it holds %d rights, and they stay its own until they run out: say --over %d to have strict limits exceeded by as much", edge, sum, sum)
				}
				freed, err := log.Free(ctx, who)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(out, "%s is granted nothing any more in %s. The %d rights that it held are free, and strict limits may be exceeded by as much.\n", edge, s.Region, freed)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&edge, "edge", "", "whose: an edge's (REGION/POP/NAME), or a PoP's (REGION/POP), or what list prints for one")
	cmd.Flags().StringVar(&key, "key", "", "of one key alone, as list --edge prints it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: without it nothing is changed")
	cmd.Flags().BoolVar(&undo, "undo", false, "have it granted rights again")
	cmd.Flags().Uint64Var(&over, "over", 0, "have what it holds free at once, and strict limits exceeded by so much at the most")
	configs.BindAggregatorFlags(cmd.Flags())
	return cmd
}

// whose reads of whom rights are to be shown or taken back.
func whose(edge, key string) (who escrow.Revoked, err error) {
	parts := strings.Split(edge, "/")
	for _, p := range parts {
		if err := deltasync.ValidToken(p); err != nil {
			return who, fmt.Errorf("--edge %q: %w: want REGION/POP/NAME, or REGION/POP for all edges of a PoP", edge, err)
		}
	}
	switch len(parts) {
	case 1:
		if who.Node, err = strconv.ParseUint(edge, 16, 64); err != nil || len(edge) != 16 {
			return who, fmt.Errorf("--edge %q: want REGION/POP/NAME, or REGION/POP for all edges of a PoP, or the 16 digits that list prints", edge)
		}
	case 2:
		who.Node = deltasync.PopOf(deltasync.NodeID(parts[0], parts[1], ""))
	case 3:
		who.Node = deltasync.NodeID(parts[0], parts[1], parts[2])
	default:
		return who, fmt.Errorf("--edge %q: want REGION/POP/NAME, or REGION/POP for all edges of a PoP", edge)
	}
	if key != "" {
		k, err := strconv.ParseUint(key, 16, 64)
		if err != nil || len(key) != 16 || k == 0 {
			return who, fmt.Errorf("--key %q: want the 16 digits that `aggregator rights list --edge %s` prints", key, edge)
		}
		who.Key = deltasync.Key(k)
	}
	return who, nil
}

// held is who holds rights in what key.
type held []holding

type holding struct {
	key deltasync.Key
	escrow.Holding
}

// holders reads the log of all lanes.
func holders(ctx context.Context, log *redisstore.Rights) (all held, revoked []escrow.Revoked, err error) {
	lanes, err := look(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lanes {
		if l.Lanes != 0 && l.Lanes != len(lanes) {
			return nil, nil, fmt.Errorf("the log is of %d lanes, and %d are configured: its keys would be in other lanes; configure lanes: %d", l.Lanes, len(lanes), l.Lanes)
		}
		for _, r := range l.Revoked {
			if !slices.Contains(revoked, r) {
				revoked = append(revoked, r)
			}
		}
		deposits, err := log.Deposits(ctx, l.Lane)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", err, cli.ErrUnreachable)
		}
		for _, d := range deposits {
			for _, h := range d.Holdings {
				all = append(all, holding{d.Key, h})
			}
		}
	}
	return all, revoked, nil
}

// sum is what somebody holds, in how many keys, and when it is free at the latest.
func (all held) sum(who escrow.Revoked) (rights uint64, keys int, free time.Duration) {
	known := map[deltasync.Key]bool{}
	for _, h := range all {
		if who.Of(h.Node, h.key) {
			rights, known[h.key] = rights+h.Out(), true
			free = max(free, deltasync.DefaultLease+h.Lasts)
		}
	}
	return rights, len(known), (free + free/100).Round(time.Second)
}

// writeHolders prints a line an edge, or, of the one that is asked for, a line a key.
func writeHolders(out io.Writer, all held, revoked []escrow.Revoked, who escrow.Revoked, name string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	isRevoked := func(node uint64, key deltasync.Key) string {
		if slices.ContainsFunc(revoked, func(r escrow.Revoked) bool { return r.Of(node, key) }) {
			return "revoked"
		}
		return ""
	}
	if name != "" {
		fmt.Fprintln(w, "EDGE\tKEY\tLIMIT\tRIGHTS\tLASTS\t")
		for _, h := range all {
			if who.Of(h.Node, h.key) {
				fmt.Fprintf(w, "%016x\t%016x\t%d\t%d\t%v\t%s\n", h.Node, uint64(h.key), h.Limit, h.Out(), h.Lasts, isRevoked(h.Node, h.key))
			}
		}
		return w.Flush()
	}
	slices.SortStableFunc(all, func(a, b holding) int { return cmp.Compare(a.Node, b.Node) })
	fmt.Fprintln(w, "EDGE\tREGION\tKEYS\tRIGHTS\tLONGEST\t")
	for rest := all; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(h holding) bool { return h.Node != rest[0].Node })
		if n < 0 {
			n = len(rest)
		}
		rights, keys, _ := rest[:n].sum(escrow.Revoked{Node: rest[0].Node})
		longest := time.Duration(0)
		for _, h := range rest[:n] {
			longest = max(longest, h.Lasts)
		}
		fmt.Fprintf(w, "%016x\t%s\t%d\t%d\t%v\t%s\n", rest[0].Node, rest[0].Region, keys, rights, longest, isRevoked(rest[0].Node, 0))
		rest = rest[n:]
	}
	for _, r := range revoked {
		of := "all keys"
		if r.Key != 0 {
			of = fmt.Sprintf("key %016x", uint64(r.Key))
		}
		if r.Node == deltasync.PopOf(r.Node) {
			of += ", all edges of the PoP"
		}
		fmt.Fprintf(w, "%016x\trevoked: %s\n", r.Node, of)
	}
	return w.Flush()
}
