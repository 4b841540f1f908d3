package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// inflate has an edge of a hostile PoP tell once that it charged a key as much as can
// be told, under a limit of its choice.
func inflate(t *testing.T, w *World, region string, rate *limit.Rate, key deltasync.Key, told uint64) {
	t.Helper()
	shape := deltasync.Shape{
		Generation: rate.Generation, Width: rate.Width, Slices: rate.Span, Limit: told,
		Refill: rate.Drain.Refill, RefillPer: rate.Drain.Per, Floor: rate.Drain.Floor,
	}
	cells := []crdt.Cell{{Slice: rate.SliceAt(w.Now().UnixNano()), Charges: 1 << 49}}
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: region, Pop: "evil", Name: "e", Node: deltasync.NodeID(region, "evil", "e"),
		Incarnation: 1, Lanes: 1, Seq: 1, SentAt: w.Now().UnixNano(),
		Sections: []deltasync.Section{{Shape: shape, Deltas: []deltasync.Delta{{Key: key, Flags: deltasync.FlagUrgent, Cells: cells}}}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Inject(region, deltasync.EdgeSubject(region, 0, "evil", "e"), b, func(*Server, []byte) {})
}

// One frame of a hostile PoP fills a bucket. It denies as long as it takes twice what
// the bucket holds to drain, whatever limit the frame tells, whoever named the key first,
// and at edges that have never heard of the key before; then clients have what drains.
func TestInflatedBucketDrains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		spec   limit.RateSpec
		margin float64
		told   uint64
		first  bool // nobody else has counted anything
	}{
		{name: "a limit of its choice", told: 1 << 50},
		{name: "a limit of its choice, first", told: 1 << 50, first: true},
		{name: "the limit"},
		{name: "the limit, first", first: true},
		{name: "of a bucket that starts with more", spec: limit.RateSpec{Initial: 50}, told: 1 << 50},
		{name: "of a bucket with a margin", margin: 50, told: 1 << 50},
		{name: "of a queue", spec: limit.RateSpec{Algorithm: "leaky_bucket", Queue: true, MaxWait: time.Second}, told: 1 << 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flow := limit.Flow{Units: 5, Per: time.Second}
			if tt.spec.Capacity = 20; tt.spec.Algorithm == "leaky_bucket" {
				tt.spec.Outflow = flow
			} else {
				tt.spec.Algorithm, tt.spec.Refill = "token_bucket", flow
			}
			docs := rules(tt.spec)
			docs[0].Rules[0].Margin.SoftPercent = tt.margin
			cfg := Config{Rules: docs, Start: start, Seed: 1}
			for _, r := range []string{"eu", "us"} {
				cfg.Regions = append(cfg.Regions, Region{Name: r, Edges: []string{r + "-1", r + "-2", r + "-3"}})
			}
			w, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w.Advance(start.Add(6 * time.Second))
			rate, known := w.Node("eu-1").Rules().Rules()[0].Rates[0], []string{"eu-1", "us-1"}
			for _, edge := range known {
				if !tt.first && !check(w, edge, "u").Allowed {
					t.Fatal("denied before anything was told")
				}
				w.Advance(w.Now().Add(500 * time.Millisecond))
			}
			told := tt.told
			if told == 0 {
				told = rate.Limit
			}
			inflate(t, w, "eu", rate, keyOf(w, "u"), told)
			begun := w.Now()
			w.Advance(begun.Add(time.Second))
			for _, edge := range known {
				if check(w, edge, "u").Allowed && !tt.first { // they need not hear of it sooner
					t.Errorf("%s: allowed: nothing was inflated", edge)
				}
			}
			drains := time.Duration(float64(2*rate.Window) * (1 + tt.margin/100))
			w.Advance(begun.Add(drains + 2*time.Second))
			for _, edge := range w.Edges() {
				if d := check(w, edge, "u"); !d.Allowed {
					t.Errorf("%s: denied for %v more, %v after it was told; a full bucket drains in %v", edge, d.RetryAfter, w.Now().Sub(begun), rate.Window)
				}
				w.Advance(w.Now().Add(time.Second))
			}
			// Aggregators remember it for longer: no more than a window goes by until what
			// they tell of that has drained, too.
			allowed, asked := 0, 40*rate.Window
			for end := w.Now().Add(asked); w.Now().Before(end); w.Advance(w.Now().Add(50 * time.Millisecond)) {
				if check(w, w.Edges()[allowed%len(w.Edges())], "u").Allowed {
					allowed++
				}
			}
			drains = time.Duration(float64(rate.Window) * (1 + tt.margin/100))
			if least := int((asked - drains).Seconds()) * 5 * 95 / 100; allowed < least {
				t.Errorf("%d admitted in %v, want %d at least", allowed, asked, least)
			}
			t.Logf("%d admitted in %v in which %d drain", allowed, asked, int(asked.Seconds())*5)
		})
	}
}
