// Package limitertest has a limiter for tests of surfaces: one process, one
// map, every count exact, decided with the real algorithms of edge/limit.
package limitertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// ErrNoRules is what Ready says before rules are set.
var ErrNoRules = errors.New("no rules are loaded yet")

// Limiter decides from an in-memory map. It is safe for concurrent use.
type Limiter struct {
	set    atomic.Pointer[limit.Set]
	checks atomic.Int64

	mu    sync.Mutex // guards cells
	cells map[string][]crdt.Cell
}

// New returns a limiter with the rules of docs; without docs it has none, and
// is not ready.
func New(tb testing.TB, docs ...limit.Document) *Limiter {
	tb.Helper()
	l := &Limiter{cells: map[string][]crdt.Cell{}}
	if len(docs) > 0 {
		l.SetRules(tb, docs...)
	}
	return l
}

// SetRules replaces the rules; counts are kept.
func (l *Limiter) SetRules(tb testing.TB, docs ...limit.Document) {
	tb.Helper()
	set, problems := limit.Compile(docs...)
	for _, ps := range problems {
		if len(ps) > 0 {
			tb.Fatalf("rules of the test: %v", ps)
		}
	}
	l.set.Store(set)
}

// DropRules leaves the limiter without rules, as before it had any.
func (l *Limiter) DropRules() { l.set.Store(nil) }

// Rules are the rules set last.
func (l *Limiter) Rules() *limit.Set { return l.set.Load() }

// Ready is ErrNoRules until rules are set.
func (l *Limiter) Ready() error {
	if l.set.Load() == nil {
		return ErrNoRules
	}
	return nil
}

// Checks is how often Check was called, peeks included.
func (l *Limiter) Checks() int64 { return l.checks.Load() }

// Charged is the cost charged to the whole limiter and not yet out of reach.
func (l *Limiter) Charged() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum uint64
	for _, cells := range l.cells {
		for _, c := range cells {
			sum += c.Charges
		}
	}
	return sum
}

// row is one rate that was asked.
type row struct {
	state limit.State
	cost  uint64
	used  uint64
	key   string
	slice crdt.Slice
}

// Check decides: all rates must pass, and nothing is charged if one denies. A
// shadow rule is charged and never denies.
func (l *Limiter) Check(now time.Time, req *limit.Request) limit.Decision {
	l.checks.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now.UnixNano()
	var rows []row
	best := -1
	d := limit.Decision{Allowed: true}
	rules := req.Rules()
	for _, rule := range rules {
		if rule.Deny && rule.Mode == limit.Enforce {
			return limit.Decision{Rule: rule, Zone: limit.ZoneHard}
		}
	}
	for _, rule := range rules {
		if rule.Allow && d.Rule == nil {
			d.Rule, d.Zone = rule, limit.ZoneNormal
		}
		key, ok := rule.AppendKey(append(req.Scratch(), rule.Namespace+"\x00"+rule.Name+"\x00"...), req)
		req.KeepScratch(key)
		if !ok {
			continue
		}
		for _, rate := range rule.Rates {
			rows = append(rows, l.ask(rule, rate, string(key)+"\x00"+rate.Name, rule.CostOf(req), at))
			last := len(rows) - 1
			if best < 0 || rank(&rows[last]) > rank(&rows[best]) ||
				rank(&rows[last]) == rank(&rows[best]) && tighter(&rows[last], &rows[best]) {
				best = last
			}
		}
	}
	if best < 0 {
		return d
	}
	b := &rows[best]
	allowed := rank(b) < rankDeny
	for i := range rows {
		if allowed && !req.Peek {
			l.charge(&rows[i])
		}
		if req.Details {
			req.States = append(req.States, rows[i].state)
		}
	}
	d = limit.Decision{
		Allowed: allowed, Zone: zoneOf(b), Rule: b.state.Rule, Rate: b.state.Rate, Cost: b.cost,
		Limit: b.state.Rate.Limit, Remaining: b.state.Remaining,
		Basis: limit.Basis{Local: b.used, Age: -1, Regions: 1},
	}
	if !d.Allowed {
		d.RetryAfter = b.state.RetryAfter
	}
	return d
}

func (l *Limiter) ask(rule *limit.Rule, rate *limit.Rate, key string, cost uint64, at int64) row {
	cells, reach := l.cells[key], rate.Reach(at)
	for len(cells) > 0 && cells[0].Slice < reach {
		cells = cells[1:]
	}
	l.cells[key] = cells
	level := rate.Used(cells, limit.Carry{}, at)
	r := row{
		state: limit.State{Rule: rule, Rate: rate, Denied: cost > rate.Room(level)},
		cost:  cost, used: rate.Rounded(level), key: key, slice: rate.SliceAt(at),
	}
	r.state.Remaining = crdt.SatSub(rate.Limit, r.used)
	if r.state.Denied {
		r.state.RetryAfter = rate.RetryAfter(cells, limit.Carry{}, cost, at)
	}
	return r
}

func (l *Limiter) charge(r *row) {
	r.state.Remaining = crdt.SatSub(r.state.Remaining, r.cost)
	cells := l.cells[r.key]
	if n := len(cells); n > 0 && cells[n-1].Slice == r.slice {
		cells[n-1].Charges = crdt.SatAdd(cells[n-1].Charges, r.cost)
		return
	}
	l.cells[r.key] = append(cells, crdt.Cell{Slice: r.slice, Charges: r.cost})
}

const (
	rankPass = iota
	rankShadow
	rankDeny
)

// rank orders what a row says: a denial decides, then what a shadow rule would
// have denied.
func rank(r *row) int {
	switch {
	case !r.state.Denied:
		return rankPass
	case r.state.Rule.Mode == limit.Shadow:
		return rankShadow
	default:
		return rankDeny
	}
}

// tighter says that of two rows of equal rank r decides: the longer wait, else
// the smaller part of its limit left.
func tighter(r, than *row) bool {
	if r.state.Denied {
		return r.state.RetryAfter > than.state.RetryAfter
	}
	return float64(r.state.Remaining)*float64(than.state.Rate.Limit) < float64(than.state.Remaining)*float64(r.state.Rate.Limit)
}

func zoneOf(r *row) limit.Zone {
	switch {
	case rank(r) == rankDeny:
		return limit.ZoneHard
	case rank(r) == rankShadow:
		return limit.ZoneShadow
	case r.used+r.cost > r.state.Rate.Limit:
		return limit.ZoneSoft
	default:
		return limit.ZoneNormal
	}
}
