package edge

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// What a bucket of 100 would hold, of which 10 a second drain, with one side's part of that,
// and what is left by it. Before it was asked last others had charged 5 of what they have
// charged since, which is 9; and since half a window ago 7. This edge had spent 5, now 9.
func TestAside(t *testing.T) {
	window := compile(t, perUser(aHundred)).Rules()[0].Rates[0]
	bucket := compile(t, perUser(tokens(100, limit.Flow{Units: 10, Per: time.Second}))).Rules()[0].Rates[0]
	now := start.UnixNano()
	slice := func(ago time.Duration) crdt.Slice { return bucket.SliceAt(now - int64(ago)) }
	before := func(ago time.Duration, level float64) aside {
		return aside{at: now - int64(ago), level: level, spent: 5, from: slice(6 * time.Second), heard: 5}
	}
	lone := func(ago time.Duration, level float64) aside {
		return aside{at: now - int64(ago), alone: true, level: level, spent: 5, from: slice(6 * time.Second)}
	}
	kept := func(less float64) limit.Share { return limit.Share{Less: less, Mine: 3, Weight: 0.5, Omega: 0.4} }
	alone := func(mine float64) limit.Share {
		return limit.Share{Alone: true, Mine: mine, Weight: 0.5, Omega: 0.4}
	}
	none := aside{}
	for _, c := range []struct {
		name string
		rate *limit.Rate
		a    aside
		p    limit.Share
		est  uint64
		over bool    // nothing is set aside any more
		want float64 // level
		left float64 // kept for others; of who is alone what is its own
	}{
		{"a window", window, none, kept(30), 40, true, 0, 30},
		{"nobody is cut off", bucket, none, kept(0), 40, true, 0, 0},
		// it is not known who used what: the other side's part of what is free is not free
		{"others are cut off", bucket, none, kept(30), 40, false, 40 + 0.3*60, 18},
		{"a second later", bucket, before(time.Second, 58), kept(30), 45, false, 58 + 4 - 7 + 4, 14},
		{"as much as all know", bucket, before(time.Second, 58), kept(30), 60, false, 59, 0},
		{"less than is kept", bucket, before(time.Second, 10), kept(30), 20, false, 30, 10},
		{"all that may be used, and kept", bucket, before(0, 140), kept(30), 95, false, 130, 35},
		{"it is empty meanwhile", bucket, before(5*time.Second, 2), kept(1), 0, false, 4, 4},
		{"more is kept than there is", bucket, before(time.Second, 120), kept(125), 100, false, 120 + 4 + 4, 28},
		{"a window later", bucket, before(10*time.Second, 95), kept(30), 20, false, 95 + 4 - 70 + 4, 13},
		{"longer than a window ago", bucket, before(10*time.Second+1, 90), kept(30), 40, false, 58, 18},
		{"the clock was set back", bucket, before(-1, 90), kept(30), 40, false, 58, 18},
		{"all hear of each other", bucket, before(time.Second, 58), kept(0), 40, false, 58 + 4 - 10 + 4, 16},
		{"until it tells less than all know", bucket, before(time.Second, 58), kept(0), 56, true, 0, 0},
		{"this edge is cut off", bucket, none, alone(10), 80, false, 0.2 * 80, 16},
		{"and has spent more than its part", bucket, none, alone(20), 80, false, 20, 20},
		{"a second later it", bucket, lone(time.Second, 16), alone(3), 80, false, 16 + 4 - 2, 18},
		{"has spent more than that", bucket, lone(time.Second, 16), alone(50), 80, false, 18, 50},
		{"has no more than the capacity", bucket, lone(time.Second, 99), alone(3), 80, false, 100, 100},
		{"has none left from before", bucket, lone(10*time.Second, 1), alone(0), 80, false, 0, 0},
		{"is cut off, when others were", bucket, before(time.Second, 58), alone(10), 80, false, 16, 16},
		{"hears again, others are cut off", bucket, lone(time.Second, 16), kept(30), 40, false, 58, 18},
		{"hears again, of all", bucket, lone(time.Second, 16), kept(0), 40, true, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &block{share: &share{spent: 9}}
			for _, cell := range []crdt.Cell{{Slice: slice(7 * time.Second), Charges: 100}, {Slice: slice(6 * time.Second), Charges: 2}, {Slice: slice(5 * time.Second), Charges: 3}, {Slice: slice(time.Second), Charges: 6, Refunds: 2}} {
				b.others.Add(cell)
			}
			p, want := c.p, c.p
			got := c.a.turn(c.rate, &p, b, c.est, now)
			next := aside{at: now, alone: p.Alone, spent: 9, from: slice(5 * time.Second), level: got.level}
			if p.Alone {
				want.Mine = c.left
			} else {
				want.Less, next.heard = c.left, 7
			}
			if c.over {
				next = aside{}
			}
			if got != next || math.Abs(got.level-c.want) > 1e-9 {
				t.Errorf("turn = %+v, want %+v with a level of %v", got, next, c.want)
			}
			if math.Abs(p.Mine-want.Mine) > 1e-9 || math.Abs(p.Less-want.Less) > 1e-9 {
				t.Errorf("its own is %v, kept for others %v; want %v, %v", p.Mine, p.Less, want.Mine, want.Less)
			}
		})
	}
}
