package edge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

var mixedSeeds = flag.Uint64("mixed.seeds", 60, "seeds of TestMixedAgainstModel")

// mixedWorld is a node, its model, and what they are asked.
type mixedWorld struct {
	t      *testing.T
	n      *Node
	rnd    *rand.Rand
	now    int64
	counts map[string]*mixedCount
	open   bool // the capacity signal
	given  []mixedReceipt
}

// mixedReceipt is one charge that may be given back.
type mixedReceipt struct {
	limit.Charge
	of *mixedCount
}

// rules are two or three that apply together, with rates of mixed algorithms.
func (w *mixedWorld) rules() (rules []limit.RuleSpec) {
	chance := func(in int) bool { return w.rnd.IntN(in) == 0 }
	ms := func(most int) time.Duration { return time.Duration(1+w.rnd.IntN(most)) * time.Millisecond }
	for i := range 2 + w.rnd.IntN(2) {
		r := limit.RuleSpec{Name: fmt.Sprint("r", i), Group: fmt.Sprint("g", i)}
		if i > 0 {
			r.Key = []string{"user"}
		}
		from, to := 0, 11 // of the kinds below
		switch w.rnd.IntN(4) {
		case 0: // windows only
			r.Charge, to = "each", 6
		case 1: // buckets only
			r.MaxDelay, from = ms(2000), 7
		}
		logs := false
		for k := range 1 + w.rnd.IntN(4) {
			per, most := []time.Duration{time.Second, 7 * time.Second, time.Minute}[w.rnd.IntN(3)], 4+w.rnd.Uint64N(40)
			flow := limit.Flow{Units: 1 + w.rnd.Uint64N(20), Per: per}
			spec := []limit.RateSpec{
				{Limit: most, Per: per, Algorithm: "fixed_window"},
				{Limit: most, Per: per, Algorithm: "sliding_window"},
				{Limit: most, Per: per},
				{Limit: most, Per: per, Slices: 1 + w.rnd.IntN(9), Oldest: "full"},
				{Limit: most, Per: per, Algorithm: "sliding_log"},
				{Limit: most, Per: per, Algorithm: "fixed_window", Align: "first_hit"},
				{Algorithm: "concurrency", Limit: most, Lease: per},
				{Algorithm: "token_bucket", Capacity: most, Refill: flow},
				{Algorithm: "token_bucket", Capacity: most, Refill: flow, Initial: most + w.rnd.Uint64N(20)},
				{Algorithm: "leaky_bucket", Capacity: most, Outflow: flow},
				{Algorithm: "leaky_bucket", Capacity: most, Outflow: flow, Queue: r.MaxDelay == 0},
			}[from+w.rnd.IntN(to-from)]
			spec.Name = fmt.Sprint("q", k)
			logs = logs || spec.Algorithm == "sliding_log"
			r.Rates = append(r.Rates, spec)
		}
		if chance(5) && r.MaxDelay == 0 {
			r.Mode = "shadow"
		} else if chance(5) {
			r.Penalty.For = ms(3000)
		}
		if chance(3) {
			r.Margin.SoftPercent = 20
		}
		if chance(3) && !logs { // a log forgets, by the ceiling of who charges it, hits that a higher one would count
			r.Margin.Elastic = limit.ElasticSpec{UpToPercent: 60, While: "capacity.api < 50%"}
		}
		if chance(4) {
			r.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 30}}
		}
		if chance(5) && r.Charge == "" {
			r.MinGap = ms(100)
		}
		rules = append(rules, r)
	}
	return rules
}

// mixedAsk is one request.
type mixedAsk struct {
	user, class string
	cost        int64
}

func (a *mixedAsk) costOf(rate *limit.Rate) (cost, need int64) {
	cost = a.cost
	if rate.CountsRequests() {
		cost = 1
	}
	if a.class == "low" {
		return cost, cost + int64(rate.Withheld(0))
	}
	return cost, cost
}

func (w *mixedWorld) each(a *mixedAsk, do func(*limit.Rule, *limit.Rate, *mixedCount)) {
	for _, rule := range w.n.Rules().Rules() {
		for _, rate := range rule.Rates {
			key := fmt.Sprint(rate.Generation, a.user)
			if rule.Name == "r0" { // its counters are everybody's
				key = fmt.Sprint(rate.Generation)
			}
			if w.counts[key] == nil {
				w.counts[key] = &mixedCount{slices: map[int64]int64{}, anchor: -1 << 62}
			}
			do(rule, rate, w.counts[key])
		}
	}
}

// judge says whether a rate denies, or by how much it delays; and whether it
// always will deny.
func (w *mixedWorld) judge(a *mixedAsk, rule *limit.Rule, rate *limit.Rate, m *mixedCount, now int64) (over, always bool, delay time.Duration) {
	used, unit := m.used(rate, now)
	_, need := a.costOf(rate)
	if rate.Open != nil && w.open && used+(need-int64(rate.Ceiling))*unit > 0 {
		rate = rate.Open
	}
	always = need > int64(rate.Ceiling-rate.Drain.Floor)
	short, refill := used+(need-int64(rate.Ceiling))*unit, int64(rate.Drain.Refill)
	switch {
	case now < m.barred:
		return true, always, 0
	case short > 0 && rule.MaxDelay > 0 && !always:
		delay = time.Duration((short + refill - 1) / refill)
	case short > 0:
		return true, always, 0
	}
	if delay > rule.MaxDelay {
		return true, always, 0
	}
	if rate.Queue {
		delay = max(delay, time.Duration((used+refill-1)/refill))
	}
	return false, always, delay
}

// mixedVerdict is what the model says to a request.
type mixedVerdict struct {
	denied bool
	delay  time.Duration
	vague  bool // RetryAfter is of a penalty or a delay, or nothing helps: how long it takes is not looked at
}

func (w *mixedWorld) verdict(a *mixedAsk, now int64) (v mixedVerdict) {
	w.each(a, func(rule *limit.Rule, rate *limit.Rate, m *mixedCount) {
		if rule.Mode == limit.Enforce {
			over, always, delay := w.judge(a, rule, rate, m, now)
			v.denied, v.delay = v.denied || over, max(v.delay, delay)
			v.vague = v.vague || always || rule.MaxDelay > 0 || over && rule.Penalty.For > 0
		}
	})
	if v.denied {
		v.delay = 0
	}
	return v
}

// ask has node and model decide one request, and compares.
func (w *mixedWorld) ask(step int) {
	rnd, at := w.rnd, time.Unix(0, w.now)
	a := &mixedAsk{fmt.Sprint(rnd.IntN(3)), []string{"low", "high"}[rnd.IntN(2)], 1 + rnd.Int64N(1+rnd.Int64N(6))}
	req := w.n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", a.user)
	req.Set("class", a.class)
	req.Cost, req.Receipt, req.Peek, req.Details = uint64(a.cost), rnd.IntN(2) == 0, rnd.IntN(12) == 0, rnd.IntN(8) == 0
	want, report := w.verdict(a, w.now), rnd.IntN(40) == 0
	var d limit.Decision
	switch {
	case report:
		w.n.Report(at, req)
	case rnd.IntN(4) == 0:
		d = w.n.CheckBatch(at, []*limit.Request{req}, nil)[0]
	default:
		d = w.n.Check(at, req)
	}
	if !report && (d.Allowed == want.denied || d.Delay != want.delay) {
		w.t.Fatalf("step %d at %d, %+v, peek %t: allowed %t after %v, want %+v (%+v)", step, w.now, *a, req.Peek, d.Allowed, d.Delay, want, d)
	}
	spared, barred := w.spared(a), map[*limit.Rule]bool{}
	w.each(a, func(rule *limit.Rule, _ *limit.Rate, m *mixedCount) {
		barred[rule] = barred[rule] || w.now < m.barred
	})
	w.each(a, func(rule *limit.Rule, rate *limit.Rate, m *mixedCount) {
		if p := int64(rule.Penalty.For); p > 0 && w.offends(a, rule, rate, m) && !barred[rule] && !req.Peek && !report {
			m.barred = w.now + p
		}
		if report && rate.CountsRequests() {
			return // it is no request more
		}
		cost, need := a.costOf(rate)
		over, _, _ := w.judge(a, rule, rate, m, w.now)
		each := rule.Charge == limit.ChargeEach && !(over && need > cost) // what is left is kept for higher classes
		if report || !req.Peek && (!want.denied && !spared[rule] || each) {
			m.charge(rate, cost, w.now)
		}
		for _, c := range req.Charges {
			if c.Rule == rule && c.Rate.Policy == rate.Policy {
				w.keep(mixedReceipt{c, m})
			}
		}
	})
	then := w.now + int64(d.RetryAfter) // with what a denial was charged
	if before, after := w.verdict(a, then-1), w.verdict(a, then); !report && want.denied && !want.vague && (!before.denied || after.denied) {
		w.t.Fatalf("step %d at %d, %+v: retry after %v; denied a nanosecond before %t, then %t (%+v) by %s", step, w.now, *a, d.RetryAfter, before.denied, after.denied, d, d.Rate.Policy)
	}
}

// spared are the shadow rules that would deny the request, and are charged nothing.
func (w *mixedWorld) spared(a *mixedAsk) map[*limit.Rule]bool {
	rules := map[*limit.Rule]bool{}
	w.each(a, func(rule *limit.Rule, rate *limit.Rate, m *mixedCount) {
		if over, _, _ := w.judge(a, rule, rate, m, w.now); over && rule.Mode == limit.Shadow {
			rules[rule] = true
		}
	})
	return rules
}

// offends says that a rate denies the request for its own limit, and for no reserve.
func (w *mixedWorld) offends(a *mixedAsk, rule *limit.Rule, rate *limit.Rate, m *mixedCount) bool {
	high := *a
	high.class = "high"
	over, _, _ := w.judge(a, rule, rate, m, w.now)
	itself, _, _ := w.judge(&high, rule, rate, m, w.now)
	return over && itself && rule.Mode == limit.Enforce
}

// keep notes a charge that may be given back later, of a rate that counts by
// slices, as it is the slice that a receipt names. Others are exact at once
// only, so they are given back at once, now and then.
func (w *mixedWorld) keep(c mixedReceipt) {
	if !c.Rate.Exact() {
		w.given = append(w.given, c)
		return
	}
	if w.rnd.IntN(3) > 0 || c.Rate.Drain.Floor > 0 || c.Rate.PerRequest {
		return
	}
	back := 1 + w.rnd.Uint64N(c.Cost)
	w.n.Refund(time.Unix(0, w.now), []limit.Charge{c.Charge}, back)
	switch m := c.of; {
	case c.Rate.Bucket():
		m.level -= int64(back) * int64(c.Rate.Drain.Per)
	case c.Rate.Algorithm == limit.FirstHit:
		if m.count -= int64(back); m.count == 0 {
			m.anchor = -int64(c.Rate.Window) // what was given back begins no window
		}
	default:
		m.log[len(m.log)-1].cost -= int64(back)
	}
}

// giveBack refunds all or a part of what was charged some time ago, or renews it.
func (w *mixedWorld) giveBack() {
	if len(w.given) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.given))
	c, at := &w.given[i], time.Unix(0, w.now)
	part, counts := min(1+w.rnd.Uint64N(3), c.Cost), c.Slice >= c.Rate.Reach(w.now)
	was, charges := int64(c.Slice), []limit.Charge{c.Charge}
	switch {
	case c.Cost == 0:
	case c.Rate.Lease > 0 && w.rnd.IntN(2) == 0:
		w.n.Renew(at, charges)
		part = c.Cost
		c.of.charge(c.Rate, int64(c.Cost), w.now)
	case c.Rate.Lease > 0:
		w.n.Refund(at, charges, 0)
		part = c.Cost
	default:
		w.n.Refund(at, charges, part)
	}
	if counts {
		c.of.slices[was] -= int64(part)
	}
	c.Charge = charges[0]
}

// TestMixedAgainstModel has one node decide by rules of mixed algorithms and
// margins, with penalties, classes, delays, refunds, reports, flushes and
// sweeps, and compares every decision with a model that adds everything up.
func TestMixedAgainstModel(t *testing.T) {
	alone.Mark(t)
	for seed := range *mixedSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := &mixedWorld{t: t, rnd: rand.New(rand.NewPCG(seed, 11)), now: start.UnixNano(), counts: map[string]*mixedCount{}}
			rules := w.rules()
			w.n = newNode(t, Config{}, rules...)
			for step := 0; step < 2000 && w.now < start.Add(50*time.Minute).UnixNano(); step++ { // the signal is good for an hour
				switch at := time.Unix(0, w.now); w.rnd.IntN(100) {
				case 0:
					w.now += w.rnd.Int64N(int64(90 * time.Second))
				case 1:
					settleFrames(w.n, at)
				case 2:
					w.n.Tick(at)
				case 3, 4, 5:
					w.giveBack()
				case 6:
					w.open = !w.open
					_ = w.n.SetCapacity(at, "api", map[bool]float64{true: 0.2, false: 0.9}[w.open], time.Hour)
				case 7:
					w.n.SetRules(compile(t, rules...)) // nothing changed: nothing is forgotten
				default:
					w.now += w.rnd.Int64N(int64(300 * time.Millisecond))
				}
				w.ask(step)
			}
		})
	}
}
