package limit

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxRates  = 8
	maxGroups = 32      // each takes a look-up, and its rates their part in the decision
	maxLimit  = 1 << 53 // exact in JSON and in Lua
)

// nameLetters is what nameForm takes, for hints.
const nameLetters = `: letters, digits, "_", "." and "-", at most 63`

var (
	nameForm      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	attributeForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$|^header\.[A-Za-z0-9-]+$`)
)

// Compile checks the documents and turns them into a Set. It reports every
// mistake, and returns no set if there is one. Paths in problems start at
// their document's root; At tells which document.
func Compile(docs ...Document) (*Set, []Problems) { return Options{}.Compile(docs...) }

// Options are what compiling needs from outside of this package.
type Options struct {
	// Conditions compiles the expressions of when:. Nil: a rule that has one
	// is refused.
	Conditions ConditionCompiler
	// DescriptorLimits has a Set decide about limits that descriptors bring; see there.
	DescriptorLimits bool
}

// Compile is the function of that name, with options.
func (o Options) Compile(docs ...Document) (*Set, []Problems) {
	c := compiler{opts: o, set: &Set{namespaces: map[string]*Namespace{}}}
	all := make([]Problems, len(docs))
	failed := false
	for i := range docs {
		c.problems, c.warnings, c.told, c.used = nil, nil, map[[2]string]bool{}, map[string]string{}
		first := len(c.set.rules)
		c.document(&docs[i])
		if len(c.problems) == 0 && docs[i].Descriptors == nil { // else nobody wrote the rules
			c.suspicions(&docs[i], first)
		}
		all[i] = c.problems
		c.set.warnings = append(c.set.warnings, c.warnings)
		failed = failed || len(c.problems) > 0
	}
	if failed {
		return nil, all
	}
	if rules := func(d Document) bool { return d.Descriptors == nil }; o.DescriptorLimits && slices.ContainsFunc(docs, rules) {
		c.descriptorLimits()
	}
	return c.set, nil
}

type compiler struct {
	opts        Options
	set         *Set
	problems    Problems
	warnings    Problems
	multipliers []float64          // of tenants
	multiplied  [][]string         // the tenants of each, by name
	told        map[[2]string]bool // paths and codes
	used        map[string]string  // names of keys and attributes: where a rule first names them
	sourced     map[string]source  // by name: what it stands for in this document
	ns          *Namespace
	doc         *Document
}

func (c *compiler) problem(path, code, hint, format string, args ...any) {
	c.report(Problem{Path: path, Code: code, Detail: fmt.Sprintf(format, args...), Hint: hint})
}

func newNamespace(name string) *Namespace {
	ns := &Namespace{Name: name, slots: map[string]int{}, named: map[string]int{}, lowered: map[string]int{}}
	for i, name := range fixedNames {
		ns.slots[name] = i
	}
	return ns
}

// indexed is the path of a list's item.
func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func (c *compiler) report(p Problem) {
	at := [2]string{p.Path, p.Code}
	if c.told[at] {
		return // a mistake in the defaults, met again in the next rule
	}
	c.told[at] = true
	c.problems = append(c.problems, p)
}

func (c *compiler) document(doc *Document) {
	c.doc = doc
	c.ns, c.sourced = newNamespace(doc.Namespace), map[string]source{}
	c.ns.Version = doc.Version
	switch {
	case doc.Descriptors == nil && !nameForm.MatchString(doc.Namespace):
		c.problem("namespace", "E101", `such as "acme"`+nameLetters, "%.80q is not a name", doc.Namespace)
	case c.set.namespaces[doc.Namespace] != nil:
		c.problem("namespace", "E102", "one document a namespace", "namespace %q was already read from another document", doc.Namespace)
	}
	c.ns.descriptorCharge = enum(c, chargingNames, word{"defaults.descriptors", doc.Defaults.Descriptors}, word{"", ChargeEach.String()})
	if doc.Descriptors != nil {
		c.descriptors(doc)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Keys)) {
		c.keySource("keys."+name, name, doc.Keys[name])
	}
	c.consistency(word{"defaults.consistency", doc.Defaults.Consistency})
	c.partition(word{"defaults.on_partition", doc.Defaults.OnPartition})
	c.tenants(doc)
	if len(doc.Rules) == 0 {
		c.problem("rules", "E103", "write at least one", "there is no rule")
	}
	from := len(c.set.rules)
	first := map[string]int{}
	groups := map[string][]*Rule{}
	for i := range doc.Rules {
		spec := &doc.Rules[i]
		path := fmt.Sprintf("rules[%d]", i)
		if j, dup := first[spec.Name]; dup {
			c.problem(path+".name", "E112", "give each rule of a namespace a name of its own", "%q is already the name of rule %d", spec.Name, j+1)
		} else {
			first[spec.Name] = i
		}
		r := c.rule(path, spec)
		if groups[spec.Group] == nil && len(groups) == maxGroups {
			c.problem(path+".group", "E113", "rules of which one at a time applies share a group", "%q is one group too many; there are at most %d", spec.Group, maxGroups)
			continue
		}
		groups[spec.Group] = append(groups[spec.Group], r)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		slices.SortStableFunc(g, func(a, b *Rule) int { return cmp.Compare(b.Priority, a.Priority) })
		c.ns.groups = append(c.ns.groups, newGroup(g))
	}
	c.parents(doc, from, first)
	c.candidates(doc, from, first)
	c.policies(from)
	c.ns.readPaths()
	c.bounded()
	c.lenders(from)
	c.unusedKeys()
	c.set.namespaces[doc.Namespace] = c.ns
}

// policies refuses two rates of one policy, by which they are overridden and told to clients:
// names have dots, and rule a.b with rate c is as rule a with rate b.c.
func (c *compiler) policies(from int) {
	rules, of := c.set.rules[from:], map[string]int{}
	if !slices.ContainsFunc(rules, func(r *Rule) bool {
		return slices.ContainsFunc(r.Rates, func(rate *Rate) bool { return strings.Contains(rate.Name, ".") })
	}) {
		return
	}
	for i, r := range rules {
		for k, rate := range r.Rates {
			if j, dup := of[rate.Policy]; dup && j != i {
				path := indexed("rules", i)
				if r.Live != nil {
					path = candidatePath(r, from)
				}
				c.problem(fmt.Sprintf("%s.rates[%d].name", path, k), "E114", "a name without a dot", "rate %q of rule %q and rule %q with one of its own are both %q, by which they are overridden and told", rate.Name, r.Name, rules[j].Name, rate.Policy)
			} else {
				of[rate.Policy] = i
			}
		}
	}
}

// bounded refuses rules that meet more counters together than a decision can ask: one of
// each group applies, and asks the parent that it may borrow from.
func (c *compiler) bounded() {
	counters := 0
	for i := range c.ns.groups {
		most := 0
		for _, r := range c.ns.groups[i].rules {
			asks := len(r.Rates)
			if r.Candidate != nil {
				asks += len(r.Candidate.Rates)
			}
			if r.Elastic != nil && r.Elastic.Parent != nil {
				asks += len(r.Elastic.Parent.Rates)
			}
			most = max(most, asks)
		}
		counters += most
	}
	if counters > MaxCounters {
		c.problem("rules", "E104", "fewer groups, or fewer rates in their rules", "a request may meet %d rates, one rule of each group, with its candidate, and the parents that they borrow from; at most %d can be asked", counters, MaxCounters)
	}
}

func (c *compiler) rule(path string, spec *RuleSpec) *Rule {
	r := &Rule{
		Index: len(c.set.rules), Namespace: c.doc.Namespace, Name: spec.Name, Priority: spec.Priority,
		Allow: spec.Allow, Deny: spec.Deny, TellKeys: spec.TellKeys, Headers: spec.OnLimit.Headers, Status: cmp.Or(spec.OnLimit.Status, defaultStatus(spec)),
		cost: cmp.Or(spec.Cost.Default, 1), maxCost: cmp.Or(spec.Cost.Max, tooMuch),
		identity: identity(c.doc.Namespace, spec), counts: new(counts),
	}
	c.set.rules = append(c.set.rules, r)
	if !nameForm.MatchString(spec.Name) {
		c.problem(path+".name", "E111", `such as "api-per-user"`+nameLetters, "%.80q is not a name", spec.Name)
	}
	r.Mode = enum(c, modeNames, word{path + ".mode", spec.Mode}, word{"defaults.mode", c.doc.Defaults.Mode}, word{"", "enforce"})
	c.consistency(word{path + ".consistency", spec.Consistency})
	c.partition(word{path + ".on_partition", spec.OnPartition})
	c.onLimit(path+".on_limit", spec, r)
	told := len(c.problems)
	c.match(path+".match", &spec.Match, &r.match)
	for i, name := range spec.Key {
		if slices.Contains(spec.Key[:i], name) {
			c.problem(indexed(path+".key", i), "E126", "name it once", "%q is a part of the key already", name)
		}
		r.key = append(r.key, c.keyPart(indexed(path+".key", i), name))
	}
	if spec.TellKeys && (len(spec.Key) == 0 || len(spec.Rates) == 0 && spec.MinGap == 0) {
		c.problem(path+".tell_keys", "E340", "leave it out", "the rule has no key that it could deny")
	}
	sound := len(c.problems) == told // else what is wrong with a name may be all
	c.cost(path+".cost", &spec.Cost, r)
	switch {
	case spec.Allow && spec.Deny:
		c.problem(path+".deny", "E135", "drop one", "a rule allows or denies, not both")
	case spec.Allow && len(spec.Rates) > 0:
		c.problem(path+".rates", "E131", "drop the rates, or allow", "a rule that allows has no rates")
	case spec.Deny && len(spec.Rates) > 0:
		c.problem(path+".rates", "E131", "drop the rates, or deny", "a rule that denies has no rates")
	case !spec.Allow && !spec.Deny && len(spec.Rates) == 0 && spec.MinGap == 0:
		c.problem(path+".rates", "E132", `such as: rates: [{limit: 100, per: 1m}]`, "there is no rate")
	case len(spec.Rates) > maxRates || len(spec.Rates) == maxRates && spec.MinGap != 0:
		c.problem(path+".rates", "E133", "give some to a second rule with the same key", "%d rates; a rule has at most %d, min_gap among them", len(spec.Rates), maxRates)
	}
	counted := *spec // with count_when in the form that its generations go by
	if !spec.Allow && !spec.Deny {
		counted.CountWhen = c.countWhen(path+".count_when", spec.CountWhen, r)
	}
	if sound {
		c.contradictions(path, r)
	}
	names := map[string]bool{}
	for i := range spec.Rates {
		p := fmt.Sprintf("%s.rates[%d]", path, i)
		rate := c.rate(p, &counted, &spec.Rates[i])
		if names[rate.Name] && rate.Name != WindowName(0) || rate.Name == minGapName && spec.MinGap != 0 {
			c.problem(p+".name", "E142", "name the rates apart", "%q is already the name of a rate of this rule", rate.Name)
		}
		names[rate.Name] = true
		r.Rates = append(r.Rates, rate)
	}
	if spec.Allow || spec.Deny {
		c.needRates(path, spec)
	} else {
		c.minGap(path+".min_gap", &counted, r)
		c.margins(path+".margin", &spec.Margin, r)
		c.overLimit(path, spec, r)
		c.classes(path+".classes", &spec.Classes, r)
		c.conflicts(path, spec, r)
		c.strict(path, spec, r)
		c.partitions(path, spec, r)
	}
	c.tiers(path, spec, r)
	return r
}

func (c *compiler) onLimit(path string, spec *RuleSpec, r *Rule) {
	if r.Status < 400 || r.Status > 599 {
		c.problem(path+".status", "E151", "429", "%d is not an HTTP error status", r.Status)
	}
	if len(r.Headers) == 0 {
		r.Headers = []string{HeaderProfiles[0]}
	}
	for i, h := range r.Headers {
		if !slices.Contains(HeaderProfiles, h) {
			c.problem(fmt.Sprintf("%s.headers[%d]", path, i), "E152", strings.Join(HeaderProfiles, ", "), "%q is no header profile", h)
		}
	}
	r.Show = enum(c, showNames, word{path + ".show_headers", spec.OnLimit.ShowHeaders}, word{"", "tightest"})
	c.headersInVain(path, spec, r)
	c.headersAtOdds(path, r)
	c.deferral(path+".defer", spec, r)
}

// headersInVain warns of sets of headers that make no difference.
func (c *compiler) headersInVain(path string, spec *RuleSpec, r *Rule) {
	const code = "W245"
	if given := spec.OnLimit.Headers; r.Show == ShowNone && slices.ContainsFunc(given, func(h string) bool { return h != "none" }) {
		c.warn(path+".headers", code, "drop one of the two", "show_headers: none: nobody is told of this rule, in whatever headers")
		return
	}
	for i, h := range r.Headers {
		switch at := indexed(path+".headers", i); {
		case slices.Contains(r.Headers[:i], h):
			c.warn(at, code, "name it once", "%q is among them already", h)
		case h == "none" && slices.ContainsFunc(r.Headers, func(other string) bool { return other != h }):
			c.warn(at, code, "none alone, or without it", "none makes no difference beside others: they are sent")
		}
	}
}

// headersAtOdds warns of two sets that write a field differently: that of the first is sent,
// and who was to be told by the other takes it for its own. Envoy's reset is a delay, that
// of the others a moment, by which Octokit waits, or asks on and on.
func (c *compiler) headersAtOdds(path string, r *Rule) {
	for i, h := range r.Headers {
		odd := []string{"envoy"} // beside those that have a moment
		switch h {
		case "envoy":
			odd = []string{"github", "x-ratelimit"}
		case "github", "x-ratelimit":
		default:
			continue
		}
		if at := slices.IndexFunc(r.Headers[:i], func(before string) bool { return slices.Contains(odd, before) }); at >= 0 {
			c.warn(indexed(path+".headers", i), "W247", "one of the two, in rules of their own if need be; Octokit heeds github and x-ratelimit, and asks on and on by envoy",
				"%q writes X-RateLimit-Limit and -Reset in another way than %q, which is sent as it stands first", h, r.Headers[at])
			return
		}
	}
}

// LongestDefer bounds how long a request may wait to be done.
const LongestDefer = 7 * 24 * time.Hour

func (c *compiler) deferral(path string, spec *RuleSpec, r *Rule) {
	d := &spec.OnLimit.Defer
	for i, m := range d.Methods {
		c.method(Problem{Path: indexed(path+".methods", i)}, m)
	}
	switch {
	case d.For == 0 && len(d.Methods) == 0:
		return
	case d.For <= 0 || d.For > LongestDefer:
		c.problem(path+".for", "E317", "1s to 168h, such as 1h", "how long requests may wait is missing, or out of range")
	case spec.Allow || spec.Deny:
		c.problem(path, "E318", "leave it out", "a rule without rates has no room to wait for")
	case r.Status != 429:
		c.problem(path, "E318", "leave out status, or defer", "a request that is answered %d is not told to come again", r.Status)
	case r.Mode == Shadow:
		c.problem(path, "E318", "leave out defer, or mode: shadow", "a rule in shadow denies nothing that could wait")
	case slices.ContainsFunc(spec.Rates, func(r RateSpec) bool { return r.CountDenied }):
		c.problem(path, "E318", "leave out count_denied, or defer", "each try of what waits would count, and leave no room for the next")
	case cmp.Or(spec.Charge, c.doc.Defaults.Charge) == ChargeEach.String():
		c.problem(path, "E318", "charge: all_or_nothing, or leave out defer", "each try of what waits would count, and leave no room for the next")
	case slices.ContainsFunc(spec.Rates, func(r RateSpec) bool { return r.Limit == 0 && r.Capacity == 0 }):
		c.problem(path, "E318", "leave out defer, or give it a limit", "a limit of 0 never has room to wait for")
	}
	r.Defer = *d
}

func (c *compiler) consistency(ws ...word) {
	enum(c, consistencyNames, append(ws, word{"", Adaptive.String()})...)
}

func (c *compiler) partition(w word) { enum(c, partitionNames, w, word{"", PartitionShare.String()}) }

// word is a value that a document may give, with the place that it came from.
type word struct{ path, value string }

// enum looks up the first word that is given, and reports it where it stands
// if it is unknown.
func enum[T ~uint8](c *compiler, words map[string]T, given ...word) T {
	i := slices.IndexFunc(given, func(w word) bool { return w.value != "" })
	v, ok := words[given[i].value]
	if ok {
		return v
	}
	hint := strings.Join(slices.Sorted(maps.Keys(words)), ", ")
	if unbuilt(given[i].value) {
		c.problem(given[i].path, "E181", hint, "%q is not built yet", given[i].value)
	} else {
		c.problem(given[i].path, "E180", hint, "%q is not one of its values", given[i].value)
	}
	return v
}

// unbuilt says whether a word belongs to the language of rules, but not to
// this version of it.
func unbuilt(word string) bool {
	return strings.HasPrefix(word, "group:")
}
