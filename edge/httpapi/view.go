package httpapi

import (
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// view is what this surface keeps beside a set of rules, resolved once so that
// a request looks nothing up by name. It is immutable but for its counters.
type view struct {
	set        *limit.Set
	rules      []ruleView // by limit.Rule.Index
	namespaces map[*limit.Namespace]*namespaceView
}

type ruleView struct {
	series   series
	profiles []profile
}

type namespaceView struct {
	unmatched series    // calls to which no rule applied
	details   bool      // some rule shows all its rates or none, or is a shadow rule
	charges   bool      // some rule has requests wait, or has slots: what is charged may have to be given back
	after     bool      // some rule counts certain responses only
	strict    bool      // some rate is: what is given back must be known for what was admitted
	tenants   *tierView // nil: no rule tells tenants apart
}

// viewOf is the view of a set. Two requests that both meet a new set may both
// build one; the counters behind them are the same.
func (a *API) viewOf(set *limit.Set) *view {
	if v := a.view.Load(); v != nil && v.set == set {
		return v
	}
	v := a.newView(set)
	a.view.Store(v)
	return v
}

func (a *API) newView(set *limit.Set) *view {
	rules := set.Rules()
	v := &view{set: set, rules: make([]ruleView, len(rules)), namespaces: map[*limit.Namespace]*namespaceView{}}
	byName := map[string]*namespaceView{}
	add := func(ns *limit.Namespace) {
		nv := &namespaceView{}
		nv.unmatched.namespace = ns.Name
		v.namespaces[ns], byName[ns.Name] = nv, nv
	}
	for _, name := range set.Names() {
		add(set.Namespace(name))
	}
	if own := set.DescriptorLimits(); own != nil {
		add(own)
	}
	for i, rule := range rules {
		rv := &v.rules[i]
		rv.series.namespace = rule.Namespace
		rv.series.rule = a.metrics.ruleLabel(rule.Namespace, rule.Name)
		for _, name := range rule.Headers {
			if p := profiles[name]; p != nil {
				rv.profiles = append(rv.profiles, p)
			}
		}
		nv := byName[rule.Namespace]
		if nv.tenants == nil && rule.Tiered() && rule.Live == nil {
			nv.tenants = a.tiered(set.Namespace(rule.Namespace), rule)
		}
		nv.details = nv.details || rule.Show != limit.ShowTightest || rule.Mode == limit.Shadow && rule.Live == nil
		nv.charges = nv.charges || rule.MaxDelay > 0 || slices.ContainsFunc(rule.Rates, func(r *limit.Rate) bool { return r.Queue || r.Lease > 0 })
		nv.after = nv.after || rule.CountsAfter()
		nv.strict = nv.strict || slices.ContainsFunc(rule.Rates, func(r *limit.Rate) bool { return r.Consistency == limit.Strict })
	}
	return v
}

// seriesOf are the counters that a decision in a namespace belongs to.
func (v *view) seriesOf(ns *limit.Namespace, d *limit.Decision) *series {
	if d.Rule == nil {
		return &v.namespaces[ns].unmatched
	}
	return &v.rules[d.Rule.Index].series
}
