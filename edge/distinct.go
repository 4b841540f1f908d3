package edge

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// For who watches the cluster it is estimated how many different keys a rule saw, and denied, by what is flushed of
// its first rate: no request pays for it. What is flushed of a key only to be told again is not counted.

// distinctSpan is how long a span is; what is told is of the one under way and of the one before.
const distinctSpan = 30 * time.Second

// distinct are the keys of a span, by the generation of the rate that counts them.
type distinct struct {
	since        int64
	latest, last map[uint64]*distinctKeys
}

// distinctKeys are those of a rate.
type distinctKeys struct{ all, denied deltasync.Sketch }

// turn begins a span anew where one is over.
func (s *distinct) turn(now int64) {
	switch past := now - s.since; {
	case past < 0 || past >= 2*int64(distinctSpan):
		s.latest, s.last, s.since = nil, nil, now
	case past >= int64(distinctSpan):
		s.latest, s.last, s.since = nil, s.latest, now
	}
}

// of is where the keys of a rate are noted.
func (s *distinct) of(rate *limit.Rate) *distinctKeys {
	k := s.latest[rate.Generation]
	if k == nil {
		if s.latest == nil {
			s.latest = map[uint64]*distinctKeys{}
		}
		k = new(distinctKeys)
		s.latest[rate.Generation] = k
	}
	return k
}

// note notes a key that is flushed.
func (k *distinctKeys) note(p *pending) {
	if p.delta.Flags&deltasync.FlagRefresh != 0 {
		return
	}
	if k.all.Add(p.delta.Key); p.denied {
		k.denied.Add(p.delta.Key)
	}
}

// Seen is which keys a rule saw, and denied, in the last half to whole minute, as far as its first rate
// counts them beyond this edge; none where it does not.
func (n *Node) Seen(now time.Time, rule *limit.Rule) (keys, denied deltasync.Sketch) {
	if len(rule.Rates) == 0 {
		return keys, denied
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.distinct.turn(n.clock.At(now))
	for _, of := range []map[uint64]*distinctKeys{n.distinct.latest, n.distinct.last} {
		if k := of[rule.Rates[0].Generation]; k != nil {
			keys.Merge(&k.all)
			denied.Merge(&k.denied)
		}
	}
	return keys, denied
}
