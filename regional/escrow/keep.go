package escrow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// take takes a lane if it is not ours, and returns the token that it is ours by.
func (a *Authority) take(ctx context.Context, lane int) (token uint64, err error) {
	l := &a.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.token != 0:
		return l.token, nil
	case l.taking:
		return 0, errors.New("the lane is being taken")
	}
	l.taking = true
	l.mu.Unlock()
	token = max(1, a.cfg.Token())
	origin, err := a.cfg.Log.Take(ctx, lane, token, a.regions)
	l.mu.Lock()
	if l.taking = false; err != nil {
		return 0, err
	}
	l.forget(token)
	now := a.cfg.Boot()
	l.since, l.log, l.barred = now-min(origin.Age, Forever), origin.ID, origin.Revoked
	l.note(&origin, a.cfg.Peers, now)
	a.peers.begin(now)
	a.tellLeft(l.noted, now)
	a.cfg.Logger.Debug("authority over a lane's strict limits", "lane", lane, "log_age", origin.Age)
	return token, nil
}

// Keep takes the lanes that are owned here, whether anybody claims rights or not: what a
// new log may not know of is over a lease and a window after it began, and it is better
// that it begins when the cluster does. For the same reason it looks once a second
// whether the log is still there: what was lost while nobody claimed would else be
// noticed by whoever comes first, hours later, and he and all others wait from then on.
// Call it every Config.Interval.
func (a *Authority) Keep(ctx context.Context, owned func(lane int) bool) error {
	now := a.cfg.Boot()
	last := a.looked.Load()
	look := (last == 0 || now-time.Duration(last) >= lookEvery) && a.looked.CompareAndSwap(last, int64(now))
	none := true
	for lane := range a.lanes {
		if !owned(lane) {
			continue
		}
		none = false
		if err := a.keep(ctx, lane, look); err != nil {
			return fmt.Errorf("keep lane %d of the log of rights: %w", lane, err)
		}
	}
	if none {
		a.peers.forget()
	}
	return nil
}

// lookEvery is how often the log is asked whether it is there: that is a read a lane.
const lookEvery = time.Second

// keep takes a lane that is not ours, or of which the log was lost, if it is to look for
// that. One that somebody else has taken is left to him until somebody claims rights
// here: two that both believe to own it would take it from each other for ever.
func (a *Authority) keep(ctx context.Context, lane int, look bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	token, err := a.take(ctx, lane)
	if err != nil {
		return err
	}
	if err = a.noteDisowned(ctx, lane, token); err == nil && look {
		_, err = a.cfg.Log.Load(ctx, lane, token, nil)
	}
	switch {
	case errors.Is(err, ErrLost):
		a.lanes[lane].drop(token)
		_, err = a.take(ctx, lane)
		return err
	case errors.Is(err, ErrFenced):
		return nil
	}
	return err
}

// sweepEvery is how often a part of a lane is looked through for keys that nobody holds
// rights of: sweepPart of them, and sweepLeast at the least.
const (
	sweepEvery = time.Second
	sweepPart  = 8
	sweepLeast = 1024
)

// sweep forgets keys that nobody holds rights of, and finds those whose holders are
// silent; l.mu is held. The log has the first without holdings, or not at all. Where
// there is little room it leaves the second to the log, which is read again when somebody
// asks.
func (a *Authority) sweep(l *lane) {
	now := a.cfg.Boot()
	if now-l.swept < sweepEvery {
		return
	}
	l.swept = now
	for range min(len(l.order), max(sweepLeast, len(l.order)/sweepPart)) {
		a.look(l, now)
	}
}

// makeRoom is sweep until there is room for so many keys more, and returns for how many
// there is.
func (a *Authority) makeRoom(l *lane, wanted int) (room int) {
	most, now := a.cfg.MaxKeys/a.cfg.Lanes, a.cfg.Boot()
	for n := min(len(l.order), sweepLeast); n > 0 && most-len(l.keys) < wanted; n-- {
		a.look(l, now)
	}
	return min(wanted, max(0, most-len(l.keys)))
}

// look is sweep of the next key.
func (a *Authority) look(l *lane, now time.Duration) {
	if len(l.order) == 0 {
		return
	}
	l.hand %= len(l.order)
	d, most := l.order[l.hand], a.cfg.MaxKeys/a.cfg.Lanes
	tight := len(l.keys) >= most-most/4
	if l.keys[d.key] == d {
		switch a.lapse(d, now); {
		case d.writes > 0:
		case len(d.holdings) == 0 && d.version == 0, tight && d.rests(a.cfg.Lease, now):
			delete(l.keys, d.key)
		case len(l.idle) < mostIdle && !slices.Contains(l.idle, d) && (len(d.holdings) == 0 || d.hushed(a.cfg.Lease, now) || tight && d.owes()):
			l.idle = append(l.idle, d)
		}
	}
	if l.keys[d.key] == d {
		l.hand++
		return
	}
	last := len(l.order) - 1
	l.order[l.hand], l.order[last] = l.order[last], nil
	l.order = l.order[:last]
}

// lapse removes what nobody holds any more of a key.
func (a *Authority) lapse(d *deposit, now time.Duration) bool {
	return d.lapse(a.cfg.Lease, a.bound(), now)
}

// bound is the longest that what is spent may count, whatever its holder said.
func (a *Authority) bound() time.Duration {
	longest := a.cfg.Longest()
	if longest == 0 {
		longest = Forever
	}
	return max(longest, leastBound)
}

// leastBound is how long rules may take to get here.
const leastBound = 24 * time.Hour

// mostIdle is how many keys that nobody asks for are written at a time.
const mostIdle = 256

// drop has the lane taken anew, if it is still ours by token. Whoever is fenced off
// knows nothing any more: somebody else may have granted since. So it is after a write
// of which nobody knows what became: it may come later than the next, unless that is
// under another token.
func (l *lane) drop(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token && token != 0 {
		l.forget(0)
	}
}

// forget forgets all that is known of a lane, which is ours by token from now on; 0: it is
// not. l.mu is held.
func (l *lane) forget(token uint64) {
	l.token, l.keys, l.order, l.hand = token, map[deltasync.Key]*deposit{}, nil, 0
	l.short, l.tell, l.idle = nil, nil, nil
}
