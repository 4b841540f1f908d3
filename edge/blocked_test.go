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
		least := threshold(rate)
		for _, want := range []held{
			{until: now + window, used: rate.Ceiling},
			{until: now + window, used: rate.Ceiling - rate.Ceiling/5, eases: now + 1},
			{until: now + window/2, used: least + rate.Ceiling/50, eases: now + window/3},
			{until: now + window/2, used: 3*rate.Ceiling + 1},
			{until: now + 1, used: max(1, rate.Ceiling-1)},
		} {
			if want.eases > 0 {
				want.extra = extraOf(rate, want.used)
			}
			b := blocked{most: 8}
			b.put(newHold(5, rate, want), now)
			got := b.find(5, rate, now)
			if got.until < want.until || got.until > want.until+1<<endShift {
				t.Errorf("%v: until %v later, want 0 to 17 ms", want, time.Duration(got.until-want.until))
			}
			if got.used < want.used || got.used-want.used > want.used/512 {
				t.Errorf("%v, ceiling %d: %d used", want, rate.Ceiling, got.used)
			}
			if got.extra > 0 && (got.eases < want.eases || want.extra == 0 || got.used-got.extra != least-1) {
				t.Errorf("%v: %v is more", want, got)
			}
			if want.extra > 0 && want.until-want.eases > window/32 && (got.extra == 0 || got.eases > max(want.eases, want.until-window)+window/32+1<<endShift) {
				t.Errorf("%v: %v eases too late", want, got)
			}
			if b.find(5, rate, got.until).until != 0 {
				t.Errorf("%v: the key is blocked when its block ended", want)
			}
			raised := &limit.Rate{Limit: 4 * want.used, Ceiling: 4 * want.used, Window: rate.Window}
			if got.left(rate) > rate.Ceiling-min(rate.Ceiling, want.used) || got.left(raised) != raised.Ceiling-got.used {
				t.Errorf("%v: %d left under its limit and %d under a much larger one, want what was not used", want, got.left(rate), got.left(raised))
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
		b.put(newHold(in[i], hundred, held{until: until[i], used: 109}), now)
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
		exact += int(h.left(hundred))
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
		b.put(newHold(key, hundred, held{until: now + second, used: 109}), now)
		if b.find(key, hundred, now).until == 0 {
			t.Fatalf("key %d is not blocked", i)
		}
		now += second / 4
	}
	if b.filter.full != 0 {
		t.Errorf("%d keys were given up while most of the table had ended", b.filter.full)
	}
}

// What is worth little leaves the table for what is worth more, and does not go
// to the filter, where it would be all or nothing.
func TestWeakBlocksMakeRoom(t *testing.T) {
	now := start.UnixNano()
	b := blocked{most: ways, filter: filter{most: 16}}
	put := func(key deltasync.Key, weak bool) {
		b.put(newHold(key, hundred, held{until: now + second, used: 109, weak: weak}), now)
	}
	for i := range ways {
		put(deltasync.Key(i+1), i%2 == 0)
	}
	for i := range ways {
		put(deltasync.Key(ways+i+1), i%2 == 0)
	}
	table, filter := b.count(now)
	if table != ways || filter != 0 {
		t.Errorf("%d in the table, %d in the filter, want all %d that are not weak in the table, and no others", table, filter, ways)
	}
	for i := range 2 * ways {
		if got := b.find(deltasync.Key(i+1), hundred, now).until != 0; got != (i%2 != 0) {
			t.Errorf("key %d: blocked %v, want %v", i+1, got, i%2 != 0)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for shift := range 64 {
		for _, x := range []uint64{1 << shift, 1<<shift + 1, 1<<shift + 1<<shift/3, 2<<shift - 1} {
			if got := unpack(roundUp(x)); got < x || got-x > x/512 || roundUp(x) > 1<<16-1 {
				t.Errorf("%d is packed to %d", x, got)
			}
		}
	}
	if got := unpack(roundUp(0)); got != 0 {
		t.Errorf("0 is packed to %d", got)
	}
}
