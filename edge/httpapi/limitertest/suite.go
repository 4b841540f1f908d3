package limitertest

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Tested is a limiter that Suite can test; it is httpapi.Limiter without what
// surfaces alone need.
type Tested interface {
	Rules() *limit.Set
	Check(now time.Time, req *limit.Request) limit.Decision
	Refund(now time.Time, charges []limit.Charge, cost uint64)
	Renew(now time.Time, charges []limit.Charge)
	Report(now time.Time, req *limit.Request) limit.Decision
	GiveBack(now time.Time, req *limit.Request)
	Answered(now time.Time, req *limit.Request)
}

// start is the start of an hour, and of every slice that the suite's rates
// have.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Suite tests what surfaces rely on. newLimiter makes a limiter with the rules
// of a document, and nothing counted.
func Suite(t *testing.T, newLimiter func(testing.TB, limit.Document) Tested) {
	tens := map[string]limit.RateSpec{
		"fixed_window":   {Limit: 10, Per: time.Minute, Algorithm: "fixed_window"},
		"first_hit":      {Limit: 10, Per: time.Minute, Algorithm: "fixed_window", Align: "first_hit"},
		"sliding_window": {Limit: 10, Per: time.Minute, Algorithm: "sliding_window"},
		"sub_windows":    {Limit: 10, Per: time.Minute},
		"sliding_log":    {Limit: 10, Per: time.Minute, Algorithm: "sliding_log"},
		"token_bucket":   {Capacity: 10, Refill: limit.Flow{Units: 10, Per: time.Minute}, Algorithm: "token_bucket"},
		"leaky_bucket":   {Capacity: 10, Outflow: limit.Flow{Units: 10, Per: time.Minute}, Algorithm: "leaky_bucket"},
	}
	for name, rate := range tens {
		t.Run(name, func(t *testing.T) {
			rule := limit.RuleSpec{Name: "r", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}
			a := asker{t, newLimiter(t, limit.Document{Namespace: "suite", Defaults: limit.Defaults{Scope: "edge"}, Rules: []limit.RuleSpec{rule}})}
			a.takesTen()
			a.getsBack()
		})
	}
	t.Run("queue", func(t *testing.T) { queue(asker{t, newLimiter(t, document(queueRule))}) })
	t.Run("leases", func(t *testing.T) { leases(asker{t, newLimiter(t, document(slotsRule))}) })
	t.Run("responses", func(t *testing.T) { responses(asker{t, newLimiter(t, document(loginRule))}) })
	t.Run("near", func(t *testing.T) { near(asker{t, newLimiter(t, document(nearRule))}) })
	t.Run("readings", func(t *testing.T) { readings(asker{t, newLimiter(t, document(pathRule, userRule))}) })
	t.Run("classes", func(t *testing.T) { classes(asker{t, newLimiter(t, document(classRule))}) })
}

var (
	queueRule = limit.RuleSpec{Name: "queue", Key: []string{"user"}, Rates: []limit.RateSpec{{
		Algorithm: "leaky_bucket", Capacity: 3, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}}}
	slotsRule = limit.RuleSpec{Name: "slots", Key: []string{"user"}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 2, Lease: 20 * time.Second}}}
	loginRule = limit.RuleSpec{Name: "logins", Key: []string{"user"}, CountWhen: `attr("response.status") == "401"`, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}
	nearRule  = limit.RuleSpec{Name: "near", Key: []string{"user"}, NearLimitPercent: 80, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	pathRule  = limit.RuleSpec{Name: "paths", Key: []string{"user", "path"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	userRule  = limit.RuleSpec{Name: "all", Group: "all", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 21, Per: time.Hour}}}
	classRule = limit.RuleSpec{Name: "classes", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}},
		Classes: limit.ClassesSpec{From: "class", Order: []string{"batch", "normal"}, Reserve: map[string]float64{"normal": 30}}}
)

func document(rules ...limit.RuleSpec) limit.Document {
	return limit.Document{Namespace: "suite", Defaults: limit.Defaults{Scope: "edge"}, Rules: rules}
}

// asker asks a limiter for the user u.
type asker struct {
	t       *testing.T
	limiter Tested
}

func (a asker) request(cost uint64, attributes ...string) *limit.Request {
	req := a.limiter.Rules().Only().NewRequest()
	a.t.Cleanup(req.Release)
	req.Set("user", "u")
	for i := 0; i < len(attributes); i += 2 {
		req.Set(attributes[i], attributes[i+1])
	}
	req.Cost, req.Receipt = cost, true
	return req
}

func (a asker) check(now time.Time, cost uint64, attributes ...string) (limit.Decision, []limit.Charge) {
	req := a.request(cost, attributes...)
	return a.limiter.Check(now, req), slices.Clone(req.Charges)
}

// want checks what becomes of a request.
func (a asker) want(now time.Time, cost uint64, allowed bool, attributes ...string) []limit.Charge {
	a.t.Helper()
	d, charges := a.check(now, cost, attributes...)
	if d.Allowed != allowed {
		a.t.Fatalf("a cost of %d %v after the start: %+v, want allowed %v", cost, now.Sub(start), d, allowed)
	}
	if !d.Allowed && (d.RetryAfter <= 0 || d.Zone != limit.ZoneHard || len(charges) > 0) {
		a.t.Fatalf("denied with %+v and charges %v", d, charges)
	}
	return charges
}

// takesTen: ten pass, no eleventh, and two minutes later ten again.
func (a asker) takesTen() {
	a.t.Helper()
	d, charges := a.check(start, 4)
	if !d.Allowed || d.Remaining != 6 || d.Limit != 10 || d.Cost != 4 || len(charges) != 1 || charges[0].Cost != 4 {
		a.t.Fatalf("four of ten: %+v, charged %+v", d, charges)
	}
	a.want(start, 7, false)
	a.want(start, 6, true)
	d, _ = a.check(start, 1)
	if d.Allowed || d.RetryAfter > 2*time.Minute {
		a.t.Fatalf("an eleventh: %+v, want it denied for two minutes at the most", d)
	}
	a.want(start.Add(d.RetryAfter), 1, true)
	a.want(start.Add(4*time.Minute), 10, true)
}

// getsBack: what is given back may be spent again, by receipt and without one,
// and what is reported counts whatever room there is.
func (a asker) getsBack() {
	a.t.Helper()
	now := start.Add(8 * time.Minute)
	charges := a.want(now, 10, true)
	a.limiter.Refund(now, charges, 3)
	a.want(now, 4, false)
	a.want(now, 3, true)
	a.limiter.Refund(now, charges, 0)
	a.limiter.Refund(now, charges, 0) // once
	a.want(now, 8, false)
	a.want(now, 7, true)
	a.limiter.GiveBack(now, a.request(2))
	a.want(now, 3, false)
	a.want(now, 2, true)
	a.limiter.GiveBack(now, a.request(1000))
	if d := a.limiter.Report(now, a.request(12)); !d.Allowed || d.Remaining != 0 || d.Cost != 12 {
		a.t.Fatalf("a report of 12: %+v, want it recorded with nothing left", d)
	}
	a.want(now, 1, false)
	a.limiter.GiveBack(now, a.request(4))
	a.want(now, 2, true)
}

// queue: each waits for those before it, and what is given back makes room.
func queue(a asker) {
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		if d, _ := a.check(start, 1); !d.Allowed || d.Delay != want {
			a.t.Fatalf("request %d: %+v, want a delay of %v", i, d, want)
		}
	}
	a.want(start, 1, false)
	if d, _ := a.check(start.Add(1500*time.Millisecond), 1); !d.Allowed || d.Delay != 1500*time.Millisecond {
		a.t.Fatalf("after 1.5 s: %+v, want what is left of the three to be waited for", d)
	}
}

// leases: each request takes a slot, whatever it costs; slots come back when
// they are given back, and when a lease is over; one that is renewed does not.
func leases(a asker) {
	first, second := a.want(start, 1, true), a.want(start, 500, true)
	a.want(start, 1, false)
	now := start.Add(10 * time.Second)
	a.limiter.Refund(now, first, 0)
	a.want(now, 1, true) // a dead holder
	for range 3 {
		a.limiter.Renew(now, second)
		now = now.Add(10 * time.Second)
	}
	a.want(now, 1, true)
	a.want(now, 1, false)
	a.limiter.Refund(now, second, 0)
	a.want(now, 1, true)
}

// responses: only those that count are charged, when they are known.
func responses(a asker) {
	for i, step := range []struct {
		status string
		passes bool
	}{{"200", true}, {"401", true}, {"200", true}, {"401", true}, {"200", false}} {
		req := a.request(1)
		d := a.limiter.Check(start, req)
		if d.Allowed != step.passes || len(req.Charges) > 0 {
			a.t.Fatalf("login %d: %+v, charged %v; want allowed %v and nothing charged", i, d, req.Charges, step.passes)
		}
		if d.Allowed {
			req.Set("response.status", step.status)
			a.limiter.Answered(start, req)
		}
	}
}

// near: from 80 % of five on.
func near(a asker) {
	for i, want := range []bool{false, false, false, true, true} {
		if d, _ := a.check(start, 1); !d.Allowed || d.Near != want {
			a.t.Fatalf("request %d: %+v, want near %v", i, d, want)
		}
	}
}

// readings: a path that can be read in several ways counts for each of them, and once for
// what has another key.
func readings(a asker) {
	hostile := func(cost uint64) *limit.Request {
		req := a.request(cost)
		path, others := limit.PathReadings("/a%2Fb/../login")
		req.Set("path", path)
		req.AlsoPaths(others)
		return req
	}
	req := hostile(3)
	if d := a.limiter.Check(start, req); !d.Allowed || len(req.Charges) != 5 { // four paths, and the user
		a.t.Fatalf("%+v, charged %v; want it charged to four paths and the user", d, req.Charges)
	}
	charges := slices.Clone(req.Charges)
	paths := []string{"/a/login", "/login", "/a/b/../login", "/a%2Fb/../login"}
	for _, path := range paths {
		a.want(start, 3, false, "path", path)
	}
	a.limiter.Refund(start, charges, 1)
	for _, path := range paths[1:] {
		a.want(start, 3, true, "path", path)
	}
	if d := a.limiter.Check(start, hostile(1)); d.Allowed {
		a.t.Fatalf("%+v, want it denied, as three of four paths are used up", d)
	}
	a.limiter.GiveBack(start, hostile(2))
	for _, path := range paths[1:] {
		a.want(start, 2, true, "path", path)
	}
	a.want(start, 4, true, "path", "/a/login") // of which 1 was given back, and then all
	if d := a.limiter.Report(start, hostile(1)); !d.Allowed || d.Remaining != 0 {
		a.t.Fatalf("a report: %+v, want nothing left", d)
	}
	a.want(start, 1, false, "path", "/a/login")
	a.want(start, 1, true, "path", "/else") // 21 of the user: 3 - 1 + 9 - 2 + 6 + 4 + 1 + 1
	a.want(start, 1, false, "path", "/else")
}

// classes: the least class leaves what is reserved for those above it.
func classes(a asker) {
	a.want(start, 8, false, "class", "batch")
	a.want(start, 7, true, "class", "batch")
	a.want(start, 1, false, "class", "batch")
	a.want(start, 3, true, "class", "normal")
}
