package escrow

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// peers is what is known of whether they name this region.
type peers struct {
	disowned atomic.Int64 // when one last did not, by Config.Boot; -Forever: never
	mu       sync.Mutex   // guards what follows
	began    time.Duration
	left     map[string]bool // regions that are not named any more, of which that was logged
	// met are those that have said so since, and when each was first heard to say that it did not
	// at some time; 0: never.
	met map[string]time.Duration
}

// meetFor is how long the first answer of a peer is waited for, from when a lane is taken where
// none was before, and of its others where it did not always name this region, from when that was
// heard: who does not answer by then goes on as it was.
const meetFor = 5 * time.Second

// noteEvery is how old what the log has of a peer that does not name this region gets at the most, if
// that goes on.
const noteEvery = 5 * time.Second

// begin is to be called when a lane is taken.
func (p *peers) begin(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.met == nil {
		p.began, p.met = now, map[string]time.Duration{}
	}
}

// tellLeft logs which regions are not named any more, whose keys are granted later.
func (a *Authority) tellLeft(noted []notedRegion, now time.Duration) {
	p := &a.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range noted {
		until := r.since + hearsWithin + spare(a.cfg.Lease+a.longest())
		if r.named || until <= now || p.left[r.name] {
			continue
		}
		if p.left == nil {
			p.left = map[string]bool{}
		}
		p.left[r.name] = true
		a.cfg.Logger.Warn("a region is not named among the peers any more: of limits of all regions that were drawn to it no rights are granted until a lease and the limit's window after that, as what it had granted counts until then",
			"region", r.name, "ago", (now - r.since).Truncate(time.Second), "for", (until - now).Truncate(time.Second))
	}
}

// forget has peers waited for again, when a lane is taken next.
func (p *peers) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met = nil
}

// waits says that a peer, or whoever has this lane there, has not answered yet, who may know that
// this region was none of its; l.mu is held.
func (a *Authority) waits(l *lane, now time.Duration) bool {
	p := &a.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.met) < len(a.cfg.Peers) && now-p.began <= meetFor {
		return true
	}
	for name, doubted := range p.met {
		if doubted != 0 && now-doubted <= meetFor && !l.answered[name] {
			return true
		}
	}
	return false
}

// NamedBy is to be called with each answer of a peer in a lane that says so: for how long that region
// has named this one among its peers; 0: it does not; Forever: it knows of no time when it did
// not. Until then that one, and its edges, took another for the authority over keys that are
// drawn to this one.
func (a *Authority) NamedBy(lane int, name string, ago time.Duration) {
	now := a.cfg.Boot()
	l, p := &a.lanes[lane], &a.peers
	if ago >= Forever && a.denied(l, name) { // its log began anew
		ago = 1
	}
	p.mu.Lock()
	if p.met != nil {
		doubted := p.met[name]
		if ago < Forever && doubted == 0 {
			doubted = max(1, now)
		}
		p.met[name] = doubted
	}
	p.mu.Unlock()
	if ago < Forever {
		a.disown(name, now, ago)
	}
	if ago == 0 { // whatever the owners of other lanes said long ago
		for i := range a.lanes {
			o := &a.lanes[i]
			o.mu.Lock()
			delete(o.answered, name)
			o.mu.Unlock()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered[name] = true
	if ago == 0 {
		l.deny(name, now)
	} else {
		delete(l.denied, name)
	}
}

// IsNamedBy is NamedBy where it does not say for how long.
func (a *Authority) IsNamedBy(lane int, name string) {
	l := &a.lanes[lane]
	if !a.denied(l, name) {
		return
	}
	a.disown(name, a.cfg.Boot(), 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.denied, name)
}

// Asks says that a peer is to be asked in a lane whether it names this region: the owner of the lane
// there said that it does not, or has said nothing since another did.
func (a *Authority) Asks(lane int, name string) bool {
	l, p := &a.lanes[lane], &a.peers
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, denied := l.denied[name]; denied || l.answered[name] {
		return denied
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met[name] != 0
}

// denied says that the owner of a lane at a peer does not name this region, as it said last.
func (a *Authority) denied(l *lane, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, denied := l.denied[name]
	return denied
}

// deny takes note that the owner of the lane at a peer does not name this region; l.mu is held.
func (l *lane) deny(name string, now time.Duration) {
	if l.denied == nil {
		l.denied = map[string]time.Duration{}
	}
	l.denied[name] = now
}

// denies says that a peer takes another for the authority over keys that are drawn to this region: it
// grants what is held here in a lease and a window, and by then that must be over. If it has said
// nothing since, it may do so still: that ends by its word, an operator's trust, or as it is
// taken from the peers; l.mu is held.
func (l *lane) denies() bool { return len(l.denied) > 0 }

// disown takes note that a peer did not name this region until so long ago.
func (a *Authority) disown(name string, now, ago time.Duration) {
	for at := int64(now - ago); ; {
		last := a.peers.disowned.Load()
		if at <= last {
			return
		}
		if !a.peers.disowned.CompareAndSwap(last, at) {
			continue
		}
		if until := spare(a.cfg.Lease+a.longest()) - ago; at-last > int64(newsAfter) && until > 0 {
			a.cfg.Logger.Warn("another region did not name this one among its peers, so that both might have granted all rights of a strict limit: until a lease and the limit's window after it does no more are granted here of limits of all regions that are drawn to this one; whoever knows that it granted none in its place ends that with `aggregator rights trust`",
				"peer", name, "ago", ago.Truncate(time.Second), "for", until.Truncate(time.Second))
		}
		return
	}
}

// newsAfter is how much later a peer has to have named this region than was known to be news:
// answers take now longer and now less long.
const newsAfter = time.Minute

// Naming is for how long this region has named a peer, as the log of a lane knows; Forever: of no time
// when it did not. It is not known where the lane is not had.
func (a *Authority) Naming(lane int, name string) (ago time.Duration, known bool) {
	l := &a.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	now := a.cfg.Boot()
	for _, r := range l.noted {
		if r.name == name && r.named && l.token != 0 {
			return max(1, min(now-r.since, Forever)), true
		}
	}
	return 0, false
}

// noteDisowned has the log of a lane know what peers said, for whoever has it next.
func (a *Authority) noteDisowned(ctx context.Context, lane int, token uint64) error {
	l, now := &a.lanes[lane], a.cfg.Boot()
	last := time.Duration(a.peers.disowned.Load())
	l.mu.Lock()
	l.departed = slices.DeleteFunc(l.departed, func(name string) bool { // what it granted is over
		return now-l.namedSince(name) > hearsWithin+spare(a.cfg.Lease+a.longest())
	})
	by := slices.AppendSeq(slices.Clone(l.departed), maps.Keys(l.denied))
	slices.Sort(by)
	due := l.token == token && (last-l.noticed > noteEvery/2 || !slices.Equal(by, l.deniers))
	last = max(last, l.noticed)
	l.mu.Unlock()
	if !due {
		return nil
	}
	if err := a.cfg.Log.Disown(ctx, lane, token, now-last, by); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.noticed, l.deniers = last, by
	}
	return nil
}
