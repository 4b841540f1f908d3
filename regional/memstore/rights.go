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
	regions  map[string]noted
	disowned time.Time // zero: never
	deniers  []string
}

// noted is since when a region has been named or not; the zero time: since before the log was.
type noted struct {
	named bool
	since time.Time
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
func (r *Rights) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
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
	now := r.now()
	l.note(regions, now)
	o := escrow.Origin{ID: uint64(r.since.UnixNano()) + r.wiped, Age: max(0, now.Sub(r.since))}
	if !l.disowned.IsZero() {
		o.Disowned, o.Deniers = max(1, now.Sub(l.disowned)), slices.Clone(l.deniers)
	}
	for name, n := range l.regions {
		o.Regions = append(o.Regions, escrow.NotedRegion{Name: name, Named: n.named, Since: min(max(0, now.Sub(n.since)), escrow.Forever)})
	}
	return o, nil
}

// note notes which regions are named now.
func (l *rightsLane) note(regions []string, now time.Time) {
	if l.regions == nil {
		l.regions, now = map[string]noted{}, time.Time{}
	}
	for name, n := range l.regions {
		switch named := slices.Contains(regions, name); {
		case named != n.named:
			l.regions[name] = noted{named, now}
		case !named && now.Sub(n.since) >= escrow.Forever:
			delete(l.regions, name)
		}
	}
	for _, name := range regions {
		if _, known := l.regions[name]; !known {
			l.regions[name] = noted{true, now}
		}
	}
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

// Disown implements escrow.Log.
func (r *Rights) Disown(ctx context.Context, lane int, token uint64, ago time.Duration, by []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, err := r.of(ctx, lane, token)
	if err != nil {
		return err
	}
	if at := r.now().Add(-ago); at.After(l.disowned) {
		l.disowned = at
	}
	l.deniers = slices.Clone(by)
	return nil
}
