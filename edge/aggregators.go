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
// what it took into memory alone, as its store was away. Records are marked that
// were told so; while others have a store, they are told to those.

// aggregator is one of the region's, or one that was.
type aggregator struct {
	epoch   uint64
	heard   int64  // when it last answered
	answers uint64 // how many the node had had by then
	turns   uint64 // that it may miss; 0: silentTurns
	eased   int64  // when turns last changed
	gone    bool   // it is silent, and was seen to
	stored  bool   // all that it was told is stored, as it answered last, or told to others
	saidAt  int64  // when it last answered that some is not
}

const (
	// Who has not answered for so long, and so many times his turn, is gone: by
	// chance that happens once in a million turns. Who comes back may miss twice
	// as many: he is seldom asked. Each forgetful in which he is there halves that.
	silentFor   = time.Second
	silentTurns = 14
	mostTurns   = 256
	// Of those who have not answered for so long nobody waits for a turn.
	forgetful = time.Minute
	// unexported is how long an aggregator takes at most, as a rule, to tell the
	// other regions what it has taken.
	unexported = 2 * time.Second
)

// heardFrom takes note of an answer to a frame that left at sentAt; n.mu is held.
func (n *Node) heardFrom(now int64, epoch uint64, status deltasync.Status, sentAt int64) {
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
	switch {
	case a.gone:
		a.turns, a.eased = min(2*max(a.turns, silentTurns), mostTurns), now
	case a.turns > 0 && lapsed(now, a.eased, forgetful):
		a.turns, a.eased = a.turns/2, now
	}
	a.heard, a.answers, a.gone = now, n.answers, false
	switch {
	case status == deltasync.StatusStoreDown:
		a.stored, a.saidAt, n.outages, n.unmet = false, now, true, 0
	case sentAt >= a.saidAt || a.saidAt > now: // else it is an answer of before; later: a clock was set back
		a.stored = true // whatever it refused
	}
	n.missSilent(now)
}

// missSilent finds who is gone; n.mu is held.
func (n *Node) missSilent(now int64) {
	serving := n.serving(now)
	for i := range n.aggregators {
		a := &n.aggregators[i]
		if a.gone || n.answers-a.answers < max(a.turns, silentTurns)*uint64(serving) || !lapsed(now, a.heard, silentFor) {
			continue
		}
		a.gone = true
		n.sendAgain(a.heard - int64(unexported))
		n.cfg.Logger.Info("an aggregator answers no more, sending again what it took last", "epoch", a.epoch)
	}
}

// serving is how many aggregators answer; n.mu is held.
func (n *Node) serving(now int64) (count int) {
	for i := range n.aggregators {
		if a := &n.aggregators[i]; !a.gone && !lapsed(now, a.heard, forgetful) {
			count++
		}
	}
	return count
}

// missed says that somebody who serves has not answered since counts were last
// told: then the edge beats faster, and is soon sure of who is gone; n.mu is held.
func (n *Node) missed(now int64) bool {
	for i := range n.aggregators {
		if a := &n.aggregators[i]; !a.gone && a.heard <= n.told && !lapsed(now, a.heard, forgetful) {
			return true
		}
	}
	return false
}

// remedy is what to do with records that are marked as unstored; n.mu is held.
func (n *Node) remedy(now int64) remedy {
	if !n.outages || len(n.aggregators) == 0 {
		return wait
	}
	stored, unstored := false, false
	for i := range n.aggregators {
		a := &n.aggregators[i]
		unstored = unstored || !a.stored // gone or not: what it took may be nowhere else
		stored = stored || a.stored && !a.gone && !lapsed(now, a.heard, silentFor)
	}
	switch {
	case !stored:
		return wait
	case unstored:
		return tell
	}
	return trust
}

// settle notes that so many more shards were swept, by which remedy, and whether
// marked records were met. After two rounds of telling that met none, whoever
// fell silent without a store has taken nothing that others do not have. Else he
// would have all keys of the next outage told twice. n.mu is held.
func (n *Node) settle(now int64, swept int, by remedy, marks bool) {
	if n.unmet += swept; marks || by != tell {
		n.unmet = 0
	}
	if n.unmet < 2*shards {
		return
	}
	n.unmet = 0
	for i := range n.aggregators {
		if a := &n.aggregators[i]; lapsed(now, a.heard, forgetful) {
			a.stored = true
		}
	}
}

type remedy uint8

const (
	wait  remedy = iota // nobody has a store, and they would be told in vain
	tell                // somebody has: they are sent, until he answers
	trust               // all have: they wrote them themselves
)

// resend says what Tick is to send again: what is live, was last told at since
// or later, or is marked as unstored, and not in full since the wave rose.
type resend struct {
	wave     uint32
	since    int64
	unstored remedy
}

// sendAgain has Tick send again what is live and was last told at since or
// later; n.mu is held.
func (n *Node) sendAgain(since int64) {
	if n.unmarked > 0 {
		since = min(since, n.resend.since) // another is still under way
	}
	n.resend = resend{wave: n.resend.wave + 1, since: since}
	n.unmarked = shards
	n.stats.resends.Add(1)
}

// noteStored marks a record whose counts went into memory alone, and takes the
// mark off one that was told in full to somebody with a store: any other status
// than StatusStoreDown says that what was taken is stored.
func (n *Node) noteStored(d *deltasync.Delta, life uint32, status deltasync.Status) {
	s := n.shard(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(d.Key)
	if r == nil || r.life() != life {
		return
	}
	switch {
	case status == deltasync.StatusStoreDown:
		r.regions |= unstoredMark
	case r.regions&unstoredMark != 0 && s.covers(d, r):
		r.regions &^= unstoredMark
	}
}

// covers says that a delta has all that the record has by now: what was charged
// since may have been told to somebody without a store.
func (s *shard) covers(d *deltasync.Delta, r *record) bool {
	if r.sparse() {
		s.scratch = append(s.scratch[:0], r.cell())
	} else {
		r.settle()
		s.scratch = r.block.own.Cells(s.scratch[:0])
	}
	told := d.Cells
	for _, c := range s.scratch {
		for len(told) > 0 && told[0].Slice < c.Slice {
			told = told[1:]
		}
		if len(told) == 0 || told[0] != c {
			return c.Zero()
		}
	}
	return true
}
