// Package limitertest has a limiter for tests of surfaces: one process, one
// map, every count exact, decided with the real algorithms of edge/limit. Suite
// is what it and an edge.Node both pass.
//
// What it leaves out: elastic margins stay closed, drop: probabilistic drops
// nothing, nobody is punished, nobody waits for max_delay, and a denied request
// is charged to nothing, whatever charge: and count_denied: say. There is nobody
// else to hear of.
package limitertest

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// ErrNoRules is what Ready says before rules are set.
var ErrNoRules = errors.New("no rules are loaded yet")

// Limiter decides from an in-memory map. It is safe for concurrent use.
type Limiter struct {
	set    atomic.Pointer[limit.Set]
	checks atomic.Int64

	mu       sync.Mutex // guards what follows
	byName   map[string]*counter
	counters []*counter // by limit.Charge.Counter

	Ours bool // what the last GiveBack was told of that
}

// counter is what is counted of one key under one rate.
type counter struct {
	id    uint64
	cells []crdt.Cell // ascending
	exact limit.Exact
}

// New returns a limiter with the rules of docs; without docs it has none, and
// is not ready.
func New(tb testing.TB, docs ...limit.Document) *Limiter {
	tb.Helper()
	l := &Limiter{byName: map[string]*counter{}}
	if len(docs) > 0 {
		l.SetRules(tb, docs...)
	}
	return l
}

// Compile compiles the rules of a test, conditions included.
func Compile(tb testing.TB, docs ...limit.Document) *limit.Set {
	tb.Helper()
	set, problems := limit.Options{Conditions: when.Compile}.Compile(docs...)
	for _, ps := range problems {
		if len(ps) > 0 {
			tb.Fatalf("rules of the test: %v", ps)
		}
	}
	return set
}

// SetRules replaces the rules; counts are kept.
func (l *Limiter) SetRules(tb testing.TB, docs ...limit.Document) {
	tb.Helper()
	l.set.Store(Compile(tb, docs...))
}

// DropRules leaves the limiter without rules, as before it had any.
func (l *Limiter) DropRules() { l.set.Store(nil) }

// Rules are the rules set last.
func (l *Limiter) Rules() *limit.Set { return l.set.Load() }

// Time is now: it has no clock of its own.
func (l *Limiter) Time(now time.Time) time.Time { return now }

// Boot is as long as it is since 1970.
func (l *Limiter) Boot(now time.Time) time.Duration { return time.Duration(now.UnixNano()) }

// Ready is ErrNoRules until rules are set.
func (l *Limiter) Ready() error {
	if l.set.Load() == nil {
		return ErrNoRules
	}
	return nil
}

// Checks is how often Check was called, peeks included.
func (l *Limiter) Checks() int64 { return l.checks.Load() }

// Charged is the cost charged to the whole limiter, what was given back taken
// off, and not yet out of reach.
func (l *Limiter) Charged() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var sum uint64
	for _, c := range l.counters {
		for _, cell := range c.cells {
			sum += cell.Net()
		}
	}
	return sum
}

// row is one rate that was asked.
type row struct {
	state   limit.State
	cost    uint64
	used    uint64
	counter *counter
}

// CheckOrWait is Check: the fake has no rights to wait for.
func (l *Limiter) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	return l.Check(now, req), nil
}

// Check decides: all rates must pass, and nothing is charged if one denies. A
// shadow rule is charged and never denies.
func (l *Limiter) Check(now time.Time, req *limit.Request) limit.Decision {
	l.checks.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now.UnixNano()
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
	}
	rows := l.rows(req, rules, at)
	if len(rows) == 0 {
		return d
	}
	best := &rows[0]
	for i := range rows {
		if r := &rows[i]; rank(r) > rank(best) || rank(r) == rank(best) && tighter(r, best) {
			best = r
		}
	}
	d = best.decision(rank(best) < rankDeny, req.Peek)
	if req.Receipt {
		req.Charges = req.Charges[:0]
	}
	if req.Dates && d.Allowed && !req.Peek {
		req.Spent = l.Boot(now)
	}
	for i := range rows {
		r := &rows[i]
		delay := time.Duration(0)
		if rate := r.state.Rate; d.Allowed && rate.Queue && r.state.Rule.Mode == limit.Enforce {
			delay = rate.Delay(&r.counter.exact, r.counter.cells, limit.Carry{}, at)
			d.Delay = max(d.Delay, delay)
		}
		if d.Allowed && !req.Peek && !r.state.Rule.CountsAfter() {
			l.charge(r, at)
			if r.state.Rate.Queue {
				r.counter.exact.Queued(r.state.Rate, r.cost, at+int64(delay), at)
			}
			if req.Receipt && r.cost > 0 {
				req.Charges = append(req.Charges, limit.Charge{
					Rule: r.state.Rule, Rate: r.state.Rate, Counter: r.counter.id, Slice: r.state.Rate.SliceAt(at), Turn: at + int64(delay), Cost: r.cost,
				})
			}
		}
		if req.Details {
			req.States = append(req.States, r.state)
		}
	}
	d.Remaining = best.state.Remaining
	return d
}

// Explain says how a request stands with every rule of its namespace.
func (l *Limiter) Explain(now time.Time, req *limit.Request) limit.Explanation {
	out := req.Explain()
	req.Peek, req.Details = true, true
	out.Decision = l.Check(now, req)
	req.Readings(func(rule *limit.Rule) {
		key, ok := keyOf(req, rule)
		for i := range out.Rules {
			if f := &out.Rules[i]; ok && f.Of(req, rule) && f.Rates == nil {
				for _, s := range req.States {
					if c := l.byName[key+"\x00"+s.Rate.Name]; s.Rule == rule && c != nil && c.id == s.Counter {
						f.Rates = append(f.Rates, limit.Standing{State: s, Heard: -1})
					}
				}
			}
		}
	})
	return out
}

// decision is what a row says of a request.
func (r *row) decision(allowed, peek bool) limit.Decision {
	rate := r.state.Rate
	d := limit.Decision{
		Allowed: allowed, Zone: zoneOf(r), Rule: r.state.Rule, Rate: rate, Cost: r.cost,
		Limit: rate.Limit, Basis: limit.Basis{Local: r.used, Age: -1, Regions: 1},
	}
	used := r.used
	if allowed && !peek {
		used += r.cost
	}
	d.Near = rate.Near > 0 && used >= rate.Near
	if !allowed {
		d.RetryAfter = r.state.RetryAfter
	}
	return d
}

// rows asks all rates of the rules, with the keys of each reading of the request's path.
func (l *Limiter) rows(req *limit.Request, rules []*limit.Rule, at int64) (rows []row) {
	asked := map[string]bool{}
	req.Readings(func(rule *limit.Rule) {
		key, ok := keyOf(req, rule)
		if !ok || rule.Allow || asked[key] || !slices.Contains(rules, rule) {
			return
		}
		asked[key] = true
		for _, rate := range rule.Rates {
			cost := rate.CostOf(rule.CostOf(req))
			rows = append(rows, l.ask(rule, rate, key+"\x00"+rate.Name, cost, rate.Withheld(rule.ClassOf(req)), at))
		}
	})
	return rows
}

// keyOf is what a rule's counters for the request are named by, before the rate's name.
func keyOf(req *limit.Request, rule *limit.Rule) (key string, ok bool) {
	material, ok := rule.AppendKey(append(req.Scratch(), rule.Namespace+"\x00"+rule.Name+"\x00"...), req)
	req.KeepScratch(material)
	return string(material), ok
}

// KeyName is a hash of the request's key under a rule.
func (l *Limiter) KeyName(rule *limit.Rule, req *limit.Request) (name uint64, ok bool) {
	key, ok := keyOf(req, rule)
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash never fails
	return max(1, h.Sum64()), ok
}

func (l *Limiter) ask(rule *limit.Rule, rate *limit.Rate, key string, cost, withheld uint64, at int64) row {
	c := l.byName[key]
	if c == nil {
		c = &counter{id: uint64(len(l.counters))}
		l.byName[key] = c
		l.counters = append(l.counters, c)
	}
	for len(c.cells) > 0 && c.cells[0].Slice < rate.Reach(at) {
		c.cells = c.cells[1:]
	}
	level := rate.Measure(&c.exact, nil, c.cells, limit.Carry{}, at)
	need := crdt.SatAdd(cost, withheld)
	r := row{
		state: limit.State{Rule: rule, Rate: rate, Counter: c.id, Denied: need > rate.Room(level)},
		cost:  cost, used: rate.Rounded(level), counter: c,
	}
	r.state.Remaining = crdt.SatSub(rate.Limit, r.used)
	if r.state.Denied {
		r.state.RetryAfter = rate.Wait(&c.exact, nil, c.cells, limit.Carry{}, need, at)
	}
	return r
}

func (l *Limiter) charge(r *row, at int64) {
	r.state.Remaining = crdt.SatSub(r.state.Remaining, r.cost)
	r.counter.add(r.state.Rate, r.cost, at)
}

func (c *counter) add(rate *limit.Rate, cost uint64, at int64) {
	slice := rate.SliceAt(at)
	if n := len(c.cells); n == 0 || c.cells[n-1].Slice != slice {
		c.cells = append(c.cells, crdt.Cell{Slice: slice})
	}
	last := &c.cells[len(c.cells)-1]
	last.Charges = crdt.SatAdd(last.Charges, cost)
	if rate.Exact() {
		c.exact.Charge(rate, cost, at)
	}
}

// giveBack takes cost off what a slice was charged, unless it is out of reach.
func (c *counter) giveBack(rate *limit.Rate, cost uint64, slice crdt.Slice, at int64) {
	for i := range c.cells {
		if c.cells[i].Slice != slice || slice < rate.Reach(at) {
			continue
		}
		c.cells[i].Refunds += cost
		if rate.Exact() {
			c.exact.Refund(rate, cost, slice, 0, nil, at)
		}
	}
}

// Asked is of shares, of which it knows none: all of a limit is its own.
func (l *Limiter) Asked(time.Time, *limit.Request) {}

// Refund gives back what a Check charged: cost of each charge, 0 for all.
func (l *Limiter) Refund(now time.Time, charges []limit.Charge, cost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		back := c.Cost
		if cost > 0 {
			back = min(back, cost)
		}
		if counter := l.counters[c.Counter]; c.MayReturn(&counter.exact, counter.cells, limit.Carry{}, now.UnixNano()) {
			counter.exact.Leaves(c, back)
			counter.giveBack(c.Rate, back, c.Slice, now.UnixNano())
		}
		c.Cost -= back
	}
}

// Renew has charges of concurrency limits last for a lease from now.
func (l *Limiter) Renew(now time.Time, charges []limit.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now.UnixNano()
	for i := range charges {
		if c := &charges[i]; c.Rate.Lease > 0 && c.Cost > 0 {
			counter := l.counters[c.Counter]
			counter.giveBack(c.Rate, c.Cost, c.Slice, at)
			counter.add(c.Rate, c.Cost, at)
			c.Slice = c.Rate.SliceAt(at)
		}
	}
}

// Report charges all rates of all rules that apply, whatever room there is.
func (l *Limiter) Report(now time.Time, req *limit.Request) limit.Decision {
	return l.book(now, req, req.Rules())
}

// Answered charges the rules that count what the response was.
func (l *Limiter) Answered(now time.Time, req *limit.Request) {
	l.book(now, req, slices.DeleteFunc(slices.Clone(req.Rules()), func(r *limit.Rule) bool { return !r.CountsAfter() || !r.Counts(req) }))
}

func (l *Limiter) book(now time.Time, req *limit.Request, rules []*limit.Rule) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows(req, rules, now.UnixNano())
	if req.Recorded = false; len(rows) == 0 {
		return limit.Decision{Allowed: true}
	}
	best := &rows[0]
	for i := range rows {
		l.charge(&rows[i], now.UnixNano())
		req.Recorded = req.Recorded || rows[i].cost > 0
		if rows[i].left() < best.left() {
			best = &rows[i]
		}
	}
	d := best.decision(true, false)
	d.Remaining = best.state.Remaining
	return d
}

// GiveBack gives back to all rates of all rules that apply, the oldest first.
func (l *Limiter) GiveBack(now time.Time, req *limit.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Ours, req.Recorded = req.Spent > 0, false
	at := now.UnixNano()
	for _, r := range l.rows(req, req.Rules(), at) {
		left := r.cost
		for _, cell := range r.counter.cells {
			if back := min(cell.Net(), left); back > 0 {
				r.counter.giveBack(r.state.Rate, back, cell.Slice, at)
				left -= back
				req.Recorded = true
			}
		}
	}
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
	return r.left() < than.left()
}

// left is the part of the limit that is left.
func (r *row) left() float64 {
	return float64(r.state.Remaining) / float64(max(1, r.state.Rate.Limit))
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
