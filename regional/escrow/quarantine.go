package escrow

import (
	"maps"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// doubts are why rights of keys that are drawn to this region may have been granted by others, times
// by Config.Boot.
type doubts struct {
	noted    []notedRegion            // the log's Origin.Regions
	trust    time.Duration            // when it was trusted last; -Forever: never
	disowned time.Duration            // when a peer last did not name this region, as far as the log tells; likewise
	noticed  time.Duration            // and as it stands there
	answered map[string]bool          // peers that said so in this lane since it was taken
	denied   map[string]time.Duration // peers whose owner of it does not name this region, and when it last said so
	departed []string                 // those of them that are no peers any more
	deniers  []string                 // all of these, as they stand in the log
}

// notedRegion is a NotedRegion by Config.Boot.
type notedRegion struct {
	name  string
	named bool
	since time.Duration
}

// note takes in whose keys the lane had, and has; l.mu is held.
func (l *lane) note(o *Origin, peers []string, now time.Duration) {
	l.noted, l.departed, l.deniers = nil, nil, o.Deniers
	for _, r := range o.Regions {
		l.noted = append(l.noted, notedRegion{r.Name, r.Named, now - min(r.Since, Forever)})
	}
	l.trust, l.disowned, l.noticed = -Forever, -Forever, -Forever
	if o.Trusted > 0 {
		l.trust = now - min(o.Trusted, Forever)
	}
	if o.Disowned > 0 {
		l.noticed = now - min(o.Disowned, Forever)
	}
	if l.noticed > l.trust {
		l.disowned = l.noticed + noteEvery // it may have gone on until it was to be noted again
	}
	clear(l.answered)
	for _, name := range o.Deniers {
		switch _, said := l.denied[name]; {
		case l.noticed <= l.trust:
		case !slices.Contains(peers, name): // it may have gone on until it was taken away, and heard that
			l.departed = append(l.departed, name)
			l.disowned = max(l.disowned, l.namedSince(name)+hearsWithin)
		case said:
		case l.namedSince(name) > l.noticed: // it was away meanwhile, and granted until then
			l.disowned = max(l.disowned, l.namedSince(name))
		default:
			l.deny(name, l.noticed)
		}
	}
	maps.DeleteFunc(l.denied, func(_ string, at time.Duration) bool { return at <= l.trust })
}

// namedSince is since when a region is named, or is not; l.mu is held.
func (l *lane) namedSince(name string) time.Duration {
	for _, r := range l.noted {
		if r.name == name {
			return r.since
		}
	}
	return -Forever
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
	return !d.regional && a.doubted(l, d, lasts, now)
}

// doubted says that another region may have granted rights in a key that are held yet.
func (a *Authority) doubted(l *lane, d *deposit, lasts, now time.Duration) bool {
	return a.waits(l, now) || now-a.elsewhere(l, d.key) <= spare(a.cfg.Lease+lasts)
}

// outlived says that a holder has rights by the log alone, of which it is not known how long nobody has
// renewed them, and that another region may have granted them meanwhile: they are renewed no more. Of
// a region whose authorities are gone the edges go on asking for what they have.
func (a *Authority) outlived(l *lane, d *deposit, k *deltasync.Claim, now time.Duration) bool {
	h := d.find(k.Holder)
	return h != nil && h.read && h.Out() > 0 && a.doubted(l, d, max(h.Lasts, k.Lasts), now)
}

// elsewhere is when another region may last have granted rights in a key that is drawn to this
// one, by Config.Boot.
func (a *Authority) elsewhere(l *lane, key deltasync.Key) time.Duration {
	own := draw(a.cfg.Region, key)
	return a.lastElsewhere(l, func(region string) bool { return draw(region, key) >= own })
}

// lastElsewhere is that of keys that were drawn to some of the regions which are not named any more.
// Such a one hears that only after a while, and renews until then what its edges hold.
func (a *Authority) lastElsewhere(l *lane, drawn func(region string) bool) time.Duration {
	last := l.disowned
	if heard := time.Duration(a.peers.disowned.Load()); heard > l.trust {
		last = max(last, heard)
	}
	for _, r := range l.noted {
		if !r.named && r.since > l.trust && drawn(r.name) {
			last = max(last, r.since+hearsWithin)
		}
	}
	return last
}

// hearsWithin is how long it takes at the most until an authority that runs, and is not cut off,
// hears that it is not named.
const hearsWithin = 10 * time.Second

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
			last := max(l.since, a.lastElsewhere(l, func(string) bool { return true }))
			most = max(most, last+spare(a.cfg.Lease+lasts)-now)
			if l.denies() { // that begins with the peer's word
				most = max(most, spare(a.cfg.Lease+lasts))
			}
			if a.waits(l, now) {
				most = max(most, time.Second)
			}
		}
		l.mu.Unlock()
	}
	return most
}
