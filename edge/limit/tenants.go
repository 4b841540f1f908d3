package limit

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
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
			v.Rates[i] = rate.times(m)
		}
		r.variants = append(r.variants, &v)
	}
}

// multipliable reports a multiplier that makes a limit too large.
func (c *compiler) multipliable(path string, r *Rate, m float64) {
	widest := r
	if r.Open != nil {
		widest = r.Open
	}
	top, most, unit := widest.Ceiling, float64(maxLimit), "2^53"
	switch {
	case r.Bucket():
		top, most, unit = max(widest.brim, r.Drain.Refill), MaxUnits, "10^13"
	case r.Algorithm == SlidingLog:
		most, unit = MaxLog, strconv.Itoa(MaxLog)+", the longest log"
	}
	if float64(top)*m > most {
		c.problem(path, "E195", "a smaller limit, or multiplier", "%d times %v is above %s", top, m, unit)
	}
}

// times is the rate with its limit multiplied, to the nearest whole number, and
// with it what refills it. It counts in the same counters: what is counted is
// judged by another limit.
func (r *Rate) times(m float64) *Rate {
	if r.PerRequest {
		return r
	}
	multiply := func(x uint64) uint64 { return uint64(math.Round(float64(x) * m)) }
	scaled := *r
	scaled.limits = &limits{}
	scaled.Limit, scaled.Ceiling, scaled.Near = multiply(r.Limit), multiply(r.Ceiling), multiply(r.Near)
	if r.Bucket() {
		scaled.Drain.Refill, scaled.Drain.Per = r.Drain.times(m)
		scaled.Drain.Floor = multiply(r.Drain.Floor)
		scaled.admitUpTo(multiply(r.brim))
	}
	scaled.withheld = nil
	for _, w := range r.withheld {
		scaled.withheld = append(scaled.withheld, multiply(w))
	}
	if r.Open != nil {
		scaled.Open = r.Open.times(m)
	}
	return &scaled
}

// times is what drains, multiplied. Half of 5 a second is 25 in 10 seconds: up
// to three digits of a fraction are exact.
func (d Drain) times(m float64) (refill uint64, per time.Duration) {
	exact := float64(d.Refill) * m
	refill, per = uint64(math.Round(exact)), d.Per
	for k := 1.0; k <= 1000; k *= 10 {
		longer := d.Per * time.Duration(k)
		if longer > MaxWindow || exact*k > MaxUnits {
			break
		}
		whole := math.Round(exact * k)
		refill, per = uint64(whole), longer
		if math.Abs(exact*k-whole) < 1e-6 {
			break
		}
	}
	return max(refill, 1), per
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
