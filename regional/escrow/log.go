package escrow

import (
	"context"
	"errors"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Errors of a Log, wrapped.
var (
	// ErrFenced: somebody else has taken the lane since.
	ErrFenced = errors.New("the lane was taken by another authority")
	// ErrLost stands beside ErrFenced where nobody has the lane: the log of it is gone, or
	// may lack what was written last. It begins anew with the next Take.
	ErrLost = errors.New("the log of the lane was lost")
	// ErrLog: the log cannot be reached, or refuses.
	ErrLog = errors.New("log of rights unavailable")
)

// Log has what authorities granted. All who may own a lane of a region share one. It is
// safe for concurrent use. Implementations: memstore.Rights, redisstore.Rights; both
// pass storetest.Rights.
type Log interface {
	// Take makes token, which nobody used before, the only one that may read and write
	// a lane from now on, and notes which regions there are as far as who takes it knows
	// (NotedRegion). It blocks until that is durable. Errors wrap ErrLog.
	Take(ctx context.Context, lane int, token uint64, regions []string) (Origin, error)

	// Load reads deposits of a lane. The answer is aligned with keys; a key that is not
	// there has no holdings. Without keys it says whether the lane is token's, and writes
	// nothing. Errors wrap ErrLog, or ErrFenced.
	Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]Deposit, error)

	// Commit writes deposits of a lane in place of those that are there, but one whose
	// Version is not above that of what is there; a deposit without holdings is
	// removed. When it returns nil all is durable, and token is still the one that
	// took the lane; without deposits it says that alone. It blocks until then, or
	// until ctx ends. Errors wrap ErrLog, and then any part may have been written, or
	// ErrFenced, and none was. A deposit may be forgotten Keeps after it was written:
	// who has rights to remember writes it again before half of that.
	Commit(ctx context.Context, lane int, token uint64, deposits []Deposit) error

	// Disown notes that so long ago another region took the keys that are drawn to this one
	// for others', as Origin.Disowned tells whoever takes the lane: of several times the last.
	// by are those that have not said otherwise since, as Origin.Deniers, in place of those
	// before. It blocks until that is durable. Errors wrap ErrLog, or ErrFenced.
	Disown(ctx context.Context, lane int, token uint64, ago time.Duration, by []string) error
}

// Origin is where a log begins: where it was new, or lost something, or may have. What
// was granted before that may not be in it.
type Origin struct {
	ID      uint64        // no other log, nor this one before, has the same
	Age     time.Duration // how long ago that was
	Revoked []Revoked     // whose rights an operator has taken back in the lane

	// Regions are all that were ever named when the lane was taken, in no order, but those
	// that were not for longer than any window; this survives what begins the log anew,
	// where it can.
	Regions []NotedRegion
	// Disowned is how long ago Disown said, whatever began anew since; 0: never.
	Disowned time.Duration
	// Deniers are by whom, as was said last.
	Deniers []string
	// Trusted is how long ago an operator said that nothing is held but what the log knows
	// of; 0: never.
	Trusted time.Duration
}

// NotedRegion is one that rights were granted with or are: keys were drawn to it, and the
// authority over these was its own.
type NotedRegion struct {
	Name  string
	Named bool // by who took the lane last
	// Since is how long ago that began, or ended; Forever if it was so when the lane was
	// taken first: before that the log knows of nothing.
	Since time.Duration
}

// Forever is longer ago than any lease, and any window.
const Forever = 10 * 366 * 24 * time.Hour

// Deposit is who holds rights in one key's limit.
type Deposit struct {
	Key      deltasync.Key
	Version  uint64 // rises with each write
	Holdings []Holding
}

// Holding is what one holder was ever granted, and is known to have returned.
type Holding struct {
	Holder   uint64
	Node     uint64 // the edge that it is a life of: nobody else speaks for it; 0: an older build did not say
	Granted  uint64
	Returned uint64
	Limit    uint64        // as it claims
	Lasts    time.Duration // how long what it spends may count, as it claims
	Region   string        // where its edge is

	// Silent is how long it had said nothing when this was written, in whole
	// milliseconds, as far as whoever had the lane knew: never more than is true.
	// Who hears of a holder of which the log has this writes it again before it answers.
	Silent time.Duration
}

// Keeps is how long a log remembers a deposit with these holdings at least: twice as
// long as what was granted last could be held, and what was spent of that count.
func Keeps(holdings []Holding) time.Duration {
	lasts := time.Duration(0)
	for i := range holdings {
		lasts = max(lasts, holdings[i].Lasts)
	}
	return keeps(lasts)
}

func keeps(lasts time.Duration) time.Duration { return 2 * spare(deltasync.MaxLease+lasts) }

// Out is how many rights it may hold.
func (h *Holding) Out() uint64 {
	if h.Returned >= h.Granted {
		return 0
	}
	return h.Granted - h.Returned
}
