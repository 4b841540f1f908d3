package regional

import (
	"context"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// take merges a frame and stores it, and says whether all that was taken is stored.
// What found no room, as others of the frame were not stored yet, is merged once
// they are.
func (a *Aggregator) take(ctx context.Context, l *lane, up *deltasync.Up, now int64, begun time.Time) (m *merged, stored bool) {
	m = &merged{by: source(up.Kind), status: deltasync.StatusOK}
	a.merge(l, up, m, nil, now)
	stored = a.writeFrame(ctx, l, m, now)
	for gained := true; gained && len(m.full) > 0 && stored && a.cfg.Now().Sub(begun) < a.cfg.StoreTimeout; {
		full := m.full
		m.told, m.asked, m.full, m.away = nil, nil, nil, nil
		a.merge(l, up, m, full, now)
		m.inOrder()
		stored = a.writeFrame(ctx, l, m, now)
		gained = len(m.full) < len(full)
	}
	if len(m.full) == 0 {
		return m, stored
	}
	// The others are turned away. They hear at least what the store has of them.
	a.stats.full.Add(uint64(len(m.full)))
	for _, delta := range m.full {
		m.refuse(int(delta), deltasync.StatusOverloaded)
	}
	m.inOrder()
	m.told, m.asked = nil, m.away
	return m, a.writeFrame(ctx, l, m, now) && stored
}

// inOrder puts what was refused, by several passes over a frame, in the order in which
// it is told, each delta once.
func (m *merged) inOrder() {
	slices.Sort(m.refused)
	m.refused = slices.Compact(m.refused)
}

// guest has a key answered by a counter should it have no place by then.
func (m *merged) guest(key deltasync.Key, c *counter) {
	if c == nil {
		return
	}
	if m.guests == nil {
		m.guests = map[deltasync.Key]*counter{}
	}
	m.guests[key] = c
}
