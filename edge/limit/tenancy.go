package limit

import "time"

// Tenancy is whose limits a request has under a rule, and where that is from.
type Tenancy struct {
	Tenant   string  // that the request names; "": none
	Tier     string  // "": it has none
	Multiply float64 // 1: the rule's own limits hold
	Stored   bool    // the tenant has an entry in the store; else the document has it, or nobody
	Until    time.Time
	Unknown  bool // by its entry it has a tier that the document has not, or a multiplier that the rule cannot have
}

// Tenancy is that of a request under a rule, or under one that For returned; ok is false where the rule
// has no tier_from.
func (r *Rule) Tenancy(req *Request) (t Tenancy, ok bool) {
	if r.of != nil {
		r = r.of
	}
	if r.tierFrom == nil {
		return Tenancy{}, false
	}
	t = Tenancy{Tenant: req.first(r.tierFrom), Multiply: 1}
	tier := t.Tenant
	if a, stored := req.stored(t.Tenant); stored {
		t.Stored, tier = true, a.plan.tier
		if a.until != 0 {
			t.Until = time.Unix(0, a.until).UTC()
		}
		if a.plan.tier == "" {
			if t.Unknown = r.ownVariant(a.plan.multiply) == nil; !t.Unknown {
				t.Multiply = a.plan.multiply
			}
			return t, true
		}
	}
	at, known := req.ns.tenants[tier]
	switch {
	case known:
		t.Tier, t.Multiply = tier, req.ns.multipliers[at]
	case t.Stored:
		t.Tier, t.Unknown = tier, true
	}
	return t, true
}

// Tiered says that the rule, or what it is a variant of, has tier_from.
func (r *Rule) Tiered() bool { return r.tierFrom != nil || r.of != nil }

// At has the request be judged as of an instant, in ns since 1970, as far as what its tenant has ends.
func (req *Request) At(now int64) { req.now = now }

// stored is what a tenant has by the store.
func (req *Request) stored(tenant string) (a assigned, ok bool) {
	if req.ns.store == nil {
		return a, false
	}
	return req.ns.store.find(tenant, req.now)
}

// ownVariant is the rule's for a multiplier that tenants have of their own; nil: there is none.
func (r *Rule) ownVariant(m float64) *Rule {
	if own := r.own.Load(); own != nil {
		return (*own)[m]
	}
	return nil
}

// For is the rule as it holds for the request's tenant. Each variant has
// an Epoch of its own, so that an allowance that was made for one tenant is
// never spent by another: where two share a counter, or one changes its tier,
// the count is judged anew.
func (r *Rule) For(req *Request) *Rule {
	if r.tierFrom == nil {
		return r
	}
	tier := req.first(r.tierFrom)
	if a, ok := req.stored(tier); ok {
		if a.plan.tier == "" {
			if v := r.ownVariant(a.plan.multiply); v != nil {
				return v
			}
			return r
		}
		tier = a.plan.tier
	}
	if i, ok := req.ns.tenants[tier]; ok {
		return r.variants[i]
	}
	return r
}

// CheckTenant returns what is wrong with an entry by the document of its namespace; nil: nothing.
func (s *Set) CheckTenant(e *TenantEntry) *Problem {
	if p := e.Check(); p != nil || e.Deleted {
		return p
	}
	ns := s.Namespace(e.Namespace)
	rules := s.tiered(e.Namespace)
	switch _, known := ns.Tiers()[e.Tier]; {
	case ns == nil || len(rules) == 0:
		return &Problem{Path: "tenant", Code: "E343", Hint: "tier_from: org, in the rules whose limits tenants multiply", Detail: "no rule of namespace " + e.Namespace + " says which tenant a request is of"}
	case e.Tier != "" && !known:
		return &Problem{Path: "tier", Code: "E342", Hint: "one of: " + ns.tierNames(), Detail: "namespace " + e.Namespace + " has no tier " + e.Tier}
	case e.Tier != "":
		return nil
	}
	for _, r := range rules {
		if _, problems := r.multiplied(e.Multiply); len(problems) > 0 {
			p := problems[0]
			p.Path, p.Detail = "multiply", "rule "+r.Name+": "+p.Detail
			return &p
		}
	}
	return nil
}
