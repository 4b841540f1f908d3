package limit

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// FullBefore is the level of a bucket that is empty, or down to its floor, when
// so much time has passed and nothing more was poured in: rounded up, and no
// more than the bucket admits.
func (r *Rate) FullBefore(empty time.Duration) uint64 {
	if empty <= 0 || r.Drain.Per <= 0 {
		return min(r.Drain.Floor, r.Ceiling)
	}
	left := product(r.Drain.Refill, uint64(empty)).overUp(uint64(r.Drain.Per))
	return min(crdt.SatAdd(left, r.Drain.Floor), r.Ceiling)
}
