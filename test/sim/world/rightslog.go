package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// RightsLog is a region's log of rights in strict limits, which fails as real ones do.
type RightsLog struct {
	w       *World
	inner   *memstore.Rights
	state   StoreState
	written []deposited  // for a failover
	moved   map[int]bool // lanes that nobody has taken since
	regions []string     // as who took a lane last knew them
}

// deposited is what was written to a lane by one call.
type deposited struct {
	at       time.Time
	lane     int
	deposits []escrow.Deposit
}

var _ escrow.Log = (*RightsLog)(nil)

func newRightsLog(w *World) *RightsLog {
	return &RightsLog{w: w, inner: memstore.NewRights(time.Time{}, w.Now)}
}

// Set says what the log does from now on.
func (l *RightsLog) Set(state StoreState) { l.state = state }

// Wipe has the log forget everything, and begin anew.
func (l *RightsLog) Wipe() {
	l.written = nil
	l.inner.Wipe()
}

// FailOver puts a replica in the log's place, which lacks what was written last, for so
// long, and knows that it may: it begins anew, with what it has.
func (l *RightsLog) FailOver(tail time.Duration) error {
	l.inner, l.moved = memstore.NewRights(l.w.now, l.w.Now), map[int]bool{}
	kept := l.written[:0]
	for _, d := range l.written {
		if d.at.After(l.w.now.Add(-tail)) {
			break
		}
		const replica = 1
		if _, err := l.inner.Take(context.Background(), d.lane, replica, l.regions); err != nil {
			return err
		}
		l.moved[d.lane] = true
		if err := l.inner.Commit(context.Background(), d.lane, replica, d.deposits); err != nil {
			return fmt.Errorf("replay what the replica had: %w", err)
		}
		kept = append(kept, d)
	}
	l.written = kept
	return nil
}

func (l *RightsLog) down() error { return fmt.Errorf("%w: it is down in this world", escrow.ErrLog) }

// Take implements escrow.Log.
func (l *RightsLog) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
	l.regions = regions
	if l.state == StoreDown {
		return escrow.Origin{}, l.down()
	}
	origin, err := l.inner.Take(ctx, lane, token, regions)
	if err == nil {
		delete(l.moved, lane)
	}
	if l.state == StoreDeaf {
		return escrow.Origin{}, l.down()
	}
	return origin, err
}

// Load implements escrow.Log.
func (l *RightsLog) Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]escrow.Deposit, error) {
	if l.state != StoreUp {
		return nil, l.down()
	}
	found, err := l.inner.Load(ctx, lane, token, keys)
	return found, l.served(lane, err)
}

// Disown implements escrow.Log.
func (l *RightsLog) Disown(ctx context.Context, lane int, token uint64, ago time.Duration, by []string) error {
	if l.state != StoreUp {
		return l.down()
	}
	return l.served(lane, l.inner.Disown(ctx, lane, token, ago, by))
}

// served is an error with what a real log knows of itself: that another serves it.
func (l *RightsLog) served(lane int, err error) error {
	if l.moved[lane] && errors.Is(err, escrow.ErrFenced) {
		return fmt.Errorf("%w: %w", err, escrow.ErrLost)
	}
	return err
}

// Commit implements escrow.Log.
func (l *RightsLog) Commit(ctx context.Context, lane int, token uint64, deposits []escrow.Deposit) error {
	if l.state == StoreDown {
		return l.down()
	}
	err := l.served(lane, l.inner.Commit(ctx, lane, token, deposits))
	if err == nil && len(deposits) > 0 && l.w.cfg.Seed != 0 && !l.w.cfg.Unreplicated { // else nothing ever fails over
		l.remember(lane, deposits)
	}
	if l.state == StoreDeaf {
		return l.down()
	}
	return err
}

// remember keeps a copy of what was written, for as long as it may count.
func (l *RightsLog) remember(lane int, deposits []escrow.Deposit) {
	n := 0
	for n < len(l.written) && l.w.now.Sub(l.written[n].at) > memory {
		n++
	}
	copied := slices.Clone(deposits)
	for i := range copied {
		copied[i].Holdings = slices.Clone(copied[i].Holdings)
	}
	l.written = append(l.written[n:], deposited{l.w.now, lane, copied})
}
