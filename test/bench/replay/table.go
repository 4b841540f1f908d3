package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
	"github.com/spillgate/spillgate/test/sim/accuracy"
)

// table is what the rows came to, as Markdown.
func table(o Options, log *accesslog.Log, rows []result, of string, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# A real log over five regions (A19)

Written by

    go run ./test/bench -accuracy -log %s -seeds %d

on %s, of %s, in %v: %d requests, %d lines were not understood. Production code on virtual time: five regions of two edges, 80 ms between regions, edges and aggregators tell every 100 ms. Each client has a home region, and comes to either edge of it; of those who roam a part comes anywhere, request by request. Requests come at some instant of the second that the log says, at its speed or at 30 times that; silences longer than a window and ten seconds are cut to that.

**over** is the most that was admitted of any key in any window above its limit; above the limit and wrongly denied is of all requests, beside what an exact log that sees all at once denies. Worst of %d seeds, in percent.

| limit | clients | an exact log denies | level | over | above the limit | util | wrongly denied |
|---|---|---|---|---|---|---|---|
`, o.Log, o.Seeds, accuracy.Machine(), of, took.Round(time.Second), len(log.Requests), log.Skipped, o.Seeds)
	for _, r := range rows {
		who := "each client"
		if r.of == "all" {
			who = "all together"
		}
		if r.speed != 1 {
			who += fmt.Sprintf(", %v times as fast", r.speed)
		}
		fmt.Fprintf(&b, "| %v, %s | %s | %.1f | %s | %.1f | %.2f | %.1f | %.2f |\n", r.limit, who, r.name, 100*r.exact, r.level, 100*r.over, 100*r.above, 100*r.util, 100*r.wrong)
	}
	return b.String()
}
