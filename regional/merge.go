package regional

import (
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// source is the kind of entry that a frame's counts become.
func source(kind deltasync.Kind) Source {
	if kind == deltasync.KindRegion {
		return FromRegion
	}
	return FromEdge
}

// merge joins a frame's counts and returns the keys that the store must hear
// of, or be asked about.
func (a *Aggregator) merge(l *lane, up *deltasync.Up, now int64) (keys []deltasync.Key, worst deltasync.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst = deltasync.StatusOK
	for si := range up.Sections {
		sec := &up.Sections[si]
		if err := (&Item{Width: sec.Shape.Width, Slices: sec.Shape.Slices}).Check(); err != nil {
			a.stats.misshapen.Add(uint64(len(sec.Deltas)))
			worst = max(worst, deltasync.StatusForbidden)
			continue
		}
		replica := up.Replica(sec.Life)
		oldest := retirement(sec.Shape, now)
		horizon := sliceAt(sec.Shape, now+int64(maxAhead))
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			cells, ahead := within(d.Cells, horizon)
			if ahead {
				a.stats.ahead.Add(1)
				worst = max(worst, deltasync.StatusClock)
			}
			c := l.counters[d.Key]
			if c == nil {
				if len(l.counters) >= a.cfg.MaxKeys/a.cfg.Lanes {
					a.stats.full.Add(1)
					worst = max(worst, deltasync.StatusOverloaded)
					continue
				}
				c = &counter{shape: sec.Shape}
				l.counters[d.Key] = c
			}
			c.shape.Limit = sec.Shape.Limit
			from, rose := c.join(source(up.Kind), replica, cells, oldest)
			a.stats.merges.Add(uint64(len(cells)))
			if rose {
				c.lacks(source(up.Kind), replica, from)
				a.changed(l, d.Key, c, now)
			}
			if up.Kind == deltasync.KindEdge && (rose || d.Flags&deltasync.FlagRefresh != 0) {
				if !rose && len(cells) > 0 {
					from = cells[0].Slice
				}
				a.export(l, d.Key, c, from, d.Flags)
			}
			if len(c.missing) > 0 || c.version == 0 {
				keys = append(keys, d.Key)
			}
		}
	}
	return keys, worst
}

// within cuts off the cells that lie too far ahead.
func within(cells []crdt.Cell, horizon crdt.Slice) (kept []crdt.Cell, ahead bool) {
	n := len(cells)
	for n > 0 && cells[n-1].Slice > horizon {
		n--
	}
	return cells[:n], n < len(cells)
}

// changed notes that a key's totals rose: edges may have to hear at once.
func (a *Aggregator) changed(l *lane, key deltasync.Key, c *counter, now int64) {
	if !c.pushed && c.crossing(reach(c.shape, now)) {
		c.pushed = true
		l.push = append(l.push, key)
		a.hurry.Store(true)
	}
}

// export puts the region's subtotal of a key, from a slice on, into the
// outboxes to all peers.
func (a *Aggregator) export(l *lane, key deltasync.Key, c *counter, from crdt.Slice, flags deltasync.Flags) {
	if c.shape.Regional || len(l.peers) == 0 {
		return
	}
	cells := c.edges.Sums().From(from, nil)
	if len(cells) == 0 {
		return
	}
	flags &= deltasync.FlagUrgent | deltasync.FlagRefresh
	for i := range l.peers {
		if !l.peers[i].outbox.Put(c.shape, 0, deltasync.Delta{Key: key, Flags: flags, Cells: cells}) {
			a.stats.exportFull.Add(1) // the edges' refresh brings it again
		}
	}
	if flags&deltasync.FlagUrgent != 0 {
		a.hurry.Store(true)
	}
}
