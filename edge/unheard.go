package edge

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

const (
	// mostUnheard is how many keys have a give-back wait until the region has told what others
	// charged: of more it is dropped, and counted as nothing that was given back.
	mostUnheard = 4096
	// unheardFor is how long it waits at the most: the answer to what is asked at once takes less,
	// and later nobody could tell what was charged since from what it is of.
	unheardFor = 2 * time.Second
)

// unheard are give-backs of more than this edge has heard of, as of who gives back at another edge
// than the one that was asked: they wait for what the region answers next.
type unheard struct {
	some atomic.Bool // there are some
	mu   sync.Mutex  // guards what follows; taken with a shard's held
	of   map[deltasync.Key]giving
	next int64 // no wait is over before
}

// giving is one of them, or those of a key one after the other.
type giving struct {
	rule  *limit.Rule
	rate  *limit.Rate
	cost  uint64
	at    int64 // when the first was given back, and
	last  int64 // the last; ns since 1970
	whose charger
}

// waits has a give-back wait for what the region says of a counter, and says whether it does.
func (n *Node) waits(now int64, c *counter, cost uint64, whose charger) bool {
	s := n.shard(c.key)
	r := s.find(c.key)
	if r == nil || s.private(c.rate) || c.rate.HasTurns(c.rule) {
		return false
	}
	u := &n.unheard
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweep(now)
	g := giving{rule: c.rule, rate: c.rate, cost: cost, at: now, last: now, whose: whose}
	if before, again := u.of[c.key]; again && before.rate == g.rate && before.whose == whose && !before.over(now) {
		g.at, g.cost = before.at, crdt.SatAdd(before.cost, cost)
	} else if !again && len(u.of) >= mostUnheard {
		return false
	}
	u.wait(c.key, g)
	n.want(s, r, c.rate)
	return true
}

// over says that nothing of it waits any more, or that a clock was set back.
func (g *giving) over(now int64) bool { return now-g.at >= int64(unheardFor) || now < g.at }

// sweep forgets those whose wait is over, now and then; u.mu is held.
func (u *unheard) sweep(now int64) {
	if len(u.of) == 0 || now < u.next && u.next-now <= int64(unheardFor) {
		return
	}
	u.next = now + int64(unheardFor)
	maps.DeleteFunc(u.of, func(_ deltasync.Key, g giving) bool { return g.over(now) })
	u.some.Store(len(u.of) > 0)
}

func (u *unheard) wait(key deltasync.Key, g giving) {
	if u.of == nil {
		u.of = map[deltasync.Key]giving{}
	}
	u.of[key] = g
	u.some.Store(true)
}

// giveBackHeard gives back what waited for what was heard now of a record, in an answer to what was
// asked at a time; nil: of a key that was forgotten since, and that the view may know. It is of
// others' charges: of its own this edge had none left, and what was charged since, in slices that had
// not begun, is not what was given back.
func (n *Node) giveBackHeard(s *shard, r *record, key deltasync.Key, asked, now int64) {
	u := &n.unheard
	if !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweep(now)
	g, waits := u.of[key]
	if !waits || asked < g.at {
		return
	}
	delete(u.of, key)
	u.some.Store(len(u.of) > 0)
	if g.over(now) || r != nil && r.block.rate != g.rate {
		return
	}
	of := stretch{from: math.MinInt64 + 1, to: g.last + 1, cost: g.cost, others: true}
	if g.cost -= n.giveBackCounted(now, &counter{key: key, rule: g.rule, rate: g.rate}, of, g.whose); g.cost > 0 && g.last > asked {
		if r = s.find(key); r == nil {
			return
		}
		g.at = g.last
		u.wait(key, g)
		n.want(s, r, g.rate)
	}
}
