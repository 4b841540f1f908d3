package configs

import (
	"math"
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// RulesSchema is the value of schema: that this version reads.
const RulesSchema = "spillgate/v1"

// document reads the rules of one namespace.
func (r *reader) document(n *node) limit.Document {
	var doc limit.Document
	r.object("", n, []field{
		{"schema", true, r.schema},
		{"namespace", true, r.text(&doc.Namespace)},
		{"defaults", false, r.defaults(&doc.Defaults)},
		{"keys", false, r.keys(&doc)},
		{"rules", true, func(path string, n *node) {
			r.each(path, n, func(path string, n *node) { doc.Rules = append(doc.Rules, r.rule(path, n)) })
		}},
	}, "tenants")
	return doc
}

func (r *reader) schema(path string, n *node) {
	version := ""
	r.text(&version)(path, n)
	if version != "" && version != RulesSchema {
		r.mistake(path, n.at, "E012", "schema: "+RulesSchema, "%q is not a schema that this version reads", clip(version))
	}
}

func (r *reader) defaults(d *limit.Defaults) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"algorithm", false, r.text(&d.Algorithm)},
			{"mode", false, r.text(&d.Mode)},
			{"consistency", false, r.text(&d.Consistency)},
			{"scope", false, r.text(&d.Scope)},
		}, "on_partition", "surge", "charge")
	}
}

func (r *reader) keys(doc *limit.Document) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", "such as: keys: {ip: {from: client_ip}}")
			return
		}
		doc.Keys = make(map[string]limit.KeySource, len(n.entries))
		for _, e := range n.entries {
			at := join(path, e.key)
			r.at[at] = e.at
			doc.Keys[e.key] = r.key(at, e.value)
		}
	}
}

func (r *reader) key(path string, n *node) limit.KeySource {
	var k limit.KeySource
	r.object(path, n, []field{
		{"from", false, r.texts(&k.From)},
		{"ipv4_prefix", false, whole(r, &k.IPv4Prefix, 1, 32)},
		{"ipv6_prefix", false, whole(r, &k.IPv6Prefix, 1, 128)},
	}, "hash")
	k.IP = k.IPv4Prefix > 0 || k.IPv6Prefix > 0 || slices.Contains(k.From, "client_ip")
	return k
}

func (r *reader) rule(path string, n *node) limit.RuleSpec {
	var s limit.RuleSpec
	r.object(path, n, []field{
		{"name", true, r.text(&s.Name)},
		{"priority", false, whole(r, &s.Priority, math.MinInt32, math.MaxInt32)},
		{"group", false, r.text(&s.Group)},
		{"generation", false, whole(r, &s.Generation, 0, math.MaxUint32)},
		{"match", false, r.match(&s.Match)},
		{"key", false, r.texts(&s.Key)},
		{"rates", false, func(path string, n *node) {
			r.each(path, n, func(path string, n *node) { s.Rates = append(s.Rates, r.rate(path, n)) })
		}},
		{"mode", false, r.text(&s.Mode)},
		{"consistency", false, r.text(&s.Consistency)},
		{"allow", false, r.flag(&s.Allow)},
		{"margin", false, r.margin(&s.Margin)},
		{"cost", false, r.cost(&s.Cost)},
		{"on_limit", false, r.onLimit(&s.OnLimit)},
	}, "candidate", "min_gap", "count_when", "parent", "on_partition", "surge", "charge")
	return s
}

func (r *reader) match(m *limit.MatchSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"path", false, r.texts(&m.Path)},
			{"methods", false, r.texts(&m.Methods)},
			{"has", false, r.texts(&m.Has)},
			{"lacks", false, r.texts(&m.Lacks)},
		}, "when")
	}
}

func (r *reader) rate(path string, n *node) limit.RateSpec {
	var s limit.RateSpec
	r.object(path, n, []field{
		{"name", false, r.text(&s.Name)},
		// Without a limit a rate would deny everything; that must be said.
		{"limit", true, whole(r, &s.Limit, 0, 1<<53)},
		{"per", true, r.duration(&s.Per)},
		{"algorithm", false, r.text(&s.Algorithm)},
		{"slices", false, whole(r, &s.Slices, 1, limit.MaxSlices)},
		{"oldest", false, r.text(&s.Oldest)},
		{"round", false, r.text(&s.Round)},
		{"scope", false, r.text(&s.Scope)},
		{"align", false, r.text(&s.Align)},
		{"consistency", false, r.text(&s.Consistency)},
	}, "capacity", "refill", "initial", "outflow", "queue", "max_wait", "lease", "count_denied", "surge", "weights")
	return s
}

func (r *reader) margin(m *limit.MarginSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{{"soft", false, r.percent(&m.SoftPercent)}}, "elastic")
	}
}

func (r *reader) cost(c *limit.CostSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"default", false, whole(r, &c.Default, 1, 1<<53)},
			{"by_route", false, r.byRoute(c)},
			{"max", false, whole(r, &c.Max, 1, 1<<53)},
		}, "from_header")
	}
}

func (r *reader) byRoute(c *limit.CostSpec) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", `such as: by_route: {"POST /api/search": 5}`)
			return
		}
		c.ByRoute = make(map[string]uint64, len(n.entries))
		for _, e := range n.entries {
			at := join(path, e.key)
			r.at[at] = e.at
			cost := uint64(0)
			whole(r, &cost, 0, 1<<53)(at, e.value)
			c.ByRoute[e.key] = cost
		}
	}
}

func (r *reader) onLimit(o *limit.OnLimitSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"status", false, whole(r, &o.Status, 400, 599)},
			{"headers", false, r.texts(&o.Headers)},
			{"show_headers", false, r.text(&o.ShowHeaders)},
		}, "delay", "queue")
	}
}
