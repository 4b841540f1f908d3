package edge

import (
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What is forgotten to make room returns its rights as it goes: else they would be nobody's until a
// lease and the window are over, and a key that is forgotten time and again have none left.

const (
	// mostLastWords bounds how many returns wait to be heard; of more the rights are lost for a while.
	mostLastWords = 8192
	// lastWordTries is how often each is told.
	lastWordTries = 3
)

// forgotten are the last words of counters that are no more.
type forgotten struct {
	mu      sync.Mutex // guards what follows
	waiting []lastWord
	gone    map[uint64]time.Duration // their holders, until the authority has answered, and when each was last told; 0: not yet
}

// lastWord is one of them.
type lastWord struct {
	claim deltasync.Claim
	home  string
	told  time.Duration
	tries int
}

// giveUpRights has what a record returns told when it is no more.
func (s *shard) giveUpRights(r *record, now int64) {
	if r.sparse() || r.block.share == nil || r.block.share.rights == nil || !escrows(r.block.rate) || !asks(r.block.rate) {
		return
	}
	rt := r.block.share.rights
	rt.wall = now
	s.returns(r, 0, now)
	if !rt.ungiven() {
		return
	}
	var ends []deltasync.End
	if boot := rt.escrow.boot(); boot < rt.until { // else more is left than it spent
		ends = rt.ends(r.block.rate, rt.granted-rt.returned, now, boot)
	}
	s.cluster.escrow.forgotten.say(lastWord{home: rt.home, claim: deltasync.Claim{
		Key: r.key, Holder: rt.holder, Limit: rt.ceiling, Lasts: r.block.rate.Lasts(),
		Granted: rt.granted, Returned: rt.returned, Regional: r.block.rate.Scope == limit.ScopeRegion,
		Bound: rt.granted - rt.returned, Ends: ends,
	}})
}

// spentIn says that what was charged at an instant, to the microsecond, was so in this life of the counter.
// What an earlier one spent is free by itself: a right of this one, which others of its hits are in use of,
// would be free twice.
func (rt *rights) spentIn(at time.Duration) bool { return at+time.Microsecond > rt.born }

// say has one told.
func (f *forgotten) say(l lastWord) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) >= mostLastWords {
		return
	}
	if f.gone == nil {
		f.gone = map[uint64]time.Duration{}
	}
	f.gone[l.claim.Holder] = 0
	f.waiting = append(f.waiting, l)
}

// lastWords are what is to be told now, so many at the most.
func (e *escrow) lastWords(boot time.Duration, most int) (out []lastWord) {
	p := &e.forgotten
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(l lastWord) bool {
		over := l.tries == lastWordTries && boot-l.told > claimTimeout
		if over {
			delete(p.gone, l.claim.Holder)
		}
		return over
	})
	for i := range p.waiting {
		if l := &p.waiting[i]; len(out) < most && (l.tries == 0 || l.tries < lastWordTries && boot-l.told > claimTimeout) {
			l.tries, l.told = l.tries+1, boot
			p.gone[l.claim.Holder] = boot
			out = append(out, *l)
		}
	}
	if len(p.waiting) > 0 {
		e.due.Store(true)
	}
	return out
}

// heard notes that an authority has answered what was sent at an instant.
func (e *escrow) heard(grants []deltasync.Grant, sent time.Duration) {
	p := &e.forgotten
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.gone) == 0 {
		return
	}
	for i := range grants {
		g := &grants[i]
		told, is := p.gone[g.Holder]
		if !is {
			continue
		}
		at := slices.IndexFunc(p.waiting, func(l lastWord) bool { return l.claim.Holder == g.Holder })
		l := &p.waiting[at]
		switch more := crdt.SatSub(g.Granted, l.claim.Granted); {
		case g.Home == "" && more > 0: // what was asked for before it was forgotten: that is returned, too
			l.claim.Granted, l.claim.Returned, l.tries = g.Granted, l.claim.Returned+more, 0
			p.gone[g.Holder] = 0
		case told == 0 || sent < told:
		case g.Home != "": // another is the authority
			l.home, l.told = g.Home, -claimTimeout-1
		default:
			delete(p.gone, g.Holder)
			p.waiting = slices.Delete(p.waiting, at, at+1)
		}
	}
}

// unheard is how many of them no authority has answered.
func (e *escrow) unheard() int {
	e.forgotten.mu.Lock()
	defer e.forgotten.mu.Unlock()
	return len(e.forgotten.gone)
}
