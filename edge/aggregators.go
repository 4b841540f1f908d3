package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An edge knows the aggregators of its region by the epochs in their answers. It
// knows them lane by lane: who owns one does not answer to others, and is not
// missed there. One that is new to a lane may lack its counts, unless it has the
// store of the one before: all that is live of the lane is sent again, and of no
// other. One that falls silent may have had
// counts that nobody else has: what it took last, and had stored but not yet told
// the other regions, and what it took into memory alone, as its store was away.
// Records are marked that were told so; while others have a store, they are told
// to those.

// service is what a node knows of who serves a lane. Node.mu guards it.
type service struct {
	aggregators []aggregator // that have answered, the latest last
	answers     uint64
	store       uint64 // that the last answer was from; 0: unknown
	outages     bool   // some aggregator was without its store once
	saidAt      int64  // when one last said so
	unmet       int    // shards swept in a row that had no record of the lane marked as unstored; see settle
	told        int64  // when the last frame with counts left
	sent        int64  // when the last frame left
	shared      int64  // when one last told what is asked for, of which this edge has a share
	bye         int64  // when one told that this edge leaves
	left        bool   // and that was answered
	epoch       uint64 // of whoever answered last; 0: nobody has
	since       int64  // when he did for the first time in a row
	lasting     uint64 // the last store that one told of; 0: none has
	anew        int64  // when that was another one than before: what was told may be lost; 0: never

	mistake deltasync.Mistake // of our settings, as was last answered
}

// aggregator is one of the region's, or one that was.
type aggregator struct {
	epoch   uint64
	heard   int64  // when it last answered
	answers uint64 // how many the lane had had by then
	turns   uint64 // that it may miss; 0: silentTurns
	eased   int64  // when turns last changed
	gone    bool   // it is silent, and was seen to
	stored  bool   // all that it was told is stored, as it answered last, or told to others
	saidAt  int64  // when it last answered that some is not
}

const (
	// Who has not answered for so long, and so many times his turn, is gone: where
	// several serve a lane, that happens by chance once in a million turns. Who
	// comes back may miss twice as many: he is seldom asked. Each forgetful in
	// which he is there halves that.
	silentFor   = time.Second
	silentTurns = 14
	mostTurns   = 256
	// Of those who have not answered for so long nobody waits for a turn.
	forgetful = time.Minute
	// unexported is how long an aggregator takes at most, as a rule, to tell the
	// other regions what it has taken.
	unexported = 2 * time.Second
	// fadesWithin is how long it matters most how long nothing was asked for.
	fadesWithin = 2 * time.Second
)

// heardFrom takes note of an answer to a frame of a lane that left at sentAt;
// n.mu is held.
func (n *Node) heardFrom(now int64, lane int, down *deltasync.Down, sentAt int64) {
	l, epoch, status := &n.lanes[lane], down.StoreEpoch, down.Status
	list := l.aggregators
	at := slices.IndexFunc(list, func(a aggregator) bool { return a.epoch == epoch })
	switch {
	case at >= 0: // the latest stands last
		a := list[at]
		copy(list[at:], list[at+1:])
		list[len(list)-1] = a
	case status == deltasync.StatusNotOwner:
		return // it took and stored what it was told, and will hear no more
	default:
		if len(list) > 0 && (down.Store == 0 || down.Store != l.store) {
			n.sendAgain(lane, 0, now)
			n.cfg.Logger.Info("the region's store is new, sending live counts of the lane again", "lane", lane, "epoch", epoch)
		}
		if len(list) == deltasync.KnownEpochs {
			list = slices.Delete(list, 0, 1)
		}
		list = append(list, aggregator{epoch: epoch})
	}
	l.aggregators, l.store = list, down.Store
	l.answers++
	a := &list[len(list)-1]
	switch {
	case a.gone:
		a.turns, a.eased = min(2*max(a.turns, silentTurns), mostTurns), now
	case a.turns > 0 && lapsed(now, a.eased, forgetful):
		a.turns, a.eased = a.turns/2, now
	}
	a.heard, a.answers, a.gone = now, l.answers, false
	switch {
	case status == deltasync.StatusStoreDown:
		a.stored, a.saidAt, l.outages, l.saidAt, l.unmet = false, now, true, now, 0
	case sentAt >= a.saidAt || a.saidAt > now: // else it is an answer of before; later: a clock was set back
		a.stored = true // whatever it refused
	}
	n.missSilent(now, lane)
}

// heardBy takes note of who answered, and of his store. Of what others said before he knows
// nothing: he is to tell all.
func (n *Node) heardBy(now int64, lane int, down *deltasync.Down) {
	l := &n.lanes[lane]
	if l.epoch != down.StoreEpoch {
		l.epoch, l.since = down.StoreEpoch, now
		n.outboxes[lane].HearAll()
	}
	if down.Store != 0 && down.Store != l.lasting {
		if l.lasting != 0 {
			l.anew = now
		}
		l.lasting = down.Store
	}
}

// missSilent finds who of a lane is gone; n.mu is held.
func (n *Node) missSilent(now int64, lane int) {
	l := &n.lanes[lane]
	serving := l.serving(now)
	for i := range l.aggregators {
		a := &l.aggregators[i]
		if a.gone || l.answers-a.answers < max(a.turns, silentTurns)*uint64(serving) || !lapsed(now, a.heard, silentFor) {
			continue
		}
		a.gone = true
		n.sendAgain(lane, a.heard-int64(unexported), a.heard)
		n.cfg.Logger.Info("an aggregator answers no more, sending again what it took last", "lane", lane, "epoch", a.epoch)
	}
}

// serving is how many aggregators answer.
func (l *service) serving(now int64) (count int) {
	for i := range l.aggregators {
		if a := &l.aggregators[i]; !a.gone && !lapsed(now, a.heard, forgetful) {
			count++
		}
	}
	return count
}

// missed says that somebody who serves has not answered since an instant.
func (l *service) missed(now, since int64) bool {
	for i := range l.aggregators {
		if a := &l.aggregators[i]; !a.gone && a.heard <= since && !lapsed(now, a.heard, forgetful) {
			return true
		}
	}
	return false
}

// beats is how many intervals an edge with nothing to tell keeps silent; 0: for
// as long as it likes. On the first lane its region hears by that that it lives;
// on the others it hears who does, as long as that matters: whoever took counts
// and has not answered since, or since the time in which he tells other regions,
// may have died with them. What is left unstored has to meet somebody with a
// store. And where this edge has shares, others are to have them if it falls silent, and
// not where it is asked for nothing: at first, while those fade, it says so each time.
func (l *service) beats(now int64, lane int) int {
	if l.told > now+int64(maxAhead) {
		l.told = now // a clock was set back
	}
	done := l.told + int64(unexported)
	switch {
	case l.told != 0 && (l.missed(now, l.told) || now > done && l.missed(now, done)):
		return 1
	case l.shared != 0 && !lapsed(now, l.shared, fadesWithin):
		return 1
	case l.shared != 0 && !lapsed(now, l.shared, forgetShare):
		return beat
	case lane == 0 || l.unstored():
		return beat
	}
	return 0
}

// speaks says that an edge with nothing to tell is to say so in the lane now.
func (l *service) speaks(now int64, lane int, interval time.Duration, leaves bool) bool {
	if leaves && l.leaves(now) {
		return l.bye == 0 || lapsed(now, l.bye, interval-1)
	}
	beats := l.beats(now, lane)
	if l.epoch == 0 && beats == 0 { // whoever has the lane takes a former life of this edge for silent
		beats = 10 * beat
	}
	return beats > 0 && lapsed(now, l.sent, time.Duration(beats)*interval-1)
}

// leaves says that an edge which leaves has yet to say so in the lane: it has a share there,
// that others had better not keep for it.
func (l *service) leaves(now int64) bool {
	return l.shared != 0 && !lapsed(now, l.shared, forgetShare) && !l.left
}

// unstored says that somebody may have counts in his memory alone.
func (l *service) unstored() bool {
	return l.outages && slices.ContainsFunc(l.aggregators, func(a aggregator) bool { return !a.stored })
}

// remedy is what to do with records that are marked as unstored.
func (l *service) remedy(now int64) remedy {
	if !l.outages || len(l.aggregators) == 0 {
		return wait
	}
	stored := false
	for i := range l.aggregators {
		a := &l.aggregators[i]
		stored = stored || a.stored && !a.gone && !lapsed(now, a.heard, silentFor)
	}
	switch {
	case !stored:
		return wait
	case l.unstored(): // gone or not: what he took may be nowhere else
		return tell
	}
	return trust
}

// settle notes that so many more shards were swept, by which remedy, and whether
// marked records were met. After two rounds of telling that met none, whoever
// fell silent without a store has taken nothing that others do not have. Else he
// would have all keys of the next outage told twice.
func (l *service) settle(now int64, swept int, by remedy, marks bool) {
	if l.unmet += swept; marks || by != tell {
		l.unmet = 0
	}
	if l.unmet < 2*shards {
		return
	}
	l.unmet = 0
	for i := range l.aggregators {
		if a := &l.aggregators[i]; lapsed(now, a.heard, forgetful) {
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

// resend says what Tick is to send again.
type resend struct {
	wave  uint32 // of lanes whose counts are sent again; each has another number
	lanes [deltasync.MaxLanes]laneResend
}

// laneResend says what of a lane: what is live, was last told at since or later,
// or is marked as unstored, and was not told in full after an instant.
type laneResend struct {
	since, after int64 // since never: nothing
	unstored     remedy
}

const never = int64(1<<63 - 1)

// sendAgain has Tick send again what of a lane is live and was last told at since
// or later, but for what was told in full after an instant: others have that.
// n.mu is held.
func (n *Node) sendAgain(lane int, since, after int64) {
	l := &n.resend.lanes[lane]
	if l.since == never { // else another is still under way
		l.after = after
	}
	l.since, l.after = min(since, l.since), max(after, l.after)
	n.resend.wave++
	n.unmarked = shards
	n.stats.resends.Add(1)
}

// rested ends all resends; n.mu is held.
func (n *Node) rested() {
	for i := range n.resend.lanes {
		n.resend.lanes[i].since = never
	}
}

// concerns says that a record is to be sent again.
func (l *laneResend) concerns(r *record, now int64) bool {
	if l.since == never || r.fullAt() > l.after && r.fullAt() <= now {
		return false
	}
	return r.flags&owed != 0 || r.regions&unstoredMark != 0 || r.sentBy() >= l.since
}

// noteStored marks a record whose counts went into memory alone, and takes the
// mark off one that was told in full to somebody with a store: any other status
// than StatusStoreDown says that what was taken is stored. A delta that is told
// in full has all that was told before it left, to whomever; said is when
// somebody last answered that he has no store.
func (n *Node) noteStored(d *deltasync.Delta, life uint32, status deltasync.Status, left, said int64) {
	s := n.shard(d.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.living(d.Key, life)
	if r == nil {
		return
	}
	switch {
	case status == deltasync.StatusStoreDown:
		r.regions |= unstoredMark
	case r.regions&unstoredMark != 0 && (d.Flags&deltasync.FlagRefresh != 0 && left > said || s.covers(d, r)):
		r.regions &^= unstoredMark
	}
}

// covers says that a delta has all that the record has by now: what was charged
// since may have been told to somebody without a store.
func (s *shard) covers(d *deltasync.Delta, r *record) bool {
	if r.sparse() {
		s.scratch = append(s.scratch[:0], r.cell())
	} else {
		if punished := r.block.denied; punished.cost == penalty && d.Until < punished.until {
			return false
		}
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
