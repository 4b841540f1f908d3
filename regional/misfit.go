package regional

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Misfit is a setting in which this region and another do not fit together. Both go
// on all the same, each for itself, which nobody would see: so both say it, whichever
// of the two is mistaken.
type Misfit struct {
	Region  string
	Setting Setting
	Lanes   int  // that it has, with SettingLanes
	Unnamed bool // with SettingPeers: it does not name this region, rather than this one it
}

// Setting is what to mend, as degraded tells it.
type Setting string

const (
	SettingLanes  Setting = "region_lanes"
	SettingSecret Setting = "region_secret"
	SettingPeers  Setting = "region_peers"
)

// settings are all of them.
var settings = []Setting{SettingLanes, SettingSecret, SettingPeers}

// String says what is wrong of the other region, and what to do.
func (m Misfit) String() string {
	switch m.Setting {
	case SettingLanes:
		return "it has another number of lanes (" + strconv.Itoa(m.Lanes) + ") than this one, so that neither takes anything of the other: set lanes alike at every edge and aggregator of all regions (--lanes)"
	case SettingSecret:
		return "its edges have another secret than those here, so that each region counts alone: give all edges of all regions one secret (SPILLGATE_SECRET)"
	case SettingPeers:
		if m.Unnamed {
			return "it does not name this region among its peers, so that it tells nothing of what it counts, and both might grant all rights of a strict limit: this one grants none of those that are drawn to it until it is named, and a lease and a window after: name this region there (--peers), or take that one out of the peers here"
		}
		fallthrough
	default:
		return "it tells this one what it counts, and is no peer here, so that it hears late, or not at all, what is counted here: name it among the peers (--peers), or take this region out of the peers there"
	}
}

const (
	// misfitFor is how long a misfit stands after it was last seen, or for some beats.
	misfitFor = 5 * time.Second
	// misfitEvery is how often one that lasts, or comes and goes, is logged.
	misfitEvery = time.Hour
	// maxMisfits is more than there are; regions that are no peers may have any name.
	maxMisfits = 2 * maxPeers
)

// misfits are those that were seen.
type misfits struct {
	mu   sync.Mutex // guards what follows
	seen []*sighting
}

type sighting struct {
	Misfit
	at     int64 // last
	logged int64 // last; 0: never
	stands bool  // that it began was logged, and not that it ended
}

// see takes note of a misfit. Where there are too many it is not told.
func (m *misfits) see(now int64, it Misfit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		if s.Region == it.Region && s.Setting == it.Setting {
			s.at, s.Lanes, s.Unnamed = now, it.Lanes, it.Unnamed
			return
		}
	}
	if len(m.seen) < maxMisfits {
		m.seen = append(m.seen, &sighting{Misfit: it, at: now})
	}
}

// misfitFor is how long a misfit stands.
func (a *Aggregator) misfitFor() int64 { return int64(max(misfitFor, 3*beat*a.cfg.Interval)) }

// standing is the settings in which others do not fit now, by region.
func (a *Aggregator) standing(now int64) (found []Misfit) {
	a.misfits.mu.Lock()
	defer a.misfits.mu.Unlock()
	for _, s := range a.misfits.seen {
		if !passed(s.at, now, a.misfitFor()) {
			found = append(found, s.Misfit)
		}
	}
	slices.SortFunc(found, func(x, y Misfit) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.Setting, y.Setting))
	})
	return found
}

// tellMisfits logs which began, now and then that they last, and which ended.
func (a *Aggregator) tellMisfits(now int64) {
	var began, ended []Misfit
	m := &a.misfits
	m.mu.Lock()
	m.seen = slices.DeleteFunc(m.seen, func(s *sighting) bool {
		stands := !passed(s.at, now, a.misfitFor())
		quiet := s.logged == 0 || passed(s.logged, now, int64(misfitEvery))
		switch {
		case stands && quiet:
			s.logged, s.stands = now, true
			began = append(began, s.Misfit)
		case !stands && s.stands:
			s.stands = false
			ended = append(ended, s.Misfit)
		}
		return !stands && quiet
	})
	m.mu.Unlock()
	for _, it := range began {
		more := []any{"peer", it.Region, "setting", string(it.Setting)}
		if it.Setting == SettingLanes {
			more = append(more, "lanes", a.cfg.Lanes, "peer_lanes", it.Lanes)
		}
		a.cfg.Logger.Warn("another region does not fit together with this one: "+it.String(), more...)
	}
	for _, it := range ended {
		a.cfg.Logger.Info("no misfit with another region is seen any more", "peer", it.Region, "setting", string(it.Setting))
	}
}

// otherLanes takes note that a region has other lanes.
func (a *Aggregator) otherLanes(now int64, region string, lanes int) {
	a.misfits.see(now, Misfit{Region: region, Setting: SettingLanes, Lanes: lanes})
}

// compare takes note of what does not fit in another region's frame that is taken.
func (a *Aggregator) compare(now int64, up *deltasync.Up, otherSecret bool) {
	if otherSecret {
		a.misfits.see(now, Misfit{Region: up.Region, Setting: SettingSecret})
	}
	if !slices.Contains(a.cfg.Peers, up.Region) {
		a.misfits.see(now, Misfit{Region: up.Region, Setting: SettingPeers})
	}
}

// noteMistake takes note of what another region's reply says of our settings.
func (a *Aggregator) noteMistake(now int64, peer string, down *deltasync.Down) {
	switch {
	case down.Mistake == deltasync.MistakeLanes && down.Lanes != a.cfg.Lanes: // else it is of the build before, and means what was mended
		a.otherLanes(now, peer, down.Lanes)
	case down.Mistake == deltasync.MistakeSecret:
		a.misfits.see(now, Misfit{Region: peer, Setting: SettingSecret})
	case down.Mistake == deltasync.MistakePeers:
		a.misfits.see(now, Misfit{Region: peer, Setting: SettingPeers, Unnamed: true})
	}
}

// hasOtherLanes says that a region does: why it answers nothing is known.
func hasOtherLanes(found []Misfit, region string) bool {
	return slices.ContainsFunc(found, func(m Misfit) bool { return m.Region == region && m.Setting == SettingLanes })
}
