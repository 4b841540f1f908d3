package configs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// RulesSchema is the value of schema: that this version reads.
const RulesSchema = "spillgate/v1"

const leaveOut = "leave it out"

// document reads the rules of one namespace.
func (r *reader) document(n *node) limit.Document {
	var doc limit.Document
	r.object("", n, []field{
		{"schema", "schema: " + RulesSchema, r.schema},
		{"namespace", "such as namespace: acme", r.text(&doc.Namespace)},
		{"defaults", "", r.defaults(&doc.Defaults)},
		{"keys", "", r.keys(&doc)},
		{"rules", "such as rules: [{name: all, key: [client_ip], rates: [{limit: 100, per: 1m}]}]", func(path string, n *node) {
			r.each(path, n, func(path string, n *node) { doc.Rules = append(doc.Rules, r.rule(path, n)) })
		}},
		{"tenants", "", r.tenants(&doc)},
	})
	for i := range doc.Rules {
		for k := range doc.Rules[i].Rates {
			r.needWindow(fmt.Sprintf("rules[%d].rates[%d]", i, k), &doc.Rules[i].Rates[k], &doc.Defaults)
		}
		if tried := doc.Rules[i].Candidate; tried != nil {
			for k := range tried.Rates {
				r.needWindow(fmt.Sprintf("rules[%d].candidate.rates[%d]", i, k), &tried.Rates[k], &doc.Defaults)
			}
		}
	}
	return doc
}

// needWindow reports a rate that is no bucket and lacks its limit, without
// which it would deny everything, or its window. Which algorithm it has may
// stand in the defaults, and these anywhere.
func (r *reader) needWindow(path string, s *limit.RateSpec, d *limit.Defaults) {
	algorithm := cmp.Or(s.Algorithm, d.Algorithm)
	if strings.HasSuffix(algorithm, "_bucket") || s.Capacity != 0 || s.Refill != (limit.Flow{}) || s.Outflow != (limit.Flow{}) {
		return
	}
	need := func(name, must string) {
		at := path + "." + name
		if _, given := r.at[at]; !given && !r.reported(at) {
			r.mistake(at, r.at[path], "E014", must, "%s is missing", name)
		}
	}
	need("limit", "such as limit: 100; 0 denies everything")
	if algorithm != "concurrency" {
		need("per", "such as per: 1m")
	}
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
			{"algorithm", "", r.text(&d.Algorithm)},
			{"mode", "", r.text(&d.Mode)},
			{"consistency", "", r.text(&d.Consistency)},
			{"scope", "", r.text(&d.Scope)},
			{"charge", "", r.text(&d.Charge)},
			{"on_partition", "", r.text(&d.OnPartition)},
			{"descriptors", "", r.text(&d.Descriptors)},
		}, "surge")
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
			doc.Keys[e.key] = r.key(at, e.value)
			r.at[at] = e.at // what is wrong with the whole is wrong with its name
		}
	}
}

func (r *reader) tenants(doc *limit.Document) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", "such as: tenants: {gold: {multiply: 10}}")
			// Some were meant: the rules that read them are not wrong too.
			doc.Tenants = map[string]limit.TenantSpec{"": {Multiply: 1}}
			return
		}
		doc.Tenants = make(map[string]limit.TenantSpec, len(n.entries))
		for _, e := range n.entries {
			at := join(path, e.key)
			r.at[at] = e.at
			var t limit.TenantSpec
			r.object(at, e.value, []field{{"multiply", "such as multiply: 10", r.number(&t.Multiply)}})
			doc.Tenants[e.key] = t
		}
	}
}

func (r *reader) key(path string, n *node) limit.KeySource {
	var k limit.KeySource
	r.object(path, n, []field{
		{"from", "", r.someTexts(&k.From, "leave it out, for the attribute of that name")},
		{"ipv4_prefix", "", whole(r, &k.IPv4Prefix, 1, 32)},
		{"ipv6_prefix", "", whole(r, &k.IPv6Prefix, 1, 128)},
	}, "hash")
	k.IP = k.IPv4Prefix > 0 || k.IPv6Prefix > 0 || slices.Contains(k.From, "client_ip")
	return k
}

func (r *reader) rule(path string, n *node) limit.RuleSpec {
	var s limit.RuleSpec
	r.object(path, n, []field{
		{"name", "such as name: api-per-user", r.text(&s.Name)},
		{"priority", "", whole(r, &s.Priority, math.MinInt32, math.MaxInt32)},
		{"group", "", r.text(&s.Group)},
		{"generation", "", whole(r, &s.Generation, 0, math.MaxUint32)},
		{"match", "", r.match(&s.Match)},
		{"key", "", r.someTexts(&s.Key, "leave it out, for one counter for everybody")},
		{"rates", "", func(path string, n *node) {
			r.each(path, n, func(path string, n *node) { s.Rates = append(s.Rates, r.rate(path, n)) })
		}},
		{"mode", "", r.text(&s.Mode)},
		{"consistency", "", r.text(&s.Consistency)},
		{"on_partition", "", r.text(&s.OnPartition)},
		{"allow", "", r.flag(&s.Allow)},
		{"deny", "", r.flag(&s.Deny)},
		{"tell_keys", "", r.flag(&s.TellKeys)},
		{"margin", "", r.filled(r.margin(&s.Margin))},
		{"cost", "", r.filled(r.cost(&s.Cost))},
		{"on_limit", "", r.filled(r.onLimit(&s.OnLimit))},
		{"tier_from", "", r.text(&s.TierFrom)},
		{"min_gap", "", r.some(&s.MinGap, "E216", "1ms to 183d, such as 200ms")},
		{"charge", "", r.text(&s.Charge)},
		{"count_when", "", r.text(&s.CountWhen)},
		{"near_limit", "", r.portion(&s.NearLimitPercent, "E209", "above 0% to 100%, such as 80%; or leave it out")},
		{"drop", "", r.text(&s.Drop)},
		{"penalty", "", r.penalty(&s.Penalty)},
		{"classes", "", r.classes(&s.Classes)},
		{"max_delay", "", r.some(&s.MaxDelay, "E217", "such as 500ms")},
		{"candidate", "", r.candidate(&s.Candidate)},
	}, "surge")
	if r.bad[path+".allow"] || r.bad[path+".deny"] {
		r.bad[path+".rates"] = true // whether there should be any is not known
	}
	return s
}

// candidate reads limits that are tried beside a rule's.
func (r *reader) candidate(dst **limit.CandidateSpec) read {
	return func(path string, n *node) {
		s := &limit.CandidateSpec{}
		r.object(path, n, []field{
			{"rates", "such as rates: [{limit: 100, per: 1m}]", func(path string, n *node) {
				r.each(path, n, func(path string, n *node) { s.Rates = append(s.Rates, r.rate(path, n)) })
			}},
			{"key", "", r.someTexts(&s.Key, "leave it out, for the rule's own")},
			{"mode", "", r.text(&s.Mode)},
			{"consistency", "", r.text(&s.Consistency)},
			{"margin", "", r.filled(r.margin(&s.Margin))},
		})
		*dst = s
	}
}

// matchWords are those of match that often stand beside it.
var matchWords = []string{"path", "methods", "host", "cidr", "equals", "has", "lacks", "when"}

func (r *reader) match(m *limit.MatchSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"path", "", r.someTexts(&m.Path, leaveOut)},
			{"methods", "", r.someTexts(&m.Methods, leaveOut)},
			{"host", "", r.someTexts(&m.Host, leaveOut)},
			{"cidr", "", r.someTexts(&m.CIDR, leaveOut)},
			{"equals", "", r.equals(m)},
			{"has", "", r.someTexts(&m.Has, leaveOut)},
			{"lacks", "", r.someTexts(&m.Lacks, leaveOut)},
			{"when", "", r.text(&m.When)},
		})
	}
}

func (r *reader) equals(m *limit.MatchSpec) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", `such as: equals: {tier: gold}`)
			return
		}
		if len(n.entries) == 0 && !n.partial {
			r.mistake(path, n.at, "E009", leaveOut, "an empty mapping")
		}
		m.Equals = make(map[string][]string, len(n.entries))
		for _, e := range n.entries {
			at := join(path, e.key)
			r.at[at] = e.at
			var values []string
			r.texts(&values)(at, e.value)
			m.Equals[e.key] = values
		}
	}
}

func (r *reader) rate(path string, n *node) limit.RateSpec {
	var s limit.RateSpec
	r.object(path, n, []field{
		{"name", "", r.text(&s.Name)},
		{"limit", "", whole(r, &s.Limit, 0, 1<<53)},
		{"per", "", r.window(&s)},
		{"algorithm", "", r.text(&s.Algorithm)},
		{"slices", "", whole(r, &s.Slices, 1, limit.MaxSlices)},
		{"oldest", "", r.text(&s.Oldest)},
		{"round", "", r.text(&s.Round)},
		{"scope", "", r.text(&s.Scope)},
		{"align", "", r.text(&s.Align)},
		{"consistency", "", r.text(&s.Consistency)},
		{"on_partition", "", r.text(&s.OnPartition)},
		{"capacity", "", whole(r, &s.Capacity, 1, limit.MaxUnits)},
		{"refill", "", r.flow(&s.Refill)},
		{"initial", "", whole(r, &s.Initial, 1, limit.MaxUnits)},
		{"outflow", "", r.flow(&s.Outflow)},
		{"queue", "", r.flag(&s.Queue)},
		{"max_wait", "", r.wait(&s.MaxWait)},
		{"lease", "", r.duration(&s.Lease)},
		{"count_denied", "", r.flag(&s.CountDenied)},
		{"surge", "", r.surge(&s.Surge)},
		{"leeway", "", r.portion(&s.LeewayPercent, "E222", "above 0% to 100%, such as 5%; or leave it out")},
		{"strict_wait", "", r.some(&s.StrictWait, "E226", "20ms to 5s, such as 200ms")},
	}, "weights")
	return s
}

// some reads a duration that means nothing at 0s: there it would be taken for none at all.
func (r *reader) some(dst *time.Duration, code, hint string) read {
	return func(path string, n *node) {
		if r.duration(dst)(path, n); *dst == 0 && !r.bad[path] {
			r.mistake(path, n.at, code, hint+"; or leave it out", "0s is out of range")
		}
	}
}

// wait reads how long a queue may hold a request. 0s, which in a RateSpec is as
// long as the queue has room, would be taken for the contrary.
func (r *reader) wait(dst *time.Duration) read {
	return func(path string, n *node) {
		if r.duration(dst)(path, n); *dst == 0 && !r.bad[path] {
			r.mistake(path, n.at, "E156", "leave it out, to wait as long as the queue has room; or say how long, such as 2s", "a queue in which nobody waits")
		}
	}
}

// surge reads a number of times. 0, which in a RateSpec is the default, would be taken
// for none at all.
func (r *reader) surge(dst *float64) read {
	return func(path string, n *node) {
		if r.number(dst)(path, n); *dst == 0 && !r.bad[path] {
			r.mistake(path, n.at, "E221", "2 to 1000, such as 10; or leave it out", "a surge of 0 times the limit is out of range")
		}
	}
}

// window reads a duration, or a period of the calendar.
func (r *reader) window(s *limit.RateSpec) read {
	return func(path string, n *node) {
		if n.kind == kindText && slices.Contains([]string{"day", "week", "month", "year"}, n.text) {
			s.Period = n.text
			return
		}
		r.duration(&s.Per)(path, n)
	}
}

func (r *reader) margin(m *limit.MarginSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"soft", "", r.portion(&m.SoftPercent, "E134", "above 0% to 1000%, such as 10%; or leave soft out")},
			{"elastic", "", func(path string, n *node) {
				r.object(path, n, []field{
					{"up_to", "such as up_to: 50%", r.portion(&m.Elastic.UpToPercent, "E201", "above 0% to 1000%, such as 50%; or leave elastic out")},
					{"while", "", r.text(&m.Elastic.While)},
					{"parent", "", r.text(&m.Elastic.Parent)},
				})
			}},
		})
	}
}

// penalty reads a time, or until_reset.
func (r *reader) penalty(p *limit.Penalty) read {
	return func(path string, n *node) {
		if n.kind == kindText && n.text == "until_reset" {
			p.UntilReset = true
			return
		}
		if n.kind == kindText && suggest(n.text, []string{"until_reset"}) != "" {
			r.mistake(path, n.at, "E211", `did you mean "until_reset"?`, "%q is no time", clip(n.text))
			return
		}
		r.some(&p.For, "E211", "1ms to 366d, such as 5m, or until_reset")(path, n)
	}
}

func (r *reader) classes(c *limit.ClassesSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"from", "such as from: header.X-Class", r.text(&c.From)},
			{"order", "the classes, the least first: order: [batch, normal, critical]", r.texts(&c.Order)},
			{"reserve", "such as reserve: {critical: 10%}", r.reserve(c)},
		})
	}
}

func (r *reader) reserve(c *limit.ClassesSpec) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", "such as: reserve: {critical: 10%}")
			return
		}
		c.Reserve = make(map[string]float64, len(n.entries))
		for _, e := range n.entries {
			at := join(path, e.key)
			r.at[at] = e.at
			percent := 0.0
			r.percent(&percent)(at, e.value)
			c.Reserve[e.key] = percent
		}
	}
}

func (r *reader) cost(c *limit.CostSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"default", "", whole(r, &c.Default, 1, 1<<53)},
			{"by_route", "", r.filled(r.byRoute(c))},
			{"max", "", whole(r, &c.Max, 1, 1<<53)},
			{"from_header", "", r.text(&c.FromHeader)},
		})
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
			{"status", "", whole(r, &o.Status, 400, 599)},
			{"headers", "", r.someTexts(&o.Headers, "none, for no headers; or leave it out, for the usual ones")},
			{"show_headers", "", r.text(&o.ShowHeaders)},
			{"defer", "", r.filled(r.deferral(&o.Defer))},
		}, "delay", "queue")
	}
}

func (r *reader) deferral(d *limit.DeferSpec) read {
	return func(path string, n *node) {
		r.object(path, n, []field{
			{"for", "", r.some(&d.For, "E317", "1s to 168h, such as 1h")},
			{"methods", "", r.someTexts(&d.Methods, "leave it out: all that have an Idempotency-Key")},
		})
	}
}
