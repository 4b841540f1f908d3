package regional_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// BenchmarkTickWithTruths is what a Tick takes while as many keys as are watched are
// above their limit, spent by six edges of three PoPs: the worst that there is. The
// rest of a Tick is in it, a millisecond or two.
func BenchmarkTickWithTruths(b *testing.B) {
	const keys = 4096
	for _, per := range []time.Duration{time.Second, time.Minute} {
		b.Run(per.String(), func(b *testing.B) {
			t := &testing.T{}
			set := ruleSet(t, apiRule("api", limit.RateSpec{Limit: 100, Per: per}))
			r, rate := truthful(t, set, regional.Config{}), set.Rules()[0].Rates[0]
			var edges [6]edge
			for i := range edges {
				edges[i] = edge{name: fmt.Sprint("e", i), pop: fmt.Sprint("p", i%3)}
			}
			spent, took := map[crdt.Slice]uint64{}, time.Duration(0)
			for range b.N {
				s := rate.SliceAt(r.now.UnixNano())
				spent[s] += 20
				for i := range edges {
					for from := 0; from < keys; from += 1024 {
						sec := deltasync.Section{Shape: shapeOf(rate)}
						for k := range 1024 {
							sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: deltasync.Key(from + k + 1), Cells: []crdt.Cell{{Slice: s, Charges: spent[s]}}})
						}
						edges[i].send(r, sec)
					}
				}
				r.Pushes(r.now)
				r.now = r.now.Add(time.Second)
				begun := time.Now()
				r.Tick(r.now)
				took += time.Since(begun)
			}
			b.ReportMetric(float64(took.Microseconds())/1e3/float64(b.N), "ms/tick")
			b.ReportMetric(float64(r.Truth("", "")[0].Keys), "keys")
		})
	}
}
