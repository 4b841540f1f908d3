package limit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Warnings are what Compile found that works, but hardly as it was meant: by
// document, in the order of compiling. Their codes start with W.
func (s *Set) Warnings() []Problems { return s.warnings }

func (c *compiler) warn(path, code, hint, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{Path: path, Code: code, Detail: fmt.Sprintf(format, args...), Hint: hint})
}

// suspicions warns about a document that was compiled. first is the Index of
// its first rule.
func (c *compiler) suspicions(doc *Document, first int) {
	if len(doc.Tenants) > 0 && !slices.ContainsFunc(doc.Rules, func(s RuleSpec) bool { return s.TierFrom != "" }) {
		c.warn("tenants", "W212", "tier_from: plan, in the rules whose limits they multiply", "no rule says which tenant a request is of: nothing is multiplied")
	}
	c.nearNames()
	for i := range doc.Rules {
		c.shutOut(fmt.Sprintf("rules[%d].classes.reserve", i), c.set.rules[first+i])
		c.unseen(fmt.Sprintf("rules[%d]", i), c.set.rules[first+i])
		c.slips(indexed("rules", i), &doc.Rules[i], c.set.rules[first+i])
		c.seldom(indexed("rules", i), c.set.rules[first+i])
	}
	c.inTheWay(first)
	c.queues(doc, first)
}

// inTheWay warns of rules that never apply, as one before them takes all that
// they match, and of rules that share requests with one of the same priority.
func (c *compiler) inTheWay(first int) {
	never := search{left: searchWork, meets: func(before, r *ranked) bool { return before.covers(r) }}
	shared := search{left: searchWork, meets: func(before, r *ranked) bool { return before.overlaps(r) }}
	trials, lends := searchWork, map[*Rule]bool{}
	for i := range c.ns.groups {
		for _, r := range c.ns.groups[i].rules {
			if r.Elastic != nil && r.Elastic.Parent != nil {
				lends[r.Elastic.Parent] = true
			}
		}
	}
	for i := range c.ns.groups {
		if many := c.ns.groups[i].inTurn; len(many) > 0 {
			c.warn(indexed("rules", many[0].Index-first)+".match", "W227",
				"give them a path, a host, a method or attributes; of conditions == and in of text are looked up, and has: not numbers, lower, contains, startsWith, inCIDR, nor an or of different names",
				"%d rules, %q the first, are asked one by one: each request that meets none of them takes the longer, the more there are", len(many), many[0].Name)
		}
		if many := c.ns.groups[i].onePath; many.rules > 0 {
			head := c.ns.groups[i].rules[many.first]
			c.warn(indexed("rules", head.Index-first)+".match.path", "W227", "names where they have stars; or fewer of them, with what tells requests apart in keys",
				"%d rules, %q the first, have stars by which one path may fit them all: a request of it that meets none, as it lacks what is in their keys, is held against one after the other", many.rules, head.Name)
		}
		rules := rankedOf(c.ns.groups[i].rules)
		covered := never.all(rules)
		c.trials(rules, covered, first, &trials)
		for from := 0; from < len(rules); {
			to := from + 1
			for to < len(rules) && rules[to].Priority == rules[from].Priority {
				to++
			}
			overlapping := shared.all(rules[from:to])
			for _, r := range rules[from:to] {
				path := indexed("rules", r.Index-first) + ".priority"
				other, also := covered[r], overlapping[r]
				switch {
				case other != nil && lends[r.Rule]: // and is there for that
				case other != nil:
					c.warn(path, "W205", "a higher priority, or a group of its own; or drop it", "%q never applies: %q comes before it, and takes all that it matches", r.Name, other.Name)
				case also != nil && r.match.when == nil && also.match.when == nil:
					c.warn(path, "W201", "give one of them a higher priority, or a group of its own",
						"%q and %q have the same priority and can meet the same requests: %q applies then, as it stands first", also.Name, r.Name, also.Name)
				case also != nil:
					c.warn(path, "W201", "give one of them a higher priority, or a group of its own",
						"%q and %q have the same priority and, as far as their conditions tell, can meet the same requests: %q applies then, as it stands first", also.Name, r.Name, also.Name)
				}
			}
			from = to
		}
	}
	if never.left < 0 || shared.left < 0 || trials < 0 {
		c.unsearched("some may have the same priority and the same requests, or never apply")
	}
}

// trials warns of rules in shadow that take requests from one in force, which nothing limits
// then: those of a group, in the order in which they are asked.
func (c *compiler) trials(rules []*ranked, covered map[*ranked]*ranked, first int, left *int) {
	var inForce []*ranked
	for _, r := range rules {
		if r.Mode == Enforce && covered[r] == nil { // else it is told that it never applies
			inForce = append(inForce, r)
		}
	}
	for _, trial := range rules {
		if trial.Mode != Shadow {
			continue
		}
		for i := len(inForce) - 1; i >= 0 && inForce[i].rank > trial.rank; i-- {
			r := inForce[i]
			if *left -= trial.comparing(r); *left < 0 {
				return
			}
			if trial.Priority > r.Priority && trial.overlaps(r) {
				c.warn(indexed("rules", trial.Index-first)+".mode", "W263", "a group of its own, as long as it is tried out",
					"%q denies nothing, and comes before %q: of requests that meet both nothing is denied", trial.Name, r.Name)
				break
			}
		}
	}
}

// unsearched warns that a search through rules was given up.
func (c *compiler) unsearched(may string) {
	c.warn("rules", "W238", "give more of them a path, method, host, network or attribute that no other has, or groups of their own",
		"the rules have too little that tells them apart for all to be compared with each other: %s, and it is not told", may)
}

// shutOut warns of a reserve that leaves nothing to the least class: of small
// limits a part is a whole one, and tenants may have small ones.
func (c *compiler) shutOut(path string, r *Rule) {
	for i, v := range append([]*Rule{r}, r.variants...) {
		for _, rate := range v.Rates {
			w := rate.Withheld(0)
			if w == 0 || w < rate.Ceiling {
				continue
			}
			larger := "a larger limit"
			if rate.Queue && rate.MaxWait > 0 {
				larger = "a longer max_wait, if the capacity is larger than that lets in"
			}
			c.warn(path, "W203", larger+", or a smaller reserve", "class %q never passes: all %d of %s%s are reserved", r.classes.names[0], w, rate.Name, c.whose(i))
			return
		}
	}
	c.roundedUp(path, r)
}

// roundedUp warns of reserves that are less than one of a limit, of which one is reserved.
func (c *compiler) roundedUp(path string, r *Rule) {
	for i, v := range append([]*Rule{r}, r.variants...) {
		for _, rate := range v.Rates {
			capacity, whose := rate.Limit-rate.Drain.Floor, strings.TrimSuffix(c.whose(i), ",")
			for class, p := range rate.parts.withheld {
				if p > 0 && capacity > 0 && p.on(capacity) == capacity {
					c.warn(path, "W261", fmt.Sprintf("%v%% or more, or a larger limit", math.Ceil(1e4/float64(capacity))/100),
						"what is reserved from class %q is less than one of the %d of %s%s: one is", r.classes.names[class], capacity, rate.Name, whose)
					return
				}
			}
		}
	}
}

// unseen warns of buckets that empty within a slice: what others pour in has
// drained, for all that this edge can tell, before it counts.
func (c *compiler) unseen(path string, r *Rule) {
	for k, rate := range r.Rates {
		if !rate.Bucket() || rate.Scope == ScopeEdge {
			continue
		}
		empty := time.Duration(product(rate.Limit-rate.Drain.Floor, uint64(rate.Drain.Per)).overUp(rate.Drain.Refill))
		if empty >= MinWidth {
			continue
		}
		at := fmt.Sprintf("%s.rates[%d].capacity", path, k)
		if rate.PerRequest {
			at = path + "." + minGapName
		}
		c.warn(at, "W204", "scope: edge, or a larger capacity", "%s is empty again in %v, less than %v, the resolution: other edges' charges will not count", rate.Name, empty, MinWidth)
	}
}

// queues warns of requests that meet two queues, whose longer wait is theirs: a queue that
// another keeps requests of for longer has let them out by its own count long before.
func (c *compiler) queues(doc *Document, first int) {
	var waits []*ranked
	groups := map[string]bool{}
	for i := range doc.Rules {
		if r := c.set.rules[first+i]; r.queues() {
			c.queuesOf(indexed("rules", i), &doc.Rules[i], r)
			c.slotsOfQueue(indexed("rules", i), &doc.Rules[i], r)
			waits = append(waits, &ranked{r, i, r.facts()})
			groups[doc.Rules[i].Group] = true
		}
	}
	if len(groups) < 2 {
		return
	}
	s := search{left: searchWork, found: map[*ranked]*ranked{}, meets: func(before, r *ranked) bool {
		return doc.Rules[before.rank].Group != doc.Rules[r.rank].Group && before.overlaps(r)
	}}
	if s.among(waits, traitsOf(waits)); s.left < 0 {
		c.unsearched("some of different groups may both make the same requests wait")
	}
	for _, r := range waits {
		other := s.found[r]
		if other == nil {
			continue
		}
		path, as := indexed("rules", r.rank)+".max_delay", ""
		if k := slices.IndexFunc(r.Rates, func(rate *Rate) bool { return rate.Queue }); k >= 0 {
			path = fmt.Sprintf("rules[%d].rates[%d].queue", r.rank, k)
		}
		if r.match.when != nil || other.match.when != nil {
			as = ", as far as their conditions tell,"
		}
		c.warn(path, "W233", "let one of them deny, without a queue or max_delay; or match different requests",
			"%q and %q both make requests wait, and%s can meet the same ones: these wait for the longer of the two alone, so that the other may let more out at once than flows out of it", other.Name, r.Name, as)
	}
}

// queuesOf warns of two queues of one rule. The same requests stand in both, and wait in
// the slower one alone; but where two rates count differently, neither may be that.
func (c *compiler) queuesOf(path string, spec *RuleSpec, r *Rule) {
	for k, rate := range r.Rates {
		for i, other := range r.Rates[:k] {
			if !(rate.Queue && other.Queue || r.MaxDelay > 0) {
				continue
			}
			at, faster := path+".max_delay", rate
			if drains := product(rate.Drain.Refill, uint64(other.Drain.Per)); drains.less(product(other.Drain.Refill, uint64(rate.Drain.Per))) {
				faster = other
			}
			if rate.Queue {
				at = fmt.Sprintf("%s.rates[%d].queue", path, k)
			}
			switch {
			case rate.Scope != other.Scope || rate.PerRequest != other.PerRequest && spec.Cost.given():
				c.warn(at, "W233", "let one of them deny: without queue, or in a rule of its own without max_delay",
					"requests wait for the longer of %s and %s alone, which do not count the same: the other may let more out at once than flows out of it", other.Name, rate.Name)
			case rate.Queue:
				if faster == other {
					at = fmt.Sprintf("%s.rates[%d].queue", path, i)
				}
				c.warn(at, "W233", "drop it, or its queue", "%s makes nobody wait: the same requests stand in both queues of the rule, and wait in the slower one", faster.Name)
			default:
				continue
			}
			return
		}
	}
}

// slotsOfQueue warns of slots of which those may hold all who wait in a queue of the same
// rule, as who waits was admitted.
func (c *compiler) slotsOfQueue(path string, spec *RuleSpec, r *Rule) {
	for k, rate := range r.Rates {
		for i, queue := range r.Rates {
			if rate.Lease == 0 || !queue.Queue {
				continue
			}
			wait := queue.Limit
			if queue.MaxWait > 0 {
				goOut, _ := product(queue.Drain.Refill, uint64(queue.MaxWait)).over(uint64(queue.Drain.Per))
				wait = min(wait, crdt.SatAdd(goOut, 1))
			}
			if len(spec.Cost.ByRoute) == 0 && len(spec.Cost.FromHeader) == 0 {
				wait = max(1, wait/max(1, r.cost))
			}
			if rate.Limit <= wait {
				c.warn(fmt.Sprintf("%s.rates[%d].limit", path, k), "W237", fmt.Sprintf("more than %d, by as many as may run at once; or drop one of the two", wait),
					"who waits in %s (rates[%d]) holds a slot of %s meanwhile: no more than %d wait and run together, and while so many wait none runs", queue.Name, i, rate.Name, rate.Limit)
				return
			}
		}
	}
}

// queues says that requests wait under the rule.
func (r *Rule) queues() bool {
	return r.Mode != Shadow && (r.MaxDelay > 0 || slices.ContainsFunc(r.Rates, func(rate *Rate) bool { return rate.Queue }))
}
