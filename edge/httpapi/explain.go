package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Explained is what POST /v1/explain answers.
type Explained struct {
	Allowed bool            `json:"allowed"`
	Rule    string          `json:"rule,omitempty"`   // that decided
	Policy  string          `json:"policy,omitempty"` // its rate
	Rules   []ExplainedRule `json:"rules"`
	More    int             `json:"more,omitempty"` // rules that do not apply and are not told of
}

// ExplainedRule is one rule of it. Rules that do not apply have a Miss.
type ExplainedRule struct {
	Name     string          `json:"name"`
	Priority int             `json:"priority"`
	Mode     string          `json:"mode"`
	Applies  bool            `json:"applies"`
	Miss     *ExplainedMiss  `json:"miss,omitempty"`
	Does     string          `json:"does,omitempty"` // allow or deny, of a rule without rates
	Key      string          `json:"key,omitempty"`
	Rates    []ExplainedRate `json:"rates,omitempty"`

	Tenant     *ExplainedTenant     `json:"tenant,omitempty"` // of a rule that applies, and has tier_from
	Exceptions []ExplainedException `json:"exceptions,omitempty"`
}

// ExplainedTenant is whose limits a rule has for the request.
type ExplainedTenant struct {
	Name     string     `json:"name,omitempty"` // that the request has
	Tier     string     `json:"tier,omitempty"`
	Multiply float64    `json:"multiply"`          // 1: the rule's own limits hold
	From     string     `json:"from,omitempty"`    // document or store; neither knows a tenant that has none
	Until    *time.Time `json:"until,omitempty"`   // when what the store says ends
	Unknown  bool       `json:"unknown,omitempty"` // the store names a tier that the document has not, or a multiplier that the rule cannot have
}

// ExplainedException is what an operator had hold for the key alone.
type ExplainedException struct {
	ID    string     `json:"id"` // by which the admin API knows whose it is, and why
	Does  string     `json:"does"`
	Rate  string     `json:"rate,omitempty"` // by name; "": all of the rule's
	Until *time.Time `json:"until,omitempty"`
}

// ExplainedMiss is why a rule does not apply: a field of the rule, and what the request
// has in place of that.
type ExplainedMiss struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// ExplainedRate is how one counter stands. Costs are those of the window, as this edge
// knows them.
type ExplainedRate struct {
	Policy       string `json:"policy"`
	Algorithm    string `json:"algorithm"`
	Scope        string `json:"scope"`
	Consistency  string `json:"consistency"`
	OnPartition  string `json:"on_partition,omitempty"`
	Verdict      string `json:"verdict"` // admit, or why it denies: limit, share, penalty, min_gap, drop, cut_off
	Limit        uint64 `json:"limit"`
	Ceiling      uint64 `json:"ceiling"` // the limit with its margin
	Window       string `json:"window"`
	Local        uint64 `json:"local"`
	Merged       uint64 `json:"merged"`
	Remaining    uint64 `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	AgeMS        int64  `json:"age_ms"` // since the key was last heard of; -1: never
	Seen         bool   `json:"seen"`   // this edge had the key before it was asked

	Share  *ExplainedShare `json:"share,omitempty"`  // of an adaptive rate over several edges
	Rights *uint64         `json:"rights,omitempty"` // that this edge holds, of a strict one

	ErrorBound      *uint64 `json:"error_bound,omitempty"`
	ErrorBoundSurge *uint64 `json:"error_bound_surge,omitempty"`
}

// ExplainedShare is this edge's share of what is left.
type ExplainedShare struct {
	Region float64 `json:"region"` // part of the limit that is the region's, 0 to 1
	Edge   float64 `json:"edge"`   // part of that which is this edge's
	Left   uint64  `json:"left"`   // that it may spend
	Far    bool    `json:"far"`    // the limit is so far off that no share counts
	Kept   float64 `json:"kept"`   // cost of the limit that is kept for regions which are cut off
}

// explain answers POST /v1/explain, whose body is that of /v1/check. It tells rules and
// counts, and so belongs to the admin listener.
func (a *API) explain(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	defer x.release()
	_, ns := a.takeOne(w, r, x, (*decoder).check, a.metrics.undecided)
	if ns == nil {
		return
	}
	c := &x.dec.calls[0]
	req := ns.NewRequest()
	defer req.Release()
	x.dec.give(c, req)
	req.Cost = c.cost
	e := a.limiter.Explain(a.cfg.Now(), req)
	out := explained(&e)
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(out) // a caller that is gone cannot be told so
}

// explained puts an explanation into words.
func explained(e *limit.Explanation) *Explained {
	d := &e.Decision
	out := &Explained{Allowed: d.Allowed, More: e.More, Rules: make([]ExplainedRule, 0, len(e.Rules))}
	if d.Rule != nil {
		out.Rule = d.Rule.Name
	}
	if d.Rate != nil {
		out.Policy = d.Rate.Policy
	}
	for i := range e.Rules {
		f := &e.Rules[i]
		rule := ExplainedRule{Name: f.Rule.Name, Priority: f.Rule.Priority, Mode: f.Rule.Mode.String(), Applies: f.Miss.Field == ""}
		switch {
		case !rule.Applies:
			rule.Miss = &ExplainedMiss{f.Miss.Field, f.Miss.Detail}
		case f.Rule.Allow:
			rule.Does = "allow"
		case f.Rule.Deny:
			rule.Does = "deny"
		default:
			rule.Key = f.Key
		}
		if f.Tenancy != nil {
			rule.Tenant = explainedTenant(f.Tenancy)
		}
		for j := range f.Rates {
			rule.Rates = append(rule.Rates, explainedRate(&f.Rates[j]))
		}
		for k := range f.Exceptions {
			e := &f.Exceptions[k]
			told := ExplainedException{ID: e.ID, Does: e.Does(), Rate: e.Rate}
			if !e.Until.IsZero() {
				told.Until = &e.Until
			}
			rule.Exceptions = append(rule.Exceptions, told)
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

func explainedTenant(t *limit.Tenancy) *ExplainedTenant {
	out := &ExplainedTenant{Name: t.Tenant, Tier: t.Tier, Multiply: t.Multiply, Unknown: t.Unknown}
	switch {
	case t.Stored:
		out.From = "store"
	case t.Tier != "":
		out.From = "document"
	}
	if !t.Until.IsZero() {
		out.Until = &t.Until
	}
	return out
}

func explainedRate(s *limit.Standing) ExplainedRate {
	rate := s.Rate
	out := ExplainedRate{
		Policy: rate.Policy, Algorithm: rate.Algorithm.String(), Scope: rate.Scope.String(), Consistency: rate.Consistency.String(),
		Verdict: "admit", Limit: rate.Limit, Ceiling: rate.Ceiling, Window: limit.WindowName(WindowOf(rate)),
		Local: s.Local, Merged: s.Merged, Remaining: s.Remaining, RetryAfterMS: ceilMilliseconds(s.RetryAfter), AgeMS: -1, Seen: s.Seen,
	}
	if rate.OnPartition != 0 {
		out.OnPartition = rate.OnPartition.String()
	}
	if s.Denied {
		out.Verdict = s.Why.String()
	}
	if s.Heard >= 0 {
		out.AgeMS = time.Duration(s.Heard).Milliseconds()
	}
	if s.Own.Weight > 0 {
		out.Share = &ExplainedShare{Region: s.Own.Omega, Edge: s.Own.Weight, Left: s.Granted.Cost, Far: s.Granted.Free, Kept: s.Own.Less}
	}
	if rate.Consistency == limit.Strict {
		out.Rights = &s.Held
	}
	if s.Bound.Known {
		out.ErrorBound, out.ErrorBoundSurge = &s.Bound.Now, &s.Bound.Surge
	}
	return out
}
