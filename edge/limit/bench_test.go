package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// BenchmarkMeasure measures full counters: every slice has a count.
func BenchmarkMeasure(b *testing.B) {
	for name, spec := range benchSpecs {
		b.Run(name, func(b *testing.B) {
			r := compileRate(b, spec)
			e := &edge{rate: r}
			now := r.EndOf(r.SliceAt(epoch)) - 1
			for s := r.Reach(now); s <= r.SliceAt(now); s++ {
				e.own.Add(crdt.Cell{Slice: s, Charges: 3})
				e.others.Add(crdt.Cell{Slice: s, Charges: 2})
				e.exact.Charge(r, 3, r.StartOf(s))
			}
			others, sums := e.others.Cells(nil), e.sums()
			b.ReportAllocs()
			for b.Loop() {
				r.Measure(&e.exact, others, sums, limit.Carry{}, now)
			}
		})
	}
}

var benchSpecs = map[string]limit.RateSpec{
	"sub_windows":  {Limit: 1000, Per: time.Minute},
	"sliding_log":  {Algorithm: "sliding_log", Limit: 1000, Per: time.Minute},
	"first_hit":    {Algorithm: "fixed_window", Align: "first_hit", Limit: 1000, Per: time.Minute},
	"token_bucket": {Algorithm: "token_bucket", Capacity: 1000, Refill: perSecond(10)},
}
