package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// Rights is a log of rights in memory: it outlives the authorities of a process, and
// no more. For a single process (the demo, embedders), simulations and tests.
type Rights struct {
	now func() time.Time

	mu    sync.Mutex // guards what follows
	lanes map[int]*rightsLane
	since time.Time
	wiped uint64 // times
}

type rightsLane struct {
	token    uint64
	deposits map[deltasync.Key]escrow.Deposit
}

var _ escrow.Log = (*Rights)(nil)

// NewRights makes a log that begins at since: of what was granted before, by a log that
// was here then, it knows nothing. Where there was none, since is the zero time. now is
// by the same clock; nil: time.Now.
func NewRights(since time.Time, now func() time.Time) *Rights {
	if now == nil {
		now = time.Now
	}
	return &Rights{now: now, since: since, lanes: map[int]*rightsLane{}}
}

// Wipe has the log forget everything, as a disk that was lost.
func (r *Rights) Wipe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes, r.since, r.wiped = map[int]*rightsLane{}, r.now(), r.wiped+1
}

// Take implements escrow.Log.
func (r *Rights) Take(ctx context.Context, lane int, token uint64) (escrow.Origin, error) {
	if err := ctx.Err(); err != nil {
		return escrow.Origin{}, fmt.Errorf("%w: %w", escrow.ErrLog, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[lane]
	if l == nil {
		l = &rightsLane{deposits: map[deltasync.Key]escrow.Deposit{}}
		r.lanes[lane] = l
	}
	l.token = token
	return escrow.Origin{ID: uint64(r.since.UnixNano()) + r.wiped, Age: max(0, r.now().Sub(r.since))}, nil
}

// of is a lane that token has taken; r.mu is held.
func (r *Rights) of(ctx context.Context, lane int, token uint64) (*rightsLane, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", escrow.ErrLog, err)
	}
	switch l := r.lanes[lane]; {
	case l == nil:
		return nil, fmt.Errorf("lane %d: %w: %w", lane, escrow.ErrFenced, escrow.ErrLost)
	case l.token != token:
		return nil, fmt.Errorf("lane %d: %w", lane, escrow.ErrFenced)
	default:
		return l, nil
	}
}

// Load implements escrow.Log.
func (r *Rights) Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]escrow.Deposit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, err := r.of(ctx, lane, token)
	if err != nil {
		return nil, err
	}
	out := make([]escrow.Deposit, len(keys))
	for i, key := range keys {
		d := l.deposits[key]
		out[i] = escrow.Deposit{Key: key, Version: d.Version, Holdings: slices.Clone(d.Holdings)}
	}
	return out, nil
}

// Commit implements escrow.Log.
func (r *Rights) Commit(ctx context.Context, lane int, token uint64, deposits []escrow.Deposit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, err := r.of(ctx, lane, token)
	if err != nil {
		return err
	}
	for _, d := range deposits {
		switch has, there := l.deposits[d.Key]; {
		case there && has.Version >= d.Version:
		case len(d.Holdings) == 0:
			delete(l.deposits, d.Key)
		default:
			d.Holdings = slices.Clone(d.Holdings)
			l.deposits[d.Key] = d
		}
	}
	return nil
}
