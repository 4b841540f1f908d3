package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

func newAuthCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "auth",
		Short: "Say who may do what, at NATS and at the admin listener",
	},
		newAuthInitCommand(),
		newAuthAddPopCommand(),
		newAuthTokenCommand(),
	)
}

func newAuthTokenCommand() *cobra.Command {
	name, role, file := "", "", ""
	var namespaces []string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for somebody",
		Long: `Make a token for somebody, and the entry of a file of tokens (admin.tokens) by which he is
known. The file has the token's hash alone; the token is shown once.

With --file the entry is added to that file, which aggregators read again when it changes;
to take a token back, take its entry away. Without, it is printed, to be added by hand.`,
		Example: "  aggregator auth token --name ada --role admin --file tokens.yaml >ada.token\n  aggregator auth token --name ci --role editor --namespaces shop,acme --expires-in 2160h --file tokens.yaml",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch flags := cmd.Flags(); {
		case flags.Changed("namespaces") && len(namespaces) == 0:
			return fmt.Errorf("%w: --namespaces is empty: a token for all namespaces has none of it", cli.ErrInvalidConfig)
		case flags.Changed("expires-in") && lasts <= 0:
			return fmt.Errorf("%w: --expires-in %v is over: a token that is good for ever has none of it", cli.ErrInvalidConfig, lasts)
		}
		secret, hash := configs.NewToken()
		entry := fmt.Sprintf("- {name: %s, role: %s", strconv.Quote(name), strconv.Quote(role))
		if len(namespaces) > 0 {
			quoted := make([]string, len(namespaces))
			for i, n := range namespaces {
				quoted[i] = strconv.Quote(n)
			}
			entry += ", namespaces: [" + strings.Join(quoted, ", ") + "]"
		}
		if lasts > 0 {
			entry += ", expires: " + time.Now().Add(lasts).UTC().Format(time.RFC3339)
		}
		entry += fmt.Sprintf(", sha256: %q}\n", hash)
		if file != "" {
			if err := addToken(file, entry); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), secret)
			return err
		}
		text := tokensHead + entry
		if _, err := configs.ParseTokens("tokens", []byte(text)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "# For the file of admin.tokens, below its line \"tokens:\":\n%s\n# The token, which is shown once:\n%s\n", entry, secret)
		return err
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "who it is for")
	flags.StringVar(&role, "role", "", "what he may do: viewer, editor or admin")
	flags.StringSliceVar(&namespaces, "namespaces", nil, "`names` of what he may touch, separated by commas (default: all)")
	flags.DurationVar(&lasts, "expires-in", 0, "for how long it is good (default: for ever)")
	flags.StringVar(&file, "file", "", "`file` of tokens to add it to; it is made where it is not there")
	_ = cmd.MarkFlagRequired("name") // it is there
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

const tokensHead = "schema: " + configs.TokensSchema + "\ntokens:\n"

// addToken adds an entry to a file of tokens, which is replaced whole: an aggregator that reads it meanwhile
// has the one or the other.
func addToken(file, entry string) error {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte(tokensHead)
	case err != nil:
		return fmt.Errorf("--file: %w", err)
	default:
		if _, err := configs.ParseTokens(file, text); err != nil {
			return err
		}
	}
	if n := len(text); text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = slices.Concat(text, []byte(entry))
	if _, err := configs.ParseTokens(file, text); err != nil {
		return fmt.Errorf("%w\nnothing is changed: where the entries of %s are indented, or stand within brackets, leave out --file and add the entry by hand", err, file)
	}
	if err := replaceFile(file, text); err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	return nil
}
