package edge

import (
	"math/rand/v2"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

var hundred = &limit.Rate{Limit: 100, Ceiling: 110}

func TestBlockedKeepsWhatWasLeft(t *testing.T) {
	now := start.UnixNano()
	for _, rate := range []*limit.Rate{hundred, {Limit: 1, Ceiling: 1}, {Limit: 1 << 50, Ceiling: 1 << 50}} {
		for _, left := range []uint64{0, 1, 17, 30, rate.Ceiling / 5} {
			b := blocked{most: 8}
			b.add(newHold(5, rate, now+second, left), now)
			until, got := b.find(5, rate, now)
			if until < now+second || until > now+second+1<<endShift {
				t.Errorf("blocked until %d, want %d and 17 ms at most", until, now+second)
			}
			if got > left || left-got > rate.Ceiling/256 {
				t.Errorf("ceiling %d: %d is left of %d, want it rounded down by a 256th at most", rate.Ceiling, got, left)
			}
			if until, _ := b.find(5, rate, until); until != 0 {
				t.Errorf("a key is blocked when its block ended")
			}
			if until, _ := b.find(5, &limit.Rate{Limit: rate.Limit + 1, Ceiling: rate.Ceiling + 1}, now); until != 0 {
				t.Errorf("a key is blocked under a limit that was raised since")
			}
		}
	}
}

func TestBlockedStricterPartHolds(t *testing.T) {
	now := start.UnixNano()
	b := blocked{most: 8}
	b.add(newHold(5, hundred, now+2*second, 17), now)
	b.add(newHold(5, hundred, now+second, 3), now)
	if until, left := b.find(5, hundred, now); until < now+2*second || left != 3 {
		t.Errorf("until %d, %d left; want the later end, %d, and the smaller rest, 3", until, left, now+2*second)
	}
	b.lift(5)
	if until, _ := b.find(5, hundred, now); until != 0 {
		t.Error("a key is blocked after its block was lifted")
	}
}

// Whatever comes, a key stays blocked: in the table, or in the filter when the
// table is full; the table has its bound.
func TestBlockedGoesToTheFilterWhenFull(t *testing.T) {
	now := start.UnixNano()
	const most, keys = 1024, 10_000
	b := blocked{most: most, filter: filter{most: 4000}}
	random := rand.New(rand.NewPCG(1, 1))
	in, until := make([]deltasync.Key, keys), make([]int64, keys)
	for i := range in {
		in[i], until[i] = deltasync.Key(random.Uint64()), now+int64(1+random.Uint64N(600))*second
		b.add(newHold(in[i], hundred, until[i], 1), now)
	}
	if len(b.table) > most {
		t.Errorf("the table has %d entries, want %d at most", len(b.table), most)
	}
	exact := 0
	for i := range in {
		end, left := b.find(in[i], hundred, now)
		if end < until[i] {
			t.Fatalf("key %d is blocked until %d, want %d at least", i, end, until[i])
		}
		exact += int(left)
	}
	table, filter := b.count(now)
	if exact != table || table < most*9/10 || table+filter < keys*98/100 {
		t.Errorf("%d keys in the table, of which %d know what was left, %d in the filter", table, exact, filter)
	}
	if b.filter.full != 0 {
		t.Errorf("%d keys were given up", b.filter.full)
	}
}

func TestBlockedReusesWhatEnded(t *testing.T) {
	now := start.UnixNano()
	b := blocked{most: 64}
	for i := range 10_000 {
		key := deltasync.Key(uint64(i+1) * 0x9e3779b97f4a7c15)
		b.add(newHold(key, hundred, now+second, 1), now)
		if until, _ := b.find(key, hundred, now); until == 0 {
			t.Fatalf("key %d is not blocked", i)
		}
		now += second / 4
	}
	if b.filter.full != 0 {
		t.Errorf("%d keys were given up while most of the table had ended", b.filter.full)
	}
}
