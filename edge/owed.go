package edge

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// mostUnheard is how many keys have a give-back wait until the region has told what others
// charged: of more it is dropped, and counted as nothing that was given back.
const mostUnheard = 4096

// unheard are give-backs of more than this edge has heard of, as of who gives back at another edge
// than the one that was asked: they wait for what the region answers next.
type unheard struct {
	some atomic.Bool // there are some
	mu   sync.Mutex  // guards of; taken with a shard's held
	of   map[deltasync.Key]giving
}

// giving is one of them, or those of a key one after the other.
type giving struct {
	rule     *limit.Rule
	rate     *limit.Rate
	cost     uint64
	at, last int64 // when the first was given back, and the last; ns since 1970
	until    int64 // when nothing of before counts any more
	whose    charger
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
	g := giving{rule: c.rule, rate: c.rate, cost: cost, at: now, last: now, until: now + int64(c.rate.Lingers()), whose: whose}
	if before, again := u.of[c.key]; again && before.rate == g.rate && before.whose == whose && now < before.until {
		g.at, g.cost = before.at, crdt.SatAdd(before.cost, cost)
	} else if !again && !u.room(now) {
		return false
	}
	u.wait(c.key, g)
	n.want(s, r, c.rate)
	return true
}

// room says that another may wait.
func (u *unheard) room(now int64) bool {
	if len(u.of) >= mostUnheard {
		maps.DeleteFunc(u.of, func(_ deltasync.Key, g giving) bool { return now >= g.until })
	}
	return len(u.of) < mostUnheard
}

func (u *unheard) wait(key deltasync.Key, g giving) {
	if u.of == nil {
		u.of = map[deltasync.Key]giving{}
	}
	u.of[key] = g
	u.some.Store(true)
}

// giveBackHeard gives back what waited for what was heard now of a record, in an answer to what was
// asked at a time. What was charged since is not what was given back.
func (n *Node) giveBackHeard(s *shard, r *record, key deltasync.Key, asked, now int64) {
	u := &n.unheard
	if !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	g, waits := u.of[key]
	if !waits || asked < g.at {
		return
	}
	delete(u.of, key)
	u.some.Store(len(u.of) > 0)
	if now >= g.until || r.block.rate != g.rate {
		return
	}
	of := stretch{from: math.MinInt64 + 1, to: g.last + 1, cost: g.cost}
	if g.cost -= n.giveBackCounted(now, &counter{key: key, rule: g.rule, rate: g.rate}, of, g.whose); g.cost > 0 && g.last > asked {
		g.at = g.last
		u.wait(key, g)
		n.want(s, r, g.rate)
	}
}
