package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// maxTierLabels is how many tiers of a namespace have a label of their own: a document with more names
// tenants, and these stand in no metric.
const maxTierLabels = 50

// Tiers that are none of the document's, as metrics have them.
const (
	tierNone    = "none"    // nobody multiplies
	tierOwn     = "own"     // the tenant has a multiplier of its own
	tierUnknown = "unknown" // the document has no such tier, or the rule cannot have such a multiplier
	tierOther   = "other"   // the document has too many
)

// tenantCounts are what is counted of the tenants of a namespace, over all sets of rules.
type tenantCounts struct {
	requests, denied *top
}

// tierView is how the tenants of a namespace are counted under a set.
type tierView struct {
	rule   *limit.Rule // the first that tells whose a request is
	tiers  map[string]*tierSeries
	counts *tenantCounts
}

// tierSeries are the counters of one tier; each is looked up when it is first used.
type tierSeries struct {
	namespace, tier string
	decisions       [results]atomic.Pointer[prometheus.Counter]
}

// tiered has a namespace's tenants counted, by the rules of a set.
func (a *API) tiered(ns *limit.Namespace, rule *limit.Rule) *tierView {
	v := &tierView{rule: rule, tiers: map[string]*tierSeries{}}
	labels := []string{tierNone, tierOwn, tierUnknown, tierOther}
	if known := ns.Tiers(); len(known) <= maxTierLabels {
		for tier := range known {
			labels = append(labels, tier)
		}
	}
	for _, tier := range labels {
		v.tiers[tier] = &tierSeries{namespace: ns.Name, tier: tier}
	}
	a.tenantsMu.Lock()
	defer a.tenantsMu.Unlock()
	if v.counts = a.tenants[ns.Name]; v.counts == nil {
		v.counts = &tenantCounts{newTop(), newTop()}
		a.tenants[ns.Name] = v.counts
	}
	return v
}

// count counts what was decided of a tenant's request.
func (v *tierView) count(m *Metrics, d *limit.Decision, req *limit.Request) {
	rule := v.rule
	if d.Rule != nil && d.Rule.Tiered() {
		rule = d.Rule
	}
	t, _ := rule.Tenancy(req)
	label := t.Tier
	switch {
	case t.Unknown:
		label = tierUnknown
	case t.Tier == "" && t.Stored:
		label = tierOwn
	case t.Tier == "":
		label = tierNone
	}
	s := v.tiers[label]
	if s == nil {
		s = v.tiers[tierOther]
	}
	res := resultOf(d, req)
	c := s.decisions[res].Load()
	if c == nil {
		fresh := m.tenants.WithLabelValues(s.namespace, s.tier, resultNames[res])
		c = &fresh
		s.decisions[res].Store(c)
	}
	(*c).Inc()
	if req.Peek || req.Replay || t.Tenant == "" {
		return
	}
	v.counts.requests.add(t.Tenant, !d.Allowed)
	if !d.Allowed {
		v.counts.denied.add(t.Tenant, true)
	}
}

// topOfTenants answers GET /admin/v1/tenants?by=requests|denied&namespace=&limit=: the tenants that this
// edge counted most, since it started. It tells names, and so belongs to the admin listener.
func (a *API) topOfTenants(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	by, most := query.Get("by"), topTenants
	if by == "" {
		by = "requests"
	}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > topTenants {
			writeProblem(w, &problem{status: http.StatusBadRequest, field: "limit", detail: fmt.Sprintf("limit: %.40q: want 1 to %d", text, topTenants)})
			return
		}
		most = n
	}
	if by != "requests" && by != "denied" {
		writeProblem(w, &problem{status: http.StatusBadRequest, field: "by", detail: fmt.Sprintf("by: %.40q: want requests or denied", by)})
		return
	}
	type namespace struct {
		Namespace string      `json:"namespace"`
		Tenants   []TopTenant `json:"tenants"`
	}
	out := struct {
		By         string      `json:"by"`
		Namespaces []namespace `json:"namespaces"`
	}{by, []namespace{}}
	a.tenantsMu.Lock()
	counts := map[string]*tenantCounts{}
	for name, c := range a.tenants {
		counts[name] = c
	}
	a.tenantsMu.Unlock()
	for name, c := range counts {
		if query.Has("namespace") && query.Get("namespace") != name {
			continue
		}
		var list []TopTenant
		if by == "requests" {
			list = c.requests.list(most, func(s *topSlot) TopTenant {
				return TopTenant{Tenant: string(s.name), Requests: s.count, Denied: s.denied, Excess: s.excess}
			})
		} else {
			list = c.denied.list(most, func(s *topSlot) TopTenant {
				return TopTenant{Tenant: string(s.name), Denied: s.count, Excess: s.excess}
			})
		}
		out.Namespaces = append(out.Namespaces, namespace{name, list})
	}
	slices.SortFunc(out.Namespaces, func(a, b namespace) int { return strings.Compare(a.Namespace, b.Namespace) })
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(out) // a caller that is gone cannot be told so
}
