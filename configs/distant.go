package configs

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// distant warns of delays over which frames are given up before they are answered, so that
// parts of a cluster take each other for gone: what is predicted for limits is not so
// there. The path of each is where the delay stands in the topology.
func distant(t limit.Topology) (out []limit.Problem) {
	const code, nearer = "W231", "scope: region, a limit for each, or regions that are nearer"
	if trip := 2 * t.Between * 11 / 10; t.Regions > 1 && trip > deltasync.RegionTimeout {
		p := limit.Problem{Path: "delay.region", Code: code, Hint: nearer, Detail: fmt.Sprintf(
			"%v there and back, a tenth on top, is more than the %v after which a region gives up a frame to another: by turns they count each other as gone, and what is predicted here does not hold", trip, deltasync.RegionTimeout)}
		if trip <= deltasync.LongestTrip {
			p.Hint = fmt.Sprintf("sync.timeout: %v in the aggregators' settings, which are not known here; or %s", outlasts(trip), nearer)
		}
		out = append(out, p)
	}
	if trip := 2 * t.Within; trip >= deltasync.EdgeTimeout {
		out = append(out, limit.Problem{Path: "delay.edge", Code: code,
			Hint: fmt.Sprintf("sync.timeout: %v in the edges' settings, which are not known here; or aggregators that are nearer", outlasts(trip)),
			Detail: fmt.Sprintf(
				"%v there and back is no less than the %v after which an edge gives up a frame to its region: it hears no answer, and decides as one that is cut off", trip, deltasync.EdgeTimeout)})
	}
	return out
}

// outlasts is a timeout that does for a trip.
func outlasts(trip time.Duration) time.Duration {
	const step = 500 * time.Millisecond
	return (trip/step + 1) * step
}
