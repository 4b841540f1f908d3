package escrow

import (
	"time"

	"github.com/spillgate/spillgate/sync"
)

// meetFor is how long the first answer of a peer is waited for, from when a lane is taken where
// none was before: who does not answer by then goes on as it was.
const meetFor = 5 * time.Second

// notedRegion is a NotedRegion by Config.Boot.
type notedRegion struct {
	name  string
	named bool
	since time.Duration
}

// note takes in whose keys the lane had, and has; l.mu is held.
func (l *lane) note(o *Origin, now time.Duration) {
	l.noted = nil
	for _, r := range o.Regions {
		l.noted = append(l.noted, notedRegion{r.Name, r.Named, now - min(r.Since, Forever)})
	}
	l.trust = -Forever
	if o.Trusted > 0 {
		l.trust = now - min(o.Trusted, Forever)
	}
}

// lacks says that this authority, or one before it, may have granted rights of which the log
// says nothing: it was not there, or lost something.
func (a *Authority) lacks(l *lane, lasts time.Duration, now time.Duration) bool {
	return now-l.since <= spare(a.cfg.Lease+lasts)
}

// quarantined says that rights may be held of which nothing is known here: as the log lacks
// them, or another region granted them, which drew other homes, or was the home itself.
func (a *Authority) quarantined(l *lane, d *deposit, lasts time.Duration, now time.Duration) bool {
	if a.lacks(l, lasts, now) {
		return true
	}
	return !d.regional && (a.waits(now) || now-a.elsewhere(l, d.key) <= spare(a.cfg.Lease+lasts))
}

// elsewhere is when another region may last have granted rights in a key that is drawn to this
// one, by Config.Boot.
func (a *Authority) elsewhere(l *lane, key deltasync.Key) time.Duration {
	last, own := time.Duration(a.unnamed.Load()), draw(a.cfg.Region, key)
	for _, r := range l.noted {
		if !r.named && draw(r.name, key) >= own {
			last = max(last, r.since)
		}
	}
	if last <= l.trust {
		return -Forever
	}
	return last
}

// waits says that a peer has not answered yet, which may know that this region was none of its.
func (a *Authority) waits(now time.Duration) bool {
	return a.strangers.Load() > 0 && now-time.Duration(a.began.Load()) <= meetFor
}

// NamedBy is to be called with each answer of a peer: for how long that region has named this one
// as its peer; 0: it does not; Forever: it knows of no time when it did not. Until then that one,
// and its edges, took another for the authority over keys that are drawn to this one.
func (a *Authority) NamedBy(peer string, ago time.Duration) {
	a.meet.Lock()
	if !a.met[peer] {
		a.met[peer] = true
		a.strangers.Add(-1)
	}
	a.meet.Unlock()
	if ago >= Forever {
		return
	}
	now := a.cfg.Boot()
	for at := int64(now - ago); ; {
		last := a.unnamed.Load()
		if at <= last {
			return
		}
		if !a.unnamed.CompareAndSwap(last, at) {
			continue
		}
		if lasts := a.longest(); at-last > int64(newsAfter) && now-time.Duration(at) <= spare(a.cfg.Lease+lasts) {
			a.cfg.Logger.Warn("another region did not name this one among its peers, so that both might have granted all rights of a strict limit: until a lease and the limit's window after that no more are granted here of limits of all regions that are drawn to this one; whoever knows that it granted none in its place ends that with `aggregator rights trust`",
				"peer", peer, "ago", ago.Truncate(time.Second), "for", (spare(a.cfg.Lease+lasts) - ago).Truncate(time.Second))
		}
		return
	}
}

// newsAfter is how much later a peer has to have named this region than was known to be news:
// answers take now longer and now less long.
const newsAfter = time.Minute

// Naming is for how long this region has named a peer; 0: the log of the lane knows of no time
// when it did not.
func (a *Authority) Naming(lane int, peer string) time.Duration {
	l := &a.lanes[lane]
	l.mu.Lock()
	defer l.mu.Unlock()
	now := a.cfg.Boot()
	for _, r := range l.noted {
		if r.name == peer && r.named && l.token != 0 && now-r.since < Forever {
			return max(1, now-r.since)
		}
	}
	return 0
}

// forgetPeers has peers waited for again, when a lane is taken next.
func (a *Authority) forgetPeers() {
	if a.began.Swap(0) == 0 {
		return
	}
	a.meet.Lock()
	defer a.meet.Unlock()
	clear(a.met)
	a.strangers.Store(int32(len(a.cfg.Peers)))
}

// longest is how long what is spent may count in a strict limit: a day where no rules are known.
func (a *Authority) longest() time.Duration {
	if d := a.cfg.Longest(); d > 0 {
		return d
	}
	return leastBound
}

// Withheld is for how long from now nothing is granted yet of the strict limit that lasts longest,
// be it of some keys.
func (a *Authority) Withheld() (most time.Duration) {
	now, lasts := a.cfg.Boot(), a.longest()
	for i := range a.lanes {
		l := &a.lanes[i]
		l.mu.Lock()
		if l.token != 0 {
			last := time.Duration(a.unnamed.Load())
			for _, r := range l.noted {
				if !r.named {
					last = max(last, r.since)
				}
			}
			if last <= l.trust {
				last = -Forever
			}
			most = max(most, max(l.since, last)+spare(a.cfg.Lease+lasts)-now)
		}
		l.mu.Unlock()
	}
	if a.waits(now) {
		most = max(most, time.Duration(a.began.Load())+meetFor-now)
	}
	return most
}
