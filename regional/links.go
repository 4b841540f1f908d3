package regional

import (
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/sync"
)

// links is what is known of the ways to the peers and back, and the bytes that each may carry.
type links struct {
	mu      sync.Mutex // guards what follows; taken with a lane's held
	budgets []deltasync.Budget
	first   []atomic.Int32  // lane of each that exports first
	waiting []atomic.Int64  // since when each owes an answer, as it has said nothing since; 0: it does not
	deaf    []atomic.Bool   // each said last that it hears nothing of this region
	hears   []atomic.Uint64 // whom each hears, as it said last: see apart.go
	hearsAt []atomic.Int64  // when it did
	awake   []atomic.Bool   // each was heard after a silence, and lanes that rest are to go on
	differ  atomic.Uint64   // peers, a bit each, that are not to be taken back yet: see holds
	held    []int64         // since when each is so that is not aside; 0: it is not
	since   []int64         // since when each is so, heard or not
	allAt   []int64         // when each heard all others, as it said last; and this region, which stands last
	unread  atomic.Bool     // the store has yet to tell which are there
	differs int64           // since when that is not whom this region hears, of some; 0: it is
	agreed  int64           // since when it is; 0: it is not
	again   []int64         // when each was heard that was cut off
	back    []int64         // when it has told what it counted meanwhile
	ways    []int64         // how long frames take to each, one way, in ns; 0: not known
	pauses  []atomic.Int64  // how long each says nothing, of late: see blind.go
	unheard []unheard
	silent  []atomic.Uint64 // of whom each has heard nothing for long, as it said last: see hearing.go

	unanswered []atomic.Int64 // since when each has answered none of the frames sent to it; 0: it has
}

func (l *links) allows(peer int, now int64, h deltasync.Haste) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.budgets[peer].Allows(now, h)
}

// free ends all budgets: what is not sent now is lost.
func (l *links) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for j := range l.budgets {
		l.budgets[j] = deltasync.NewBudget(0)
	}
}

func (l *links) spend(peer, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budgets[peer].Spend(bytes)
}
