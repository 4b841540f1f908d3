package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// slot is one that was acquired.
type slot struct {
	at       int64
	released bool
}

// Never more slots are held than there are, and one is denied only while all
// are held, or their dead holders' leases and a slice are not over.
func TestConcurrencyAgainstModel(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 12))
		most := 1 + rng.IntN(8)
		r := compileRate(t, limit.RateSpec{Algorithm: "concurrency", Limit: uint64(most), Lease: time.Duration(1+rng.IntN(40)) * time.Second})
		e := &edge{rate: r}
		var slots []slot
		held := func(now int64, lease time.Duration) (n int) {
			for _, s := range slots {
				if !s.released && now < s.at+int64(lease) {
					n++
				}
			}
			return n
		}
		now := epoch + rng.Int64N(int64(time.Hour))
		for step := range 200 {
			now += rng.Int64N(int64(r.Lease) / 3)
			if rng.IntN(3) == 0 && len(slots) > 0 {
				s := &slots[rng.IntN(len(slots))]
				if !s.released && r.SliceAt(s.at) >= r.Reach(now) {
					s.released = true
					e.own.Add(crdt.Cell{Slice: r.SliceAt(s.at), Refunds: 1})
				}
				continue
			}
			before, lingering := held(now, r.Lease), held(now, r.Lease+r.Width)
			admitted := e.hit(1, now)
			switch {
			case admitted && before >= most:
				t.Fatalf("seed %d step %d: acquired with %d of %d held", seed, step, before, most)
			case !admitted && lingering < most:
				t.Fatalf("seed %d step %d: denied with %d of %d held", seed, step, lingering, most)
			case admitted:
				slots = append(slots, slot{at: now})
			default:
				w := int64(e.wait(1, now))
				if r.Room(e.level(now+w)) < 1 || r.Room(e.level(now+w-1)) > 0 {
					t.Fatalf("seed %d step %d: Wait = %v is not the first instant with room", seed, step, time.Duration(w))
				}
			}
			e.retire(now)
		}
	}
}

// A slot that is released comes back at once.
func TestReleasedSlots(t *testing.T) {
	r := compileRate(t, limit.RateSpec{Algorithm: "concurrency", Limit: 3, Lease: 40 * time.Second})
	e := &edge{rate: r}
	for range 3 {
		e.hit(1, epoch)
	}
	if w := e.wait(1, epoch); w != r.Lease+r.Width {
		t.Errorf("Wait = %v, want the lease and a slice", w)
	}
	e.own.Add(crdt.Cell{Slice: r.SliceAt(epoch), Refunds: 1})
	if later := epoch + int64(20*time.Second); !e.hit(1, later) || e.hit(1, later) {
		t.Error("one slot was released: one can be acquired, and no more")
	}
}
