package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional/adminapi"
)

// changing is a command that changes rules.
type changing struct {
	asking
	yes     bool
	message string
}

func (c *changing) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it: without it nothing is changed, and the difference is printed")
	cmd.Flags().StringVarP(&c.message, "message", "m", "", "why")
}

// documents are the documents of files, one after the other in one text, and whose each line is.
type documents struct {
	texts []configs.Text
	body  string
}

func readDocuments(paths []string) (*documents, error) {
	texts, err := configs.ReadTexts(paths...)
	if err != nil {
		return nil, err
	}
	d := &documents{texts: texts}
	for i := range texts {
		if i > 0 {
			d.body += "---\n"
		}
		d.body += strings.TrimRight(texts[i].Text, "\n") + "\n"
	}
	return d, nil
}

// placed are mistakes in the body, each where it is in a file.
func (d *documents) placed(mistakes []adminapi.Mistake) {
	for i := range mistakes {
		m := &mistakes[i]
		if m.Line == 0 {
			continue
		}
		line := m.Line
		for _, t := range d.texts {
			lines := strings.Count(strings.TrimRight(t.Text, "\n")+"\n", "\n")
			if line <= lines {
				m.Name, m.Line = t.Name, max(t.Line, 1)+line-1
				break
			}
			line -= lines + 1
		}
	}
}

// check has the server say whether documents are good, and of which namespaces they are.
func (c *asking) check(ctx context.Context, cmd *cobra.Command, docs *documents) (namespaces []string, err error) {
	var checked struct {
		Namespaces []string
		Warnings   []adminapi.Mistake
	}
	if err := c.ask(ctx, http.MethodPost, "/admin/v1/validate", nil, nil, docs.body, &checked); err != nil {
		var p *adminapi.Problem
		if errors.As(err, &p) {
			docs.placed(p.Errors)
		}
		return nil, explained(cmd, err)
	}
	docs.placed(checked.Warnings)
	tell(cmd, checked.Warnings)
	return checked.Namespaces, nil
}

func newRulesValidateCommand() *cobra.Command {
	var a asking
	return a.command(&cobra.Command{
		Use:   "validate PATH...",
		Short: "Say whether rules files would be taken, beside all other namespaces that there are",
		Args:  cobra.MinimumNArgs(1),
	}, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		docs, err := readDocuments(args)
		if err != nil {
			return err
		}
		names, err := a.check(ctx, cmd, docs)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s\n", strings.Join(names, ", "))
		return err
	})
}

func newRulesApplyCommand() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:   "apply PATH...",
		Short: "Have namespaces be as files say",
		Long: `Have namespaces be as rules files, or directories of them, say: each document is the
next version of its namespace. All are checked together, beside the namespaces that are
not of them, and where one has mistakes nothing is changed. It prints the difference; with
--yes it has it so. Namespaces that no file has stay (aggregator rules remove).

Each namespace is changed whole, or not, where somebody else has changed it meanwhile;
edges have it within a second, in every region, or in those that --regions names. There
each rule whose limits differ is compared with what it was: aggregator rules report says
what the one admits and the other denies.

With --max-newly-denied or --max-denied that ends by itself. Once more is denied, of at
least --min-requests, it is reverted. With --promote-after it is promoted where it has held
for so long; where there were too few requests by then it waits for more, or for you.
aggregator rules list says how it stands. To promote or revert it yourself ends that, too.`,
		Example: "  aggregator rules apply rules/\n  aggregator rules apply shop.yaml --yes -m 'twice as much for gold' --token-file ada.token\n  aggregator rules apply shop.yaml --regions eu --yes\n  aggregator rules apply shop.yaml --regions us --promote-after 30m --max-newly-denied 2% --yes",
		Args:    cobra.MinimumNArgs(1),
	}
	var regions []string
	cmd.Flags().StringSliceVar(&regions, "regions", nil, "have it so in these `regions` alone, separated by commas, until it is promoted or reverted")
	var until untilFlags
	until.bind(cmd)
	c.bind(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("regions") && len(regions) == 0 {
			return fmt.Errorf("%w: --regions is empty: for all regions leave it out", cli.ErrInvalidConfig)
		}
		query, err := until.query(cmd)
		if err != nil {
			return err
		}
		docs, err := readDocuments(args)
		if err != nil {
			return err
		}
		names, err := c.check(ctx, cmd, docs)
		if err != nil {
			return err
		}
		if len(names) != len(docs.texts) {
			return fmt.Errorf("the aggregator has found %d documents, where the files have %d", len(names), len(docs.texts))
		}
		var wants []want
		if len(regions) > 0 {
			query.Set("regions", strings.Join(regions, ","))
		}
		for i, name := range names {
			wants = append(wants, want{method: http.MethodPut, path: at(name), namespace: name, query: query, body: docs.texts[i].Text, checked: true, of: docs.texts[i]})
		}
		return c.run(ctx, cmd, wants)
	})
}

func newRulesRollbackCommand() *cobra.Command {
	var c changing
	to := uint64(0)
	cmd := &cobra.Command{
		Use:     "rollback NAMESPACE",
		Short:   "Have a namespace be as an earlier version says, which is a new one then",
		Example: "  aggregator rules rollback shop\n  aggregator rules rollback shop --to 3 --yes",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "its `number` (default: the one before the newest)")
	c.bind(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return c.run(ctx, cmd, []want{{method: http.MethodPost, path: at(args[0], "rollback"), namespace: args[0], query: numbers(map[string]uint64{"to": to}), mustBe: true}})
	})
}

func newRulesPromoteCommand() *cobra.Command {
	return endCommand("promote", &cobra.Command{
		Use:   "promote NAMESPACE",
		Short: "Have what is rolled out in some regions (apply --regions) be in force in all",
	})
}

func newRulesRevertCommand() *cobra.Command {
	return endCommand("revert", &cobra.Command{
		Use:   "revert NAMESPACE",
		Short: "Take back what is rolled out in some regions (apply --regions)",
	})
}

// endCommand is a command that ends a rollout, one way or the other.
func endCommand(way string, cmd *cobra.Command) *cobra.Command {
	var c changing
	cmd.Args = cobra.ExactArgs(1)
	c.bind(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return c.run(ctx, cmd, []want{{method: http.MethodPost, path: at(args[0], way), namespace: args[0], mustBe: true}})
	})
}

func newRulesRemoveCommand() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:   "remove NAMESPACE",
		Short: "Take a namespace away: its requests meet no limit then",
		Args:  cobra.ExactArgs(1),
	}
	c.bind(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return c.run(ctx, cmd, []want{{method: http.MethodDelete, path: at(args[0]), namespace: args[0], mustBe: true}})
	})
}

// want is what is to be done to a namespace.
type want struct {
	method, path, body string
	query              url.Values
	namespace          string
	mustBe             bool // it is there
	checked            bool // its document, and what is suspicious about it was told
	of                 configs.Text
	over               http.Header
}

// run has all that is wanted done, where --yes is said, or says what it would be.
func (c *changing) run(ctx context.Context, cmd *cobra.Command, wants []want) error {
	differ := 0
	for _, w := range wants {
		var err error
		if w.over, err = c.over(ctx, w); err == nil {
			var became adminapi.Changed
			if became, err = c.do(ctx, w, !c.yes); err == nil && became.Changed {
				differ++
				err = c.show(cmd, w, &became)
			}
		}
		if err != nil {
			if c.yes && differ > 0 {
				err = fmt.Errorf("%w (%d of %d namespaces are changed)", err, differ, len(wants))
			}
			return explained(cmd, err)
		}
	}
	switch {
	case differ == 0:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing differs.")
		return err
	case !c.yes:
		return errors.New("nothing is changed: say --yes to have it so")
	}
	return nil
}

// show prints what became of something, or would, and what is suspicious about it.
func (c *changing) show(cmd *cobra.Command, w want, became *adminapi.Changed) error {
	for i := range became.Warnings { // of the namespace's document, which stands in a file
		if m := &became.Warnings[i]; w.of.Name != "" && m.Line > 0 {
			m.Name, m.Line = w.of.Name, m.Line+max(w.of.Line, 1)-1
		}
	}
	tell(cmd, slices.DeleteFunc(became.Warnings, func(m adminapi.Mistake) bool {
		return w.checked && m.Code != configs.SlipCode && m.Code != configs.EffectCode && m.Code != configs.UncomparedCode
	})) // the others are told
	if !c.yes {
		_, err := io.WriteString(cmd.OutOrStdout(), became.Diff)
		return err
	}
	text := ""
	if len(became.Regions) > 0 {
		text = ", in " + strings.Join(became.Regions, ",")
	}
	if became.Until != nil {
		text += ", " + became.Until.Text
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: version %d%s\n", became.Namespace, became.Version, text)
	return err
}

// over is what a change is made over: the newest version, by its tag.
func (c *changing) over(ctx context.Context, w want) (http.Header, error) {
	var now adminapi.Document
	err := c.ask(ctx, http.MethodGet, at(w.namespace), nil, http.Header{"Accept": {"application/json"}}, "", &now)
	var p *adminapi.Problem
	switch {
	case err == nil:
		return http.Header{"If-Match": {now.ETag}}, nil
	case errors.As(err, &p) && p.Status == http.StatusNotFound && (!w.mustBe || w.method == http.MethodPost):
		return http.Header{"If-None-Match": {"*"}}, nil // what was taken away may be had back
	}
	return nil, err
}

func (c *changing) do(ctx context.Context, w want, dry bool) (done adminapi.Changed, err error) {
	query := url.Values{}
	for name, values := range w.query {
		query[name] = values
	}
	if dry {
		query.Set("dry_run", "1")
	}
	if c.message != "" {
		query.Set("message", c.message)
	}
	err = c.ask(ctx, w.method, w.path, query, w.over, w.body, &done)
	return done, err
}

// explained is an error of the server's as it is told: mistakes in rules as a compiler prints them.
func explained(cmd *cobra.Command, err error) error {
	var p *adminapi.Problem
	if !errors.As(err, &p) {
		return err
	}
	switch {
	case len(p.Errors) > 0:
		tell(cmd, p.Errors)
		return &cli.Reported{Code: cli.ExitInvalidConfig}
	case p.Status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %w", err, cli.ErrUnreachable)
	}
	return err
}

// tell prints mistakes, or warnings.
func tell(cmd *cobra.Command, mistakes []adminapi.Mistake) {
	for i := range mistakes {
		fmt.Fprintln(cmd.ErrOrStderr(), mistakes[i].Text())
	}
}
