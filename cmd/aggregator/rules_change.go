package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// change is what becomes of a namespace.
type change struct {
	was     natsrules.Version // Number 0: there was none
	next    natsrules.Version
	replace configs.Text // the document, with where it stands
}

// changing are the flags of commands that change rules.
type changing struct {
	yes             bool
	author, message string
}

func (c *changing) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it: without it nothing is changed, and the difference is printed")
	cmd.Flags().StringVar(&c.author, "author", os.Getenv("USER"), "who changes it")
	cmd.Flags().StringVarP(&c.message, "message", "m", "", "why")
	configs.BindAggregatorFlags(cmd.Flags())
}

func newRulesApplyCommand() *cobra.Command {
	var with changing
	cmd := &cobra.Command{
		Use:   "apply PATH...",
		Short: "Have namespaces be as files say",
		Long: `Have namespaces be as rules files, or directories of them, say: each document is the
next version of its namespace. All namespaces of the bucket are checked together, as they
would be, and where one has mistakes nothing is changed. It prints the difference; with
--yes it writes it. Namespaces that no file has stay (aggregator rules remove).

Each namespace is changed whole, or not, where somebody else has changed it meanwhile;
edges have it within a second, in every region.`,
		Example: "  aggregator rules apply rules/\n  aggregator rules apply shop.yaml --yes -m 'twice as much for gold' --rules-kv-domain eu --nats-nkey operator.nk",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRules(cmd, func(ctx context.Context, format configs.Format, store *natsrules.Store) error {
				texts, err := configs.ReadTexts(args...)
				if err != nil {
					return err
				}
				return with.run(ctx, cmd, format, store, func(all map[string]natsrules.Version) (changes []change, err error) {
					for _, t := range texts {
						name, err := format.NamespaceOf(t)
						if err != nil {
							return nil, err
						}
						t.Namespace = name
						changes = append(changes, change{was: all[name], next: natsrules.Version{Namespace: name, Text: t.Text}, replace: t})
					}
					return changes, nil
				})
			})
		},
	}
	with.bind(cmd)
	return cmd
}

func newRulesRollbackCommand() *cobra.Command {
	var with changing
	to := uint64(0)
	cmd := &cobra.Command{
		Use:     "rollback NAMESPACE",
		Short:   "Have a namespace be as an earlier version says, which is a new one then",
		Example: "  aggregator rules rollback shop\n  aggregator rules rollback shop --to 3 --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRules(cmd, func(ctx context.Context, format configs.Format, store *natsrules.Store) error {
				return with.run(ctx, cmd, format, store, func(all map[string]natsrules.Version) ([]change, error) {
					was, known := all[args[0]]
					back := to
					switch {
					case !known:
						return nil, fmt.Errorf("there is no namespace %q: aggregator rules list", args[0])
					case back == 0 && was.Number == 1:
						return nil, fmt.Errorf("version 1 of namespace %s is the first: there is none before it", was.Namespace)
					case back == 0:
						back = was.Number - 1
					}
					v, err := versionOf(ctx, store, args[0], back)
					if err != nil {
						return nil, err
					}
					with.message = cmp.Or(with.message, fmt.Sprintf("back to version %d", back))
					name := fmt.Sprintf("%s, version %d", v.Namespace, v.Number)
					return []change{{was: was, next: natsrules.Version{Namespace: v.Namespace, Text: v.Text, Deleted: v.Deleted}, replace: configs.Text{Name: name, Namespace: v.Namespace, Text: v.Text}}}, nil
				})
			})
		},
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "its `number` (default: the one before the newest)")
	with.bind(cmd)
	return cmd
}

func newRulesRemoveCommand() *cobra.Command {
	var with changing
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE",
		Short: "Take a namespace away: its requests meet no limit then",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRules(cmd, func(ctx context.Context, format configs.Format, store *natsrules.Store) error {
				return with.run(ctx, cmd, format, store, func(all map[string]natsrules.Version) ([]change, error) {
					was, known := all[args[0]]
					if !known {
						return nil, fmt.Errorf("there is no namespace %q: aggregator rules list", args[0])
					}
					return []change{{was: was, next: natsrules.Version{Namespace: was.Namespace, Deleted: true}}}, nil
				})
			})
		},
	}
	with.bind(cmd)
	return cmd
}

// run checks changes, prints them, and makes them.
func (c *changing) run(ctx context.Context, cmd *cobra.Command, format configs.Format, store *natsrules.Store, plan func(map[string]natsrules.Version) ([]change, error)) error {
	versions, err := store.All(ctx)
	if err != nil {
		return err
	}
	all := map[string]natsrules.Version{}
	for _, v := range versions {
		all[v.Namespace] = v
	}
	changes, err := plan(all)
	if err != nil {
		return err
	}
	warnings, err := checked(format, versions, changes)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), w)
	}
	changes = slices.DeleteFunc(changes, func(ch change) bool { return ch.was.Text == ch.next.Text && ch.was.Deleted == ch.next.Deleted })
	if len(changes) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing differs.")
		return err
	}
	if !c.yes {
		for _, ch := range changes {
			if err := ch.show(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return errors.New("nothing is changed: say --yes to have it so")
	}
	for i, ch := range changes {
		ch.next.Author, ch.next.Message = c.author, c.message
		v, err := store.Put(ctx, ch.next, ch.was.Number)
		if err != nil {
			done := "nothing is changed"
			if i > 0 {
				done = fmt.Sprintf("%d of %d namespaces are changed", i, len(changes))
			}
			switch {
			case errors.Is(err, natsrules.ErrConflict):
				err = fmt.Errorf("%w; look at the difference anew", err)
			case errors.Is(err, natsrules.ErrUnavailable):
				err = fmt.Errorf("%w; it may have been changed all the same: aggregator rules list. See that these are an operator's credentials (--nats-nkey), and that the region whose bucket is mirrored is up", err)
			}
			return fmt.Errorf("%w (%s)", err, done)
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d\n", v.Namespace, v.Number); err != nil {
			return err
		}
	}
	return nil
}

// checked are the warnings of all namespaces as they would be.
func checked(format configs.Format, versions []natsrules.Version, changes []change) ([]configs.Mistake, error) {
	var texts []configs.Text
	for _, v := range versions {
		if !v.Deleted && !slices.ContainsFunc(changes, func(c change) bool { return c.next.Namespace == v.Namespace }) {
			texts = append(texts, configs.Text{Name: fmt.Sprintf("%s, version %d", v.Namespace, v.Number), Namespace: v.Namespace, Text: v.Text})
		}
	}
	for _, c := range changes {
		if !c.next.Deleted {
			texts = append(texts, c.replace)
		}
	}
	_, warnings, err := format.CheckTexts(texts...)
	return warnings, err
}

// show prints a change as diff -u does.
func (c *change) show(out io.Writer) error {
	before, after := fmt.Sprintf("%s (version %d)", c.next.Namespace, c.was.Number), c.next.Namespace+" (next)"
	if c.next.Deleted {
		after = "/dev/null"
	}
	if c.was.Number == 0 || c.was.Deleted {
		before = "/dev/null"
	}
	_, err := out.Write(diff.Diff(before, []byte(c.was.Text), after, []byte(c.next.Text)))
	return err
}
