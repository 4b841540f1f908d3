package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An aggregator whose store is away takes counts into its memory and says so,
// StatusStoreDown. It writes them itself once the store is back; but if it dies
// first, nobody else has them, and whoever serves the lane then looks like one
// that does: the edge knows its epoch of old. So a lane remembers who holds
// counts that way, and since when, until he has answered that all is stored.

// unstored is one aggregator that holds counts of a lane in memory alone.
type unstored struct {
	epoch uint64 // of the aggregator
	since int64  // no counts that it holds so were told before
	first int64  // when it said so first
}

// unstoredPatience is how long another's answer is waited out: where two serve a
// lane in turn, one of them cut off from the store, not everything shall be told
// twice all the time.
const unstoredPatience = time.Second

// mostUnstored bounds the aggregators that are remembered for a lane.
const mostUnstored = 16

// heardUnstored notes who took counts told since then without a store; n.mu is
// held.
func (n *Node) heardUnstored(now int64, lane int, epoch uint64, since int64) {
	if since == 0 {
		return // none of its counts is live
	}
	held := n.unstored[lane]
	at := slices.IndexFunc(held, func(u unstored) bool { return u.epoch == epoch })
	switch {
	case at >= 0:
		held[at].since = min(held[at].since, since)
	case len(held) < mostUnstored:
		n.unstored[lane] = append(held, unstored{epoch, since, now})
	default: // they come and go: this one is a part of the first
		held[0].epoch, held[0].since = 0, min(held[0].since, since)
	}
}

// heardStored takes an answer of an aggregator whose store has all that it was
// told. What others hold in memory alone is sent again, since they may be gone;
// n.mu is held.
func (n *Node) heardStored(now int64, lane int, epoch uint64) {
	n.unstored[lane] = slices.DeleteFunc(n.unstored[lane], func(u unstored) bool {
		switch {
		case u.epoch == epoch:
			return true
		case !lapsed(now, u.first, unstoredPatience):
			return false
		}
		n.sendAgain(u.since)
		n.cfg.Logger.Info("an aggregator took counts while its store was away, and another answers now: sending them again", "lane", lane)
		return true
	})
}

// resend says what Tick is to send again: what is live, was last told at since
// or later, and not in full since the wave rose.
type resend struct {
	wave  uint32
	since int64
}

// sendAgain has Tick send again what is live and was last told at since or
// later; n.mu is held.
func (n *Node) sendAgain(since int64) {
	if n.unmarked > 0 {
		since = min(since, n.resend.since) // another is still under way
	}
	n.resend = resend{n.resend.wave + 1, since}
	n.unmarked = shards
	n.stats.resends.Add(1)
}

// toldSince is when the earliest of the counts in a frame that are still live
// here was last told; 0: none is.
func (n *Node) toldSince(up *deltasync.Up) (since int64) {
	for si := range up.Sections {
		sec := &up.Sections[si]
		for di := range sec.Deltas {
			d := &sec.Deltas[di]
			if !d.Tells() {
				continue
			}
			s := n.shard(d.Key)
			s.mu.Lock()
			if r := s.find(d.Key); r != nil && r.life() == sec.Life {
				if at := r.sentAt(); since == 0 || at < since {
					since = at
				}
			}
			s.mu.Unlock()
		}
	}
	return since
}
