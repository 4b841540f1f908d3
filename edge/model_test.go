package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// model decides as the node should, by adding up every charge ever made.
type model map[string][]crdt.Cell

func (m model) room(rate *limit.Rate, user string, now int64) uint64 {
	return rate.Room(rate.Used(m[rate.Policy+user], limit.Carry{}, now))
}

func (m model) charge(rate *limit.Rate, user string, cost uint64, now int64) {
	key := rate.Policy + user
	s := rate.SliceAt(now)
	i, ok := slices.BinarySearchFunc(m[key], s, func(c crdt.Cell, s crdt.Slice) int { return int(c.Slice - s) })
	if !ok {
		m[key] = slices.Insert(m[key], i, crdt.Cell{Slice: s})
	}
	m[key][i].Charges += cost
}

// TestCheckAgainstModel compares allowances, folds and remembered denials with
// the sum of all charges, over random traffic of several costs, with idle
// stretches, flushes and sweeps in between.
func TestCheckAgainstModel(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			rule := perUser(
				limit.RateSpec{Name: "burst", Limit: 10, Per: time.Second},
				limit.RateSpec{Name: "slide", Limit: 60, Per: 20 * time.Second, Algorithm: "sliding_window"},
				limit.RateSpec{Name: "fixed", Limit: 200, Per: time.Minute, Algorithm: "fixed_window"},
				limit.RateSpec{Name: "full", Limit: 100, Per: 30 * time.Second, Slices: 7, Oldest: "full"},
			)
			if seed%2 == 0 { // the path for one counter
				rule.Rates = rule.Rates[seed/2 : seed/2+1]
			}
			rule.Cost.Max = 100
			n := newNode(t, Config{}, rule)
			rates := n.Rules().Rules()[0].Rates
			m := model{}
			now := start.UnixNano()
			for i := range 20_000 {
				switch rnd.IntN(100) {
				case 0:
					now += rnd.Int64N(int64(40 * time.Second))
				case 1:
					settleFrames(n, time.Unix(0, now))
				case 2:
					n.Tick(time.Unix(0, now))
				default:
					now += rnd.Int64N(int64(60 * time.Millisecond))
				}
				user, cost := fmt.Sprint(rnd.IntN(4)), 1+rnd.Uint64N(1+rnd.Uint64N(4))
				want := true
				for _, r := range rates {
					want = want && m.room(r, user, now) >= cost
				}
				req := n.Rules().Only().NewRequest()
				req.Set("user", user)
				req.Cost = cost
				d := n.Check(time.Unix(0, now), req)
				req.Release()
				if d.Allowed != want {
					t.Fatalf("request %d at %d, user %s, cost %d: allowed %t, want %t (%+v)", i, now, user, cost, d.Allowed, want, d)
				}
				if d.Allowed {
					for _, r := range rates {
						m.charge(r, user, cost, now)
					}
					continue
				}
				then := now + int64(d.RetryAfter)
				if before, after := m.room(d.Rate, user, then-1), m.room(d.Rate, user, then); before >= cost || after < cost {
					t.Fatalf("request %d, cost %d: retry after %v; %s has room for %d a nanosecond before, then for %d", i, cost, d.RetryAfter, d.Rate.Policy, before, after)
				}
			}
		})
	}
}
