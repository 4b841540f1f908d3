package limit

import (
	"maps"
	"slices"
	"strconv"

	"github.com/spillgate/spillgate/crdt"
)

// TenantSpec is what a tenant, or a tier of tenants, has more or less of.
type TenantSpec struct {
	Multiply float64 // the limits of rules that name the tenant in tier_from
}

const (
	minMultiply = 0.001
	maxMultiply = 1_000_000
	// maxMultipliers bounds the different multipliers of a document: each
	// rule that reads them is compiled once for each.
	maxMultipliers = 16
)

// tenants reads the document's multipliers: the different ones in order, and
// which of them each tenant has.
func (c *compiler) tenants(doc *Document) {
	c.multipliers, c.ns.tenants = nil, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(doc.Tenants)) {
		m, path := doc.Tenants[name].Multiply, "tenants."+name
		if !(m >= minMultiply && m <= maxMultiply) { // nor NaN
			c.problem(path+".multiply", "E191", "0.001 to 1000000", "%v is out of range", m)
			continue
		}
		at := slices.Index(c.multipliers, m)
		if at < 0 {
			if at = len(c.multipliers); at == maxMultipliers {
				c.problem(path+".multiply", "E192", "make tiers of them", "%v is one multiplier too many; there are at most %d", m, maxMultipliers)
				continue
			}
			c.multipliers = append(c.multipliers, m)
		}
		c.ns.tenants[name] = at
	}
}

// tiers compiles a rule's variants, one for each multiplier.
func (c *compiler) tiers(path string, spec *RuleSpec, r *Rule) {
	if spec.TierFrom == "" {
		return
	}
	if len(c.doc.Tenants) == 0 {
		c.problem(path+".tier_from", "E193", "such as: tenants: {gold: {multiply: 10}}", "the document has no tenants to multiply for")
	}
	if len(r.Rates) == 0 {
		c.problem(path+".tier_from", "E194", "leave it out", "a rule without rates has no limit to multiply")
	}
	r.tierFrom = c.sources(path+".tier_from", spec.TierFrom)
	for _, m := range c.multipliers {
		v := *r
		v.tierFrom, v.variants = nil, nil
		v.Rates = make([]*Rate, len(r.Rates))
		for i, rate := range r.Rates {
			if !rate.PerRequest {
				c.multipliable(path+".tier_from", rate, m)
			}
			v.Rates[i] = rate.times(decimal(m))
		}
		r.variants = append(r.variants, &v)
	}
}

// multipliable reports a multiplier that makes a limit too large, or nothing of
// it, or a refill that is no number of units in a time.
func (c *compiler) multipliable(path string, r *Rate, m float64) {
	widest := r
	if r.Open != nil {
		widest = r.Open
	}
	most, unit := uint64(maxLimit), "2^53"
	switch {
	case r.Bucket():
		most, unit = MaxUnits, "10^13"
	case r.Algorithm == SlidingLog:
		most, unit = MaxLog, strconv.Itoa(MaxLog)+", the longest log"
	}
	by, capacity := decimal(m), r.Limit-r.Drain.Floor
	limit, floor := by.of(r.Limit), by.of(r.Drain.Floor)
	if crdt.SatAdd(widest.parts.margin.on(limit-floor), floor) > most {
		top := crdt.SatAdd(widest.parts.margin.on(capacity), r.Drain.Floor)
		c.problem(path, "E195", "a smaller limit, or multiplier", "%d times %v is above %s", top, m, unit)
		return
	}
	if capacity > 0 && limit == floor {
		c.problem(path, "E196", "a larger limit, or multiplier; a rule with deny: true shuts somebody out", "%d times %v rounds to 0: %s would admit nothing", capacity, m, r.Name)
		return
	}
	if !r.Bucket() {
		return
	}
	if _, _, exact := r.Drain.times(by); !exact {
		c.problem(path, "E197", "a multiplier of fewer digits", "%d in %v times %v is no whole number of units, up to 10^13 in at most 366d", r.Drain.Refill, r.Drain.Per, m)
	}
}

// times is the rate with its limit multiplied, to the nearest whole number, and
// with it what refills it; what is named in percent is taken from that. It counts
// in the same counters: what is counted is judged by another limit.
func (r *Rate) times(m ratio) *Rate {
	if r.PerRequest {
		return r
	}
	scaled := *r
	scaled.limits, scaled.by = &limits{}, m
	if r.ruled == nil {
		scaled.ruled = r
	}
	scaled.Limit = m.of(r.Limit)
	if r.Bucket() {
		scaled.Drain.Refill, scaled.Drain.Per, _ = r.Drain.times(m)
		scaled.Drain.Floor = m.of(r.Drain.Floor)
	}
	if r.Open != nil {
		scaled.Open = r.Open.times(m)
	}
	scaled.apportion() // by the margin of that, too
	return &scaled
}

// For is the rule as it holds for the request's tenant. Each variant has
// an Epoch of its own, so that an allowance that was made for one tenant is
// never spent by another: where two share a counter, or one changes its tier,
// the count is judged anew.
func (r *Rule) For(req *Request) *Rule {
	if r.tierFrom == nil {
		return r
	}
	if i, ok := req.ns.tenants[req.first(r.tierFrom)]; ok {
		return r.variants[i]
	}
	return r
}
