package limit

import (
	"maps"
	"math"
	"slices"
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
			if float64(rate.Ceiling)*m > maxLimit {
				c.problem(path+".tier_from", "E195", "a smaller limit, or multiplier", "%d times %v is above 2^53", rate.Ceiling, m)
			}
			if top := max(rate.brim, rate.Drain.Refill); rate.Bucket() && float64(top)*m > MaxUnits {
				c.problem(path+".tier_from", "E195", "a smaller bucket, or multiplier", "%d times %v is above 10^13", top, m)
			}
			if rate.Algorithm == SlidingLog && float64(rate.Ceiling)*m > MaxLog {
				c.problem(path+".tier_from", "E195", "algorithm: sub_windows", "a log of %d times %v hits a key; at most %d are remembered", rate.Ceiling, m, MaxLog)
			}
			v.Rates[i] = rate.times(m)
		}
		r.variants = append(r.variants, &v)
	}
}

// times is the rate with its limit multiplied, to the nearest whole number, and
// with it what refills it. It counts in the same counters: what is counted is
// judged by another limit.
func (r *Rate) times(m float64) *Rate {
	multiply := func(x uint64) uint64 { return uint64(math.Round(float64(x) * m)) }
	scaled := *r
	scaled.Limit, scaled.Ceiling = multiply(r.Limit), multiply(r.Ceiling)
	if r.Bucket() {
		scaled.Drain.Refill, scaled.Drain.Per = r.Drain.times(m)
		scaled.Drain.Floor = multiply(r.Drain.Floor)
		scaled.admitUpTo(multiply(r.brim))
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

// forTenant is the rule as it holds for the request's tenant. Each variant has
// an Epoch of its own, so that an allowance that was made for one tenant is
// never spent by another: where two share a counter, or one changes its tier,
// the count is judged anew.
func (r *Rule) forTenant(req *Request) *Rule {
	if r.tierFrom == nil {
		return r
	}
	if i, ok := req.ns.tenants[req.first(r.tierFrom)]; ok {
		return r.variants[i]
	}
	return r
}
