package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// untilFlags say by what a rollout ends by itself.
type untilFlags struct {
	after               time.Duration
	newlyDenied, denied string
	requests            uint64
}

func (u *untilFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&u.after, "promote-after", 0, "with --regions: promote it once the condition has held for so `long`, such as 30m")
	flags.StringVar(&u.newlyDenied, "max-newly-denied", "", "with --regions: revert it once more of the requests that were compared are denied by the new limits and admitted by the old, in `percent`, such as 2%")
	flags.StringVar(&u.denied, "max-denied", "", "with --regions: revert it once more of all requests of the namespace are denied, in `percent`, such as 5%")
	flags.Uint64Var(&u.requests, "min-requests", natsrules.DefaultRequests, "judge it by no fewer `requests`")
}

// query is what the flags say, as the admin API takes it.
func (u *untilFlags) query(cmd *cobra.Command) (url.Values, error) {
	query, stated := url.Values{}, []string(nil)
	for name, value := range map[string]string{"promote-after": u.after.String(), "max-newly-denied": u.newlyDenied, "max-denied": u.denied, "min-requests": strconv.FormatUint(u.requests, 10)} {
		if cmd.Flags().Changed(name) {
			query.Set(strings.ReplaceAll(name, "-", "_"), value)
			stated = append(stated, "--"+name)
		}
	}
	slices.Sort(stated)
	if len(stated) > 0 && !cmd.Flags().Changed("regions") {
		return nil, fmt.Errorf("%w: %s: without --regions it is in force everywhere at once, and nothing ends", cli.ErrInvalidConfig, strings.Join(stated, ", "))
	}
	return query, nil
}
