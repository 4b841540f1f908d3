package edge

import (
	"time"

	"github.com/spillgate/spillgate/sync"
)

// refuses says that an answer turns counts away that were told before.
func refuses(up *deltasync.Up, down *deltasync.Down) bool {
	i := 0
	for si := range up.Sections {
		for di := range up.Sections[si].Deltas {
			if d := &up.Sections[si].Deltas[di]; d.Flags&deltasync.FlagRefresh != 0 && d.Tells() && !down.Took(i) {
				return true
			}
			i++
		}
	}
	return false
}

// refusal is when a lane was last told that the region would not have something,
// and how often it was in a row.
type refusal struct {
	at    int64
	times int
}

// mostRefusals bounds how long nobody tells again what was refused: 16 s.
const mostRefusals = 4

// patience is how long what was refused now waits before it is told again: a
// second, and twice as long each time that it is refused once more. A region
// that is full would be told all it has no room for each second.
func (r *refusal) patience(now int64) time.Duration {
	switch waits := time.Second << r.times; {
	case r.at == 0 || lapsed(now, r.at, 3*waits):
		r.at, r.times = now, 0
	case lapsed(now, r.at, waits):
		r.at, r.times = now, min(r.times+1, mostRefusals)
	}
	return time.Second << r.times
}

// tellAgain has a key's counts sent again, all of them: after a second the first
// time, as another aggregator may take them, and with patience where they were
// refused again. At once they would meet the same refusal, and keep others
// waiting. What is charged meanwhile, and refused, waits with them.
func (n *Node) tellAgain(now int64, d *deltasync.Delta, life uint32, patience time.Duration) {
	s := n.shard(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.living(d.Key, life)
	if r == nil {
		return
	}
	if d.Flags&deltasync.FlagRefresh == 0 {
		if r.flags&owed != 0 {
			return
		}
		patience = time.Second
	}
	s.dueBy(r, now-int64(refreshAfter(r.block.rate))+int64(patience))
	s.owe(r)
}
