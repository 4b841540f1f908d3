package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An edge knows the aggregators of its region by the epochs in their answers,
// whichever lane they are to. One that is new may lack all counts: everything
// live is sent again. One that falls silent may have had counts that nobody else
// has: what it took last, and had stored but not yet told the other regions, and
// whatever it took into memory alone since its store was away. And while that
// lasts, the others do not know what is in its memory.

// aggregator is one of the region's, or one that was.
type aggregator struct {
	epoch   uint64
	heard   int64  // when it last answered
	answers uint64 // how many the node had had by then
	gone    bool   // it is silent, and was seen to

	since    int64 // it has no counts in memory alone that were told before; 0: it has none
	saidAt   int64 // when it last said that it has
	toldAt   int64 // when they were last told to whoever answers; at first, when it said so first
	patience time.Duration
}

const (
	// Who has not answered for so long, and so many times his turn, is gone.
	silentFor   = time.Second
	silentTurns = 8
	// unexported is how long an aggregator takes at most, as a rule, to tell the
	// other regions what it has taken.
	unexported = 2 * time.Second
	// While an aggregator has no store, what it took is told to the others after
	// leastPatience, and then less and less often.
	leastPatience = time.Second
	mostPatience  = 16 * time.Second
)

// heardFrom takes note of an answer to a frame that left at sentAt. A status of
// StatusStoreDown is about counts of which none was told before since (0: none
// of them is live). n.mu is held.
func (n *Node) heardFrom(now int64, epoch uint64, status deltasync.Status, sentAt, since int64) {
	list := n.aggregators
	at := slices.IndexFunc(list, func(a aggregator) bool { return a.epoch == epoch })
	switch {
	case at >= 0: // the latest stands last
		a := list[at]
		copy(list[at:], list[at+1:])
		list[len(list)-1] = a
	case len(list) > 0:
		n.sendAgain(0)
		n.cfg.Logger.Info("region's store is new, sending live counts again", "epoch", epoch)
		fallthrough
	default:
		if len(list) == deltasync.KnownEpochs {
			list = slices.Delete(list, 0, 1)
		}
		list = append(list, aggregator{epoch: epoch})
	}
	n.aggregators = list
	n.answers++
	a := &list[len(list)-1]
	a.heard, a.answers, a.gone = now, n.answers, false
	switch {
	case status == deltasync.StatusOK && (sentAt > a.saidAt || a.saidAt > now): // later: a clock was set back
		a.since = 0 // it answers so only when all that it took is stored
	case status == deltasync.StatusStoreDown && since != 0:
		if a.since == 0 {
			a.since, a.toldAt, a.patience = since, now, leastPatience
		}
		a.since, a.saidAt = min(a.since, since), now
	}
	n.lookAfter(now)
}

// lookAfter sends again what may be nowhere else than with an aggregator that is
// gone, or has no store; n.mu is held.
func (n *Node) lookAfter(now int64) {
	alive := 0
	for i := range n.aggregators {
		if !n.aggregators[i].gone {
			alive++
		}
	}
	for i := range n.aggregators {
		switch a := &n.aggregators[i]; {
		case a.gone:
		case n.answers-a.answers >= uint64(silentTurns*alive) && lapsed(now, a.heard, silentFor):
			since := a.heard - int64(unexported)
			if a.since != 0 {
				since = min(since, a.since)
			}
			a.gone, a.since = true, 0
			n.sendAgain(since)
			n.cfg.Logger.Info("an aggregator answers no more, sending again what it took last", "epoch", a.epoch)
		case a.since != 0 && alive > 1 && lapsed(now, a.toldAt, a.patience):
			a.toldAt, a.patience = now, min(2*a.patience, mostPatience)
			n.sendAgain(a.since)
		}
	}
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
