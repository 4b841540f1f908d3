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
	return min(crdt.SatAdd(drained(empty), r.Drain.Floor), crdt.SatAdd(r.Ceiling, drained(r.MaxDelay)))
}
