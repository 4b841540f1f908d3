package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A key with much of its limit used is asked about once more when it falls
// silent, also where it is bytes that count, which records have no room for;
// whoever used them.
func TestAfterwordOfLargeCosts(t *testing.T) {
	for _, scale := range []uint64{1, 1 << 20, 1 << 34} {
		for who, used := range map[string]struct{ own, others uint64 }{"own": {300, 0}, "others'": {1, 700}, "both": {150, 150}, "little": {1, 100}} {
			rule := perUser(limit.RateSpec{Limit: 1000 * scale, Per: time.Hour})
			n := newNode(t, Config{}, rule)
			rate := n.Rules().Rules()[0].Rates[0]
			now := start
			reply := func(out []Outgoing) (keys int) {
				for _, o := range out {
					up := upOf(t, []Outgoing{o})
					var totals []deltasync.Totals
					for _, sec := range up.Sections {
						for range sec.Deltas {
							keys++
							var others deltasync.Totals
							if used.others > 0 {
								others.Peers = []crdt.Cell{{Slice: rate.SliceAt(start.UnixNano()), Charges: used.others * scale}}
							}
							totals = append(totals, others)
						}
					}
					answer(t, n, now, up, totals...)
				}
				return keys
			}
			for range 2 { // in two slices: the record is no sparse one
				checkCost(n, now, "u", used.own*scale)
				reply(n.flushAll(now))
				now = now.Add(2 * rate.Width)
			}
			checkCost(n, now, "u", used.own*scale)
			reply(n.flushAll(now))
			asked := 0
			for range 20 {
				now = now.Add(100 * time.Millisecond)
				n.Tick(now)
				asked += reply(n.Flush(now))
			}
			if want := who != "little"; (asked > 0) != want {
				t.Errorf("%s counts, times %d: asked %d times after it fell silent, want it asked: %v", who, scale, asked, want)
			}
		}
	}
}

// How much a record is known to use is told of large limits too, so that who has
// used little makes room first.
func TestShareOfLargeLimits(t *testing.T) {
	for _, scale := range []uint64{1, 1 << 34} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000 * scale, Per: time.Hour}))
		rate := n.Rules().Rules()[0].Rates[0]
		for i := range 3 {
			checkCost(n, start.Add(time.Duration(i)*rate.Width), "u", 200*scale)
		}
		if share := n.shard(keyOf(n, "u")).find(keyOf(n, "u")).share(); share < 0.6 || share > 0.75 {
			t.Errorf("limit times %d: a share of %v, want about 0.6", scale, share)
		}
	}
}
