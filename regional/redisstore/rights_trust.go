package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
)

// LaneLog is what is there of one lane's log of rights.
type LaneLog struct {
	Lane    int
	Lanes   int              // that the region had when it was begun; 0: there is no log
	Age     time.Duration    // since it began; 0 where there is none
	Keys    int              // of which somebody holds rights, or did lately
	Revoked []escrow.Revoked // whose rights were taken back
	Moved   bool             // another process wrote it than serves it now: it begins anew when it is taken, but by who knows what was written last
}

// Look reads what there is of each lane. It takes nothing from whoever has a lane, and
// costs a call a lane. Errors wrap escrow.ErrLog.
func (r *Rights) Look(ctx context.Context) ([]LaneLog, error) {
	out := make([]LaneLog, 0, r.count)
	for lane := range r.count {
		reply, err := r.call(ctx, lane, "look", 0)
		if err == nil && len(reply) != 6 {
			err = fmt.Errorf("%w: %d parts", errReply, len(reply))
		}
		var revoked []escrow.Revoked
		if err == nil {
			revoked, err = parseRevoked(reply[5])
		}
		if err != nil {
			return nil, logFailed(fmt.Sprintf("look at lane %d", lane), err)
		}
		var n [5]int64
		for i := range n {
			n[i], _ = reply[i].(int64)
		}
		out = append(out, LaneLog{
			Lane: lane, Lanes: int(n[0]), Age: time.Duration(max(0, min(n[1], n[2]))) * time.Millisecond,
			Keys: int(n[3]), Moved: n[4] != 0, Revoked: revoked,
		})
	}
	return out, nil
}

// Trust makes the log of all lanes one that has everything since long ago: nobody holds
// rights, nor has spent any that still count in a window, but those of whom it knows.
// The log cannot know that of itself, where it is new, or another server serves it than
// did; who calls Trust does, or strict limits are exceeded. Aggregators that have lanes
// are fenced off, and take them anew. A log of another number of lanes is refused.
// Where an error is returned some lanes may be trusted already; it is harmless to call
// Trust again. Errors wrap escrow.ErrLog.
func (r *Rights) Trust(ctx context.Context) error {
	for lane := range r.count {
		token, origin := max(1, rand.Uint64()), strconv.FormatUint(rand.Uint64(), 10)
		if _, err := r.call(ctx, lane, "trust", token, r.count, origin); err != nil {
			return logFailed(fmt.Sprintf("trust lane %d", lane), err)
		}
	}
	return nil
}
