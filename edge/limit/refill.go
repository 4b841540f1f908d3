package limit

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// FullBefore is the level of a bucket that is empty, or down to its floor, when
// so much time has passed and nothing more was poured in: rounded up, and no
// more than the bucket admits, with those that wait for room in it.
func (r *Rate) FullBefore(empty time.Duration) uint64 {
	if empty <= 0 || r.Drain.Per <= 0 {
		return min(r.Drain.Floor, r.Ceiling)
	}
	drained := func(d time.Duration) uint64 {
		return product(r.Drain.Refill, uint64(d)).overUp(uint64(r.Drain.Per))
	}
	return min(crdt.SatAdd(drained(empty), r.Drain.Floor), crdt.SatAdd(r.brim(), drained(r.MaxDelay)))
}

// brim is what the rate admits at the most, its elastic margin included.
func (r *Rate) brim() uint64 {
	if r.Open != nil {
		return max(r.Ceiling, r.Open.Ceiling)
	}
	return r.Ceiling
}

// drains is a window, or how long a bucket takes to drain that is full to its brim: its
// window is for its capacity alone.
func (r *Rate) drains() time.Duration {
	if !r.Bucket() {
		return r.Window
	}
	return max(r.Window, r.Drain.empties(satMul(r.brim(), micro)))
}

// Lingers is how long what was counted at one instant may count, as slices tell it, and with
// those who wait for room.
func (r *Rate) Lingers() time.Duration { return r.drains() + r.Width + r.MaxDelay }
