package limit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Charging says what a request that one rate denies is charged to.
type Charging uint8

const (
	ChargeAllOrNothing Charging = iota + 1 // to none
	ChargeEach                             // to all, as Envoy's reference does
)

var chargingNames = map[string]Charging{"all_or_nothing": ChargeAllOrNothing, "each": ChargeEach}

func (c Charging) String() string { return nameOf(chargingNames, c) }

// CostSpec is what a request costs.
type CostSpec struct {
	Default    uint64            // 1
	ByRoute    map[string]uint64 // "POST /api/search": 5; the most specific route counts
	FromHeader string            // a header that trusted callers name the cost in
	Max        uint64            // what a caller names counts as no more; 0: as what was named
}

// given says that the rule says something of costs.
func (c *CostSpec) given() bool {
	return c.Default != 0 || len(c.ByRoute) > 0 || c.FromHeader != "" || c.Max != 0
}

// tooMuch is a cost above all limits, and what those above it count as: all that
// adds up costs stays far from overflowing, and none of them is admitted anyhow.
const tooMuch = maxLimit + 1

// Penalty is how long whoever was denied stays so, on top of the limit.
type Penalty struct {
	For        time.Duration // from the denial on; trying again meanwhile makes it no longer
	UntilReset bool          // or until nothing is used any more
}

// Punishes says that who is denied stays so for a while.
func (r *Rule) Punishes() bool { return r.Penalty != Penalty{} }

// LongestTerm is for how long a PoP may keep a key out everywhere by a penalty: a day,
// or sixteen windows of the rate. Then it is heeded again when the key has used half of
// its limit, or after as much time. Else a PoP that lies could keep keys out for good.
func LongestTerm(window time.Duration) time.Duration { return max(24*time.Hour, 16*window) }

var headerForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func (c *compiler) cost(path string, spec *CostSpec, r *Rule) {
	bounded := func(path string, cost uint64) {
		switch {
		case cost > maxLimit:
			c.problem(path, "E171", "count in a larger unit, such as kilobytes", "%d is above 2^53", cost)
		case cost > r.maxCost:
			c.problem(path, "E171", "lower it, or raise max", "%d is above max, %d", cost, r.maxCost)
		}
	}
	bounded(path+".default", r.cost)
	bounded(path+".max", spec.Max)
	if h := spec.FromHeader; h != "" && !headerForm.MatchString(h) {
		c.problem(path+".from_header", "E173", "such as X-Request-Cost", "%.80q is not the name of a header", h)
	} else if h != "" {
		r.costFrom = []int{c.slot(headerPrefix + h)}
	}
	for _, route := range slices.Sorted(maps.Keys(spec.ByRoute)) {
		at := path + ".by_route." + route
		bounded(at, spec.ByRoute[route])
		_, of := routeOf(route)
		c.escaped(Problem{Path: at}, of)
		c.templated(Problem{Path: at}, of)
	}
	r.byRoute = routeCosts(spec.ByRoute, func(route string, err error) {
		c.problem(path+".by_route."+route, "E172", `such as "POST /api/search": 5`, "%v", err)
	})
}

// CostOf is what the request costs under this rule: what the caller named, or
// the header of a trusted one, else the cost of its route, else the rule's
// default. What was named is bounded by the rule, if it says so.
//
// Of a lump each request is bounded, and a rule that charges after the response is asked
// about one of them, as if nothing was named: it is to be charged with none.
func (r *Rule) CostOf(req *Request) uint64 {
	switch {
	case req.Cost == 0 || req.Lump > 0 && r.CountsAfter():
	case req.Lump > 0:
		high, cost := bits.Mul64(r.Bounded(req.Cost/req.Lump), req.Lump)
		if high > 0 {
			return tooMuch
		}
		return min(cost, tooMuch)
	default:
		return r.Bounded(req.Cost)
	}
	if r.costFrom != nil && req.Trusted {
		if text := req.first(r.costFrom); text != "" {
			if cost, ok := wholeNumber(text); ok {
				return min(cost, r.maxCost)
			}
			r.counts.badCosts.Add(1)
		}
	}
	if len(r.byRoute) == 0 {
		return r.cost
	}
	cost := r.routeCost(req, req.attrs[slotPath])
	for _, path := range req.otherPaths {
		cost = max(cost, r.routeCost(req, path))
	}
	return cost
}

// Bounded is what a cost that was named for a request counts as.
func (r *Rule) Bounded(cost uint64) uint64 { return min(cost, r.maxCost) }

// costs are what requests cost where nothing else is said, and at the most; of who may
// name any cost nothing is known.
func (r *Rule) costs() (usual, most uint64) {
	most = r.cost
	for _, route := range r.byRoute {
		most = max(most, route.cost)
	}
	if r.maxCost < tooMuch {
		most = max(most, r.maxCost)
	}
	return r.cost, most
}

// CostOf is what a request that costs so much under its rule costs the rate: one
// where it is requests that count, those that are free included.
func (r *Rate) CostOf(cost uint64) uint64 {
	if r.CountsRequests() {
		return 1
	}
	return cost
}

// CountsRequests says that the rate counts requests, whatever they cost: those
// under way (concurrency), or those just made (min_gap).
func (r *Rate) CountsRequests() bool { return r.PerRequest || r.Lease > 0 }

// wholeNumber reads plain digits, and makes no error: a caller that sends
// something else may not cost more than one that does. A number that is too
// large for its type is the largest one, not nothing.
func wholeNumber(s string) (uint64, bool) {
	if len(s) == 0 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	v, _ := strconv.ParseUint(s, 10, 64)
	return v, true
}

// responsePrefix begins the names of what is known after the response only.
const (
	responsePrefix = "response."
	responseStatus = responsePrefix + "status"
	responseCode   = responsePrefix + "code"

	leastStatus, mostStatus = 100, 599
)

var responseForm = regexp.MustCompile(`^response\.[A-Za-z_][A-Za-z0-9_]*$`)

// countWhen compiles what must hold of the response for a request to be
// charged, and returns its text in the one form that generations go by.
func (c *compiler) countWhen(path, text string, r *Rule) string {
	if text == "" {
		return ""
	}
	misspelt, told := map[string]string{}, len(c.problems)
	defer func() { c.misspelt(path, misspelt, c.problems[told:]) }()
	r.countWhen = c.condition(path, text, func(name string) (Attribute, bool) {
		if strings.HasPrefix(name, responsePrefix) {
			if !responseForm.MatchString(name) {
				return Attribute{}, false
			}
			if meant := nearResponse(name); meant != "" {
				misspelt[name] = meant
			}
			r.asksResponse = true
			return Attribute{slots: []int{c.slot(name)}, Known: true, Number: name == responseStatus, Least: leastStatus, Most: mostStatus}, true
		}
		c.use(path, name)
		a, ok := c.attribute(name)
		r.countsByPath = r.countsByPath || slices.Contains(a.slots, slotPath)
		return a, ok
	})
	if told, ok := r.countWhen.(Canonical); ok {
		return told.Canonical()
	}
	return text
}

// condition compiles an expression; nil where that fails, which it reports.
func (c *compiler) condition(path, text string, lookup Lookup) Condition {
	if c.opts.Conditions == nil {
		c.problem(path, "E168", "limit.Options{Conditions: when.Compile} reads them, by edge/limit/when; edge.LocalWith takes these options", "conditions are not read here")
		return nil
	}
	condition, err := c.opts.Conditions(text, lookup)
	if err != nil {
		p := Problem{Path: path, Code: "E167", Detail: err.Error()}
		if bad := (*ConditionError)(nil); errors.As(err, &bad) {
			p.Detail, p.Hint, p.Line, p.Column = bad.Detail, bad.Hint, bad.Line, bad.Column
		}
		p.Hint = cmp.Or(p.Hint, "see edge/limit/when for what an expression may say")
		c.report(p)
		return nil
	}
	c.comparisons(path, condition)
	return condition
}

// CountsAfter says that the rule charges after the response only: a request is
// decided as a peek, and charged when Counts says so.
func (r *Rule) CountsAfter() bool { return r.countWhen != nil }

// Counts says whether a request is to be charged, once what is known of the
// response was Set: "response.status" and others of that form. Rules without
// count_when charge all. It is enough that it does by one reading of the request's path.
// Where its condition fails it does not hold, and the failure is counted.
func (r *Rule) Counts(req *Request) bool {
	if r.countWhen == nil {
		return true
	}
	ok, err := r.countWhen.Holds(req)
	for i := 0; r.countsByPath && i < len(req.otherPaths) && (!ok || err != nil); i++ {
		req.swapPath(i)
		ok, err = r.countWhen.Holds(req)
		req.swapPath(i)
	}
	if err != nil {
		r.counts.failures.Add(1)
		return false
	}
	return ok
}

// MaxDelay is the longest that a request may be told to wait for room: whoever
// holds it back keeps a connection open that long.
const MaxDelay = time.Minute

// minGapName is what the rate of min_gap is called.
const minGapName = "min_gap"

// minGap is the rate that keeps requests apart: a leaky bucket of one.
func (c *compiler) minGap(path string, spec *RuleSpec, r *Rule) {
	if spec.MinGap == 0 {
		return
	}
	if spec.MinGap < time.Millisecond || spec.MinGap > MaxWindow/2 {
		c.problem(path, "E216", "1ms to 183d, such as 200ms", "a gap of %v is out of range", spec.MinGap)
		return
	}
	alone := *spec
	alone.Margin, alone.Cost = MarginSpec{}, CostSpec{} // it counts requests
	rate := c.rate(path, &alone, &RateSpec{Name: minGapName, Algorithm: LeakyBucket.String(), Capacity: 1, Outflow: Flow{1, spec.MinGap}})
	rate.PerRequest = true
	if rate.Consistency == Adaptive { // of one request nobody can have a share
		rate.Consistency = Loose
		if rate.OnPartition == PartitionShare {
			rate.OnPartition = PartitionOpen
		}
	}
	r.Rates = append(r.Rates, rate)
}

// overLimit reads what happens at the limit, and near it.
func (c *compiler) overLimit(path string, spec *RuleSpec, r *Rule) {
	r.Charge = enum(c, chargingNames, word{path + ".charge", spec.Charge}, word{"defaults.charge", c.doc.Defaults.Charge}, word{"", ChargeAllOrNothing.String()})
	for _, rate := range r.Rates {
		if r.Charge == ChargeEach && (rate.Bucket() || rate.Lease > 0) {
			c.problem(path+".charge", "E218", ChargeAllOrNothing.String(), "%s would be charged with what it denies: nobody gives that back, and whoever goes on asking would never get in", rate.Name)
			break
		}
	}
	r.Drop = enum(c, dropNames, word{path + ".drop", spec.Drop}, word{"", DropHard.String()})
	if r.Drop == DropProbabilistic && spec.Margin.widest() == 0 {
		c.problem(path+".drop", "E210", "such as margin: {soft: 20%}", "requests are dropped at random in a margin, and there is none")
	}
	if p := spec.NearLimitPercent; p != 0 && !(p > 0 && p <= 100) { // nor NaN
		c.problem(path+".near_limit", "E209", "above 0% to 100%, such as 80%", "%v%% is out of range", p)
	} else if p != 0 {
		for _, rate := range r.Rates {
			if !rate.PerRequest {
				rate.divide(func(of *parts) { of.near = positive(p) })
			}
		}
	}
	r.MaxDelay = spec.MaxDelay
	if d := spec.MaxDelay; d < 0 || d > MaxDelay {
		c.problem(path+".max_delay", "E217", fmt.Sprintf("at most %v, such as 500ms", MaxDelay), "requests cannot wait for %v", d)
	} else if d > 0 && r.Mode == Shadow {
		c.problem(path+".max_delay", "E217", "mode: enforce", "a shadow rule holds no request back")
	} else if i := slices.IndexFunc(r.Rates, func(rate *Rate) bool { return !rate.Bucket() }); d > 0 && i >= 0 {
		// All that wait for a window to move on would come out of it together.
		c.problem(path+".max_delay", "E217", "rates of token_bucket or leaky_bucket", "requests cannot wait for room in %s, a %s", r.Rates[i].Name, r.Rates[i].Algorithm)
	}
	if i := slices.IndexFunc(r.Rates, func(rate *Rate) bool { return rate.Queue }); spec.MaxDelay > 0 && i >= 0 {
		c.problem(path+".max_delay", "E217", "the queue's max_wait alone", "requests wait in the queue of %s already, and would wait for room in it besides", r.Rates[i].Name)
	}
	r.Penalty = spec.Penalty
	for _, rate := range r.Rates {
		rate.delay(r.MaxDelay)
		rate.punish(r.Penalty)
	}
	switch p := spec.Penalty; {
	case p.For != 0 && p.UntilReset:
		c.problem(path+".penalty", "E211", "a time, or until_reset", "a penalty has one end")
	case p.For != 0 && (p.For < time.Millisecond || p.For > MaxWindow):
		c.problem(path+".penalty", "E211", "1ms to 366d, such as 5m, or until_reset", "a penalty of %v is out of range", p.For)
	}
}

// delay sets how long requests may wait for room.
func (r *Rate) delay(most time.Duration) {
	for ; r != nil; r = r.Open {
		r.MaxDelay = most
	}
}

// punish sets how long a penalty may last: until a reset, as long as what is
// used may count.
func (r *Rate) punish(p Penalty) {
	r.Penalty = p.For
	if p.UntilReset {
		r.Penalty = max(r.Lingers(), r.Hold) + time.Second
	}
	if r.Open != nil {
		r.Open.Penalty = r.Penalty
	}
}

// needRates refuses what means nothing without rates.
func (c *compiler) needRates(path string, spec *RuleSpec) {
	for _, w := range []struct {
		name  string
		given bool
	}{
		{"margin", spec.Margin != MarginSpec{}},
		{"cost", spec.Cost.given()},
		{"charge", spec.Charge != ""},
		{"drop", spec.Drop != ""},
		{"near_limit", spec.NearLimitPercent != 0},
		{"penalty", spec.Penalty != Penalty{}},
		{"classes", spec.Classes.From != "" || len(spec.Classes.Order)+len(spec.Classes.Reserve) > 0},
		{"count_when", spec.CountWhen != ""},
		{"min_gap", spec.MinGap != 0},
		{"max_delay", spec.MaxDelay != 0},
	} {
		if w.given {
			c.problem(path+"."+w.name, "E215", "leave it out", "a rule that %s has no limits, and so no %s", map[bool]string{true: "allows", false: "denies"}[spec.Allow], w.name)
		}
	}
}
