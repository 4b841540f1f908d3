package limit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	c.multiplied = nil
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
			c.multipliers, c.multiplied = append(c.multipliers, m), append(c.multiplied, nil)
		}
		c.ns.tenants[name] = at
		c.multiplied[at] = append(c.multiplied[at], name)
	}
	c.ns.multipliers = c.multipliers
}

// Tiers are the document's tenants, and what each multiplies by.
func (ns *Namespace) Tiers() map[string]float64 {
	tiers := map[string]float64{}
	if ns != nil {
		for name, at := range ns.tenants {
			tiers[name] = ns.multipliers[at]
		}
	}
	return tiers
}

// tierNames are those in words.
func (ns *Namespace) tierNames() string {
	const most = 20
	names := slices.Sorted(maps.Keys(ns.tenants))
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// tiers compiles a rule's variants, one for each multiplier.
func (c *compiler) tiers(path string, spec *RuleSpec, r *Rule) {
	if spec.TierFrom == "" {
		return
	}
	if c.doc.Tenants == nil {
		c.problem(path+".tier_from", "E193", "such as: tenants: {gold: {multiply: 10}}; or tenants: {}, where tenants have multipliers in the store alone", "the document has no tenants to multiply for")
	}
	if len(r.Rates) == 0 {
		c.problem(path+".tier_from", "E194", "leave it out", "a rule without rates has no limit to multiply")
	}
	r.tierFrom, r.own = c.sources(path+".tier_from", spec.TierFrom), new(ownVariants)
	for k, m := range c.multipliers {
		for _, rate := range r.Rates {
			if !rate.PerRequest {
				c.multipliable(path+".tier_from", rate, m)
			}
		}
		v := r.variantFor(m)
		v.tenants = tenantsIn(c.multiplied[k], m)
		r.variants = append(r.variants, v)
	}
}

// tenantsIn are those of a multiplier in words, the first by name.
func tenantsIn(names []string, m float64) string {
	more := ""
	if n := len(names) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("for tenant %.40q%s, multiply: %v:", names[0], more, m)
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

// tiersTogether warns of a bucket that several tiers pour into: it drains as whoever asks
// says, for whom all that a faster tier may leave in it is a multiple of what he may.
func (c *compiler) tiersTogether(path string, spec *RuleSpec, r *Rule) {
	least, most := c.tiersMet(r)
	if least == most || slices.ContainsFunc(r.key, func(p keyPart) bool { return !standsFor(p.slots, slotPath) && !standsFor(p.slots, slotMethod) }) {
		return
	}
	for k, rate := range r.Rates {
		if !rate.Bucket() || rate.PerRequest {
			continue
		}
		slow, fast := c.tier(r, least).Rates[k], c.tier(r, most).Rates[k]
		wait := time.Duration(product(crdt.SatSub(fast.Ceiling+1, slow.Ceiling), uint64(slow.Drain.Per)).overUp(slow.Drain.Refill))
		c.warn(path+".tier_from", "W236", "key: ["+spec.TierFrom+"], or what tells tenants apart, for a bucket each",
			"%s is one bucket for all tiers: once a caller with %s has filled it, one with %s is denied for %v, as for him it drains at his pace", rate.Name, timesTold(most), timesTold(least), wait.Round(time.Second))
		return
	}
}

func timesTold(m float64) string {
	if m == 1 {
		return "the rule's own limits"
	}
	return fmt.Sprintf("%v times the limits", m)
}

// tiersMet are the least and the largest multiplier of requests that meet the rule, as far
// as it tells; 1 is that of tenants that have none.
func (c *compiler) tiersMet(r *Rule) (least, most float64) {
	if len(r.variants) == 0 {
		return 1, 1
	}
	met := slices.Concat([]float64{1}, c.multipliers)
	for _, f := range r.facts() {
		if f.not || !slices.Equal(f.slots, r.tierFrom) {
			continue
		}
		met = met[:0]
		for _, tenant := range f.values {
			if at, ok := c.ns.tenants[tenant]; ok {
				met = append(met, c.multipliers[at])
			} else {
				met = append(met, 1)
			}
		}
	}
	return slices.Min(met), slices.Max(met)
}

// tier is the rule as it holds for tenants of a multiplier.
func (c *compiler) tier(r *Rule, m float64) *Rule {
	if at := slices.Index(c.multipliers, m); at >= 0 {
		return r.variants[at]
	}
	return r
}
