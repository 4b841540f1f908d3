package edge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// What is computed once for keys that come in rows is what each would compute,
// whichever rates and instants they have.
func TestRowsOfKeysShareDivisions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	var rates []*limit.Rate
	for _, spec := range []limit.RateSpec{{Limit: 10, Per: time.Minute}, {Limit: 10, Per: time.Hour}, {Limit: 10, Per: time.Second}} {
		rates = append(rates, newNode(t, Config{}, perUser(spec)).Rules().Rules()[0].Rates[0])
	}
	instants := []int64{start.UnixNano(), start.UnixNano() + int64(time.Second), start.UnixNano() + int64(time.Hour)}
	var d drained
	h := hearing{now: instants[0]}
	for range 2000 {
		rate, now, at := rates[r.IntN(3)], instants[r.IntN(3)], instants[r.IntN(3)]
		if got, want := d.reach(rate, now), rate.Reach(now); got != want {
			t.Fatalf("reach = %d, want %d", got, want)
		}
		slice, heard := d.heardIn(&record{block: &block{rate: rate, heardAt: at}})
		if slice != rate.SliceAt(at) || heard != at {
			t.Fatalf("heardIn = %d, %d, want %d, %d", slice, heard, rate.SliceAt(at), at)
		}
		reach, horizon := rate.Reach(h.now), rate.SliceAt(h.now+int64(maxAhead))
		var cells, want []crdt.Cell
		for s := reach - crdt.Slice(r.IntN(3)); s < horizon+4; s += 1 + crdt.Slice(r.IntN(5)) {
			c := crdt.Cell{Slice: s, Charges: 1}
			if cells = append(cells, c); s >= reach && s <= horizon {
				want = append(want, c)
			}
		}
		if got := h.counting(rate, cells); !slices.Equal(got, want) {
			t.Fatalf("of %v counts %v, want %v", cells, got, want)
		}
	}
}
