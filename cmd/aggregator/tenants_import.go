package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/regional/adminapi"
)

func newTenantsImportCommand() *cobra.Command {
	var c tenanting
	cmd := &cobra.Command{
		Use:   "import NAMESPACE FILE",
		Short: "Have many tenants have what a file says; others stay",
		Long: `Have many tenants have what a file says (-: stdin), whatever they had; others stay. It has
a JSON object for each, one a line, or in a list, or as tenants list -o json writes them:
  {"tenant": "acme", "tier": "gold"}
  {"tenant": "umbrella", "multiply": 3.5, "until": "2030-01-31T00:00:00Z"}
  {"tenant": "gone", "remove": true}
All are checked first, and where one has a mistake nothing is changed.`,
		Example: "  aggregator tenants import shop tenants.ndjson -m 'from billing'\n  aggregator tenants list shop -o json | aggregator tenants import shop-staging -",
		Args:    cobra.ExactArgs(2),
	}
	c.bind(cmd)
	output := cli.OutputFlag(cmd)
	return c.command(cmd, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		asks, err := readTenants(args[1], cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
		}
		done := adminapi.TenantsChange{DryRun: c.dry}
		dry := c.dry
		for _, c.dry = range []bool{true, false} {
			if dry && !c.dry {
				break
			}
			sum := adminapi.TenantsChange{DryRun: c.dry}
			for begin := 0; begin < len(asks); begin += adminapi.MostTenants {
				part := asks[begin:min(begin+adminapi.MostTenants, len(asks))]
				body := ""
				for i := range part {
					body += encoded(part[i]) + "\n"
				}
				var one adminapi.TenantsChange
				if err := c.ask(ctx, http.MethodPatch, at(args[0], "tenants"), c.query(), nil, body, &one); err != nil {
					if !c.dry && begin > 0 {
						err = fmt.Errorf("%w (%d of %d entries are done)", err, begin, len(asks))
					}
					return explainedEntries(cmd, err, args[1], begin)
				}
				sum.Changed, sum.Removed, sum.Unchanged = sum.Changed+one.Changed, sum.Removed+one.Removed, sum.Unchanged+one.Unchanged
			}
			done = sum
		}
		c.dry = dry
		return output.Write(cmd.OutOrStdout(), done, func(out io.Writer) error {
			_, err := fmt.Fprintf(out, "%d tenants changed, %d of them removed; %d had that already%s\n", done.Changed, done.Removed, done.Unchanged, c.would())
			return err
		})
	})
}

// explainedEntries tells of mistakes with the numbers that entries have in a file.
func explainedEntries(cmd *cobra.Command, err error, file string, begin int) error {
	var p *adminapi.Problem
	if errors.As(err, &p) {
		for i := range p.Errors {
			m := &p.Errors[i]
			var at int
			var field string
			if _, err := fmt.Sscanf(strings.ReplaceAll(m.Pointer, "/", " "), "%d %s", &at, &field); err == nil {
				m.Name = fmt.Sprintf("%s, entry %d, %s", file, begin+at+1, field)
			}
		}
	}
	return explained(cmd, err)
}

// readTenants reads what a file says of tenants.
func readTenants(path string, stdin io.Reader) ([]adminapi.TenantAsk, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	// An entry may be as tenants list writes it.
	type listed struct {
		adminapi.TenantAsk
		At      json.RawMessage `json:"at"`
		Author  json.RawMessage `json:"author"`
		Message json.RawMessage `json:"message"`
		ETag    json.RawMessage `json:"etag"`
	}
	type list struct {
		listed
		Tenants    []listed        `json:"tenants"`
		Unreadable json.RawMessage `json:"unreadable"`
	}
	var all []list
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("[")) {
		err = strictly(json.NewDecoder(bytes.NewReader(text)), &all)
	} else {
		in := json.NewDecoder(bytes.NewReader(text))
		for err == nil {
			var one list
			if err = strictly(in, &one); err == nil {
				all = append(all, one)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf(`%s, entry %d: %w; want such as {"tenant": "acme", "tier": "gold"}`, path, len(all)+1, err)
	}
	var asks []adminapi.TenantAsk
	for _, one := range all {
		if one.Tenants == nil {
			asks = append(asks, one.TenantAsk)
		}
		for _, of := range one.Tenants {
			asks = append(asks, of.TenantAsk)
		}
	}
	if len(asks) == 0 {
		return nil, fmt.Errorf("%s: it says nothing of any tenant", path)
	}
	return asks, nil
}

func strictly(in *json.Decoder, into any) error {
	in.DisallowUnknownFields()
	return in.Decode(into)
}

// encoded is a value in JSON, on one line.
func encoded(v any) string {
	b, _ := json.Marshal(v) // of what has no such value it never fails
	return string(b)
}
