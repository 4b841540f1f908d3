package regional

import (
	"slices"
	"sync"
	"time"
)

// What an operator got wrong shows in who is heard, and in who is not: a peer that is
// misspelt never answers, and of two aggregators with one name each hears the other.
// Both go on all the same, and are told once.

const (
	// silentFor is how long no export to another region is answered before that is
	// told: longer than it takes to restart there what there is.
	silentFor = 15 * time.Second
	// namesakeFor is how long a namesake is heard: one that was just replaced is not.
	namesakeFor = 2 * time.Second
)

// watch is what was told.
type watch struct {
	mu       sync.Mutex // guards what follows
	silent   []string   // regions
	namesake bool
	errs     map[string]error // why the last export to a region was lost
}

// failed takes note why an export was lost.
func (w *watch) failed(peer string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.errs == nil {
		w.errs = map[string]error{}
	}
	w.errs[peer] = err
}

// why an export to a region was last lost.
func (w *watch) why(peer string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs[peer]
}

// unheard is the other regions that have answered no export for silentFor, though
// some are sent: who has given his lanes away hears of nobody, and misses nobody.
// Those that refuse all for their lanes are not: see misfit.go.
func (a *Aggregator) unheard(now int64) (peers []string) {
	misfits := a.standing(now)
	for j, peer := range a.cfg.Peers {
		if hasOtherLanes(misfits, peer) {
			continue
		}
		last, answered := a.stats.lastReply(peer)
		for _, l := range a.lanes {
			l.mu.Lock()
			p := &l.peers[j]
			unheard := p.fails > 0 && passed(p.failing, now, int64(silentFor)) && !passed(p.sent, now, int64(max(silentFor/3, 2*beat*a.cfg.Interval, 2*a.cfg.Timeout)))
			unheard = unheard && (!answered || passed(last, now, int64(silentFor)))
			l.mu.Unlock()
			if unheard {
				peers = append(peers, peer)
				break
			}
		}
	}
	return peers
}

// tellWatch logs what began, and what ended.
func (a *Aggregator) tellWatch(now time.Time) {
	a.tellMisfits(a.clock.At(now))
	silent, namesake := a.unheard(a.clock.At(now)), a.hasNamesake()
	w := &a.watch
	w.mu.Lock()
	was, hadNamesake := w.silent, w.namesake
	w.silent, w.namesake = silent, namesake
	w.mu.Unlock()
	for _, peer := range silent {
		if slices.Contains(was, peer) {
			continue
		}
		text := "another region answers no more"
		if _, answered := a.stats.lastReply(peer); !answered {
			text = "another region has never answered: is it spelt as its own aggregators have it (peers), and do they run?"
		}
		a.cfg.Logger.Warn(text, "peer", peer, "for", silentFor, "err", w.why(peer))
	}
	for _, peer := range was {
		last, answered := a.stats.lastReply(peer)
		if !slices.Contains(silent, peer) && answered && !passed(last, a.clock.At(now), int64(silentFor)) {
			a.cfg.Logger.Info("another region answers again", "peer", peer)
		}
	}
	if namesake && !hadNamesake {
		a.cfg.Logger.Error("another aggregator of this region has the same name, so that one of the two serves no lane: give each a name of its own (--name)",
			"region", a.cfg.Region, "name", a.cfg.Name)
	}
}

// hasNamesake says that another aggregator of the region goes by our name.
func (a *Aggregator) hasNamesake() bool {
	a.share.mu.Lock()
	defer a.share.mu.Unlock()
	return a.share.members.namesake()
}
