package edge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

const second = int64(time.Second)

// filled is a filter with so many random keys in it, and the keys.
func filled(buckets, keys int, until func(i int) int64, now int64) (*filter, []deltasync.Key) {
	random := rand.New(rand.NewPCG(1, 2))
	f := &filter{most: buckets}
	in := make([]deltasync.Key, keys)
	for i := range in {
		in[i] = deltasync.Key(random.Uint64())
		f.put(in[i], until(i), now)
	}
	return f, in
}

func TestFilterFindsWhatWasPutInUntilItEnds(t *testing.T) {
	now := start.UnixNano()
	until := func(i int) int64 { return now + int64(1+i%600)*second }
	f, keys := filled(10_000, 37_500, until, now) // 94 % of the slots
	for i, key := range keys {
		end := f.until(key, now)
		if end < until(i) {
			t.Fatalf("key %d: remembered until %v, want at least %v; %d were given up", i, time.Unix(0, end), time.Unix(0, until(i)), f.full)
		}
		if got := f.until(key, end); got != 0 && got <= end {
			t.Fatalf("key %d is remembered at its end", i)
		}
	}
	if f.full != 0 {
		t.Errorf("%d keys were given up at 94 %% of the slots, want none", f.full)
	}
}

// Keys that look like others share an instant, so it is looked at how far most
// are rounded, and that none is beyond what the longest is.
func TestFilterRoundsByAQuarter(t *testing.T) {
	now := start.UnixNano()
	f := &filter{most: 64}
	for _, to := range []int64{1, second / 2, second, 5 * second, 61 * second, 3599 * second, 86_399 * second, 365 * 86_400 * second} {
		*f = filter{most: 64}
		f.put(1, now+to, now)
		over := f.until(1, now) - now - to
		if most := max(to/4, 2*second); over < 0 || over > most {
			t.Errorf("%v to go is rounded up by %v, want 0 to %v", time.Duration(to), time.Duration(over), time.Duration(most))
		}
	}
}

func TestFilterMistakesFewOthers(t *testing.T) {
	now := start.UnixNano()
	f, _ := filled(10_000, 38_000, func(int) int64 { return now + 60*second }, now)
	wrong := 0
	random := rand.New(rand.NewPCG(3, 4))
	const asked = 100_000
	for range asked {
		if f.until(deltasync.Key(random.Uint64()), now) != 0 {
			wrong++
		}
	}
	if wrong > asked/100 {
		t.Errorf("%d of %d other keys are taken for blocked, want 1 %% at most", wrong, asked)
	}
	if wrong == 0 {
		t.Error("no other key is taken for blocked: nothing was measured")
	}
}

func TestFilterGivesUpKeysWhenFull(t *testing.T) {
	now := start.UnixNano()
	f, keys := filled(100, 1000, func(int) int64 { return now + 60*second }, now)
	found := 0
	for _, key := range keys {
		if f.until(key, now) != 0 {
			found++
		}
	}
	if f.taken > 400 || found < 380 || f.full < 500 {
		t.Errorf("%d slots taken, %d keys found, %d given up; want 400 at most, 380 at least, 500 at least", f.taken, found, f.full)
	}
}

func TestFilterUsesPlacesAgain(t *testing.T) {
	alone.Mark(t)
	now := start.UnixNano()
	f := &filter{most: 1000}
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 { // each round fills half of it for ten seconds
		for range 2000 {
			key := deltasync.Key(random.Uint64())
			f.put(key, now+10*second, now)
			if f.until(key, now) == 0 {
				t.Fatal("a key is not found at once")
			}
		}
		for more := true; more; {
			more = f.sweep(now, 64)
		}
		now += 20 * second
	}
	if f.full != 0 {
		t.Errorf("%d keys were given up", f.full)
	}
	for more := true; more; {
		more = f.sweep(now, 64)
	}
	if f.bytes() != 0 || f.taken != 0 {
		t.Errorf("%d bytes and %d slots are held when all has ended, want none", f.bytes(), f.taken)
	}
}

// However many ends there are, there is a generation for each, and none ends
// too early.
func TestFilterOutOfGenerations(t *testing.T) {
	now := start.UnixNano()
	f := &filter{most: 20_000}
	random := rand.New(rand.NewPCG(7, 8))
	for i := range 50_000 {
		now += int64(random.Uint64N(uint64(second / 4)))
		key, until := deltasync.Key(random.Uint64()), now+1+int64(random.Uint64N(1<<(20+random.Uint64N(35))))
		f.put(key, until, now)
		if got := f.until(key, now); got < until {
			t.Fatalf("key %d: remembered until %d, want %d at least", i, got, until)
		}
		if i%100 == 0 {
			f.sweep(now, 500)
		}
	}
}

// A clock that jumps frees slots or keeps them, and breaks nothing.
func TestFilterWhenTheClockJumps(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	f := &filter{most: 100}
	now := start.UnixNano()
	for range 20_000 {
		switch random.Uint64N(100) {
		case 0:
			now += int64(random.Uint64N(uint64(3600 * second)))
		case 1:
			now -= int64(random.Uint64N(uint64(3600 * second)))
		}
		key := deltasync.Key(random.Uint64())
		f.put(key, now+int64(random.Uint64N(uint64(100*second))), now)
		f.sweep(now, int(random.Uint64N(40)))
		taken := 0
		for _, b := range f.buckets {
			for i := range slots {
				if slotOf(b, i) != 0 {
					taken++
				}
			}
		}
		if taken != f.taken {
			t.Fatalf("%d slots are taken, %d are counted", taken, f.taken)
		}
	}
}
