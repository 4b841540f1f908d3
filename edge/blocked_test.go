package edge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

var hundred = &limit.Rate{Limit: 100, Ceiling: 110, Window: time.Minute, Width: time.Second}

func TestBlockedRoundsToTheKeysDisadvantage(t *testing.T) {
	now := start.UnixNano()
	for _, rate := range []*limit.Rate{
		hundred, {Limit: 1, Ceiling: 1, Window: 25 * time.Millisecond}, {Limit: 1 << 50, Ceiling: 1 << 50, Window: limit.MaxWindow},
	} {
		window := longestHold(rate)
		for _, want := range []held{
			{until: now + window},
			{until: now + window, left: rate.Ceiling / 5, eases: now + 1, extra: 1},
			{until: now + window/2, left: rate.Ceiling / 6, eases: now + window/3, extra: 1},
			{until: now + window/2, left: rate.Ceiling, eases: now + window/2 - 1, extra: 1},
			{until: now + 1, left: 1},
		} {
			b := blocked{most: 8}
			b.put(newHold(5, rate, want), now)
			got := b.find(5, rate, now)
			if got.until < want.until || got.until > want.until+1<<endShift {
				t.Errorf("%v: until %v later, want 0 to 17 ms", want, time.Duration(got.until-want.until))
			}
			if most := min(want.left, 63*unitOf(rate)); got.left > most || most-got.left > rate.Ceiling/256 {
				t.Errorf("%v, ceiling %d: %d is left", want, rate.Ceiling, got.left)
			}
			if got.extra > 0 && (got.eases < want.eases || want.extra == 0) || got.left+got.extra > easedRoom(rate) && got.extra > 0 {
				t.Errorf("%v: %v is more", want, got)
			}
			if want.extra > 0 && want.until-want.eases > window/32 && want.left < easedRoom(rate) && (got.extra == 0 || got.eases > max(want.eases, want.until-window)+window/32+1<<endShift) {
				t.Errorf("%v: %v eases too late", want, got)
			}
			if b.find(5, rate, got.until).until != 0 {
				t.Errorf("%v: the key is blocked when its block ended", want)
			}
			raised := *rate
			raised.Base++
			if b.find(5, &raised, now).until != 0 {
				t.Errorf("%v: the key is blocked under a limit that was raised since", want)
			}
			b.lift(5)
			if b.find(5, rate, now).until != 0 {
				t.Errorf("%v: the key is blocked after its block was lifted", want)
			}
		}
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
		b.put(newHold(in[i], hundred, held{until: until[i], left: 1}), now)
	}
	if len(b.table) > most {
		t.Errorf("the table has %d entries, want %d at most", len(b.table), most)
	}
	exact := 0
	for i := range in {
		h := b.find(in[i], hundred, now)
		if h.until < until[i] {
			t.Fatalf("key %d is blocked until %d, want %d at least", i, h.until, until[i])
		}
		exact += int(h.left)
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
		b.put(newHold(key, hundred, held{until: now + second, left: 1}), now)
		if b.find(key, hundred, now).until == 0 {
			t.Fatalf("key %d is not blocked", i)
		}
		now += second / 4
	}
	if b.filter.full != 0 {
		t.Errorf("%d keys were given up while most of the table had ended", b.filter.full)
	}
}
