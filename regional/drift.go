package regional

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// audits is what came of a lane's audits with somebody.
type audits struct {
	at     int64
	keys   int      // that the last one compared
	behind uint64   // hits that it found lacking here
	worst  Compared // the key that lacks most
	all    uint64   // keys compared since the start
	ahead  uint64   // hits that are believed here alone, since the start

	lost map[deltasync.Key]uint64 // by how much keys were ahead, of those that were; mostLost at most

	near, any int // places in lane.order that the next sample begins at
}

// mostLost bounds audits.lost. While it is full other keys' losses are not counted: a
// region that lost so much shows in the figure as it is.
const mostLost = 256

// loses counts what a key is ahead by, so far as it was not when it was last compared:
// what a region has lost each audit finds again, until it leaves the window.
func (s *audits) loses(l *lane, k Compared) bool {
	before, known := s.lost[k.Key]
	if k.Ahead == 0 {
		delete(s.lost, k.Key)
		return false
	}
	if !known && len(s.lost) == mostLost {
		maps.DeleteFunc(s.lost, func(key deltasync.Key, _ uint64) bool { return l.counters[key] == nil })
		if len(s.lost) == mostLost {
			return false
		}
	}
	if s.lost == nil {
		s.lost = map[deltasync.Key]uint64{}
	}
	s.lost[k.Key] = k.Ahead
	s.ahead = crdt.SatAdd(s.ahead, k.Ahead-min(before, k.Ahead))
	return k.Ahead > before
}

// done notes an audit.
func (s *audits) done(now int64, compared []Compared) {
	s.at, s.keys, s.behind, s.worst = now, len(compared), 0, Compared{}
	s.all += uint64(len(compared))
	for _, k := range compared {
		s.behind = crdt.SatAdd(s.behind, k.Behind)
		if k.Behind > 0 && k.Ratio() >= s.worst.Ratio() {
			s.worst = k
		}
	}
}

// Compared is a key of an audit: the hits in its window of one region, or, of one
// that is told by a home, of all others.
type Compared struct {
	Key      deltasync.Key `json:"key,string"`
	Limit    uint64        `json:"limit"`
	Believed uint64        `json:"believed"` // here
	Counted  uint64        `json:"counted"`  // as the region says
	Behind   uint64        `json:"behind"`   // counted there and not believed here, slice by slice
	Ahead    uint64        `json:"ahead"`    // and the reverse
}

// Ratio is how far behind a key is, as a part of its limit.
func (k *Compared) Ratio() float64 {
	if k.Limit == 0 {
		return 0
	}
	return float64(k.Behind) / float64(k.Limit)
}

// compare compares the slices from one on to another; both lists ascend.
func (k *Compared) compare(believed, counted []crdt.Cell, from, to crdt.Slice) {
	add := func(here, there crdt.Cell) {
		lacks, more := there.Less(here), here.Less(there)
		k.Believed, k.Counted = crdt.SatAdd(k.Believed, here.Net()), crdt.SatAdd(k.Counted, there.Net())
		k.Behind = crdt.SatAdd(k.Behind, crdt.SatAdd(lacks.Charges, lacks.Refunds))
		k.Ahead = crdt.SatAdd(k.Ahead, crdt.SatAdd(more.Charges, more.Refunds))
	}
	for _, there := range counted {
		if there.Slice >= from && there.Slice <= to && !there.Zero() {
			add(cellOf(believed, there.Slice), there)
		}
	}
	for _, here := range believed {
		if here.Slice >= from && here.Slice <= to && cellOf(counted, here.Slice).Zero() {
			add(here, crdt.Cell{})
		}
	}
}

// cellOf is the cell of a slice in an ascending list.
func cellOf(cells []crdt.Cell, s crdt.Slice) crdt.Cell {
	i, has := slices.BinarySearchFunc(cells, s, func(c crdt.Cell, s crdt.Slice) int { return cmp.Compare(c.Slice, s) })
	if !has {
		return crdt.Cell{}
	}
	return cells[i]
}

// Drift is what was found of a region by the audits of late, or, of the own one,
// with its store.
type Drift struct {
	Region   string     `json:"region"`
	Audited  time.Time  `json:"audited"` // the last time
	Keys     int        `json:"keys"`    // that were compared
	Behind   uint64     `json:"behind"`  // hits of the region that were not believed here
	Ratio    float64    `json:"ratio"`   // of the worst key, as a part of its limit
	Worst    []Compared `json:"worst"`   // the worst key of each lane, if it is behind
	Compared uint64     `json:"compared_total"`
	Ahead    uint64     `json:"ahead_total"` // hits that were believed here and are unknown there, each loss once
}

// auditKept is how long the last audit of a lane counts: all have had a turn by
// then. Of who has not answered since nothing is known.
func (a *Aggregator) auditKept() int64 {
	return int64(max(10*AuditEvery, 2*AuditEvery*time.Duration(len(a.lanes))))
}

// Drift is what the last audits found: of each other region, and of this one.
func (a *Aggregator) Drift(now time.Time) []Drift {
	t := a.clock.At(now)
	out := make([]Drift, len(a.cfg.Peers)+1)
	for j, peer := range a.cfg.Peers {
		out[j].Region = peer
	}
	out[len(a.cfg.Peers)].Region = a.cfg.Region
	for _, l := range a.lanes {
		l.mu.Lock()
		for j := range l.peers {
			out[j].add(&l.peers[j].audits, t, a.auditKept())
		}
		out[len(l.peers)].add(&l.audits, t, a.auditKept())
		l.mu.Unlock()
	}
	for i := range out {
		slices.SortStableFunc(out[i].Worst, func(x, y Compared) int { return cmp.Compare(y.Ratio(), x.Ratio()) })
	}
	return out
}

func (d *Drift) add(s *audits, now, kept int64) {
	d.Compared += s.all
	d.Ahead = crdt.SatAdd(d.Ahead, s.ahead)
	if s.at == 0 || passed(s.at, now, kept) {
		return
	}
	if at := time.Unix(0, s.at).UTC(); at.After(d.Audited) {
		d.Audited = at
	}
	d.Keys += s.keys
	d.Behind = crdt.SatAdd(d.Behind, s.behind)
	if s.worst.Behind > 0 {
		d.Ratio = max(d.Ratio, s.worst.Ratio())
		d.Worst = append(d.Worst, s.worst)
	}
}
