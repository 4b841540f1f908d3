package limit

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// descriptors makes rules of a tree, one for each limit in the order of the document,
// and after them one for each unit that a descriptor may bring a limit of its own in.
func (c *compiler) descriptors(doc *Document) {
	c.set.namespaces[doc.Namespace] = c.tree(doc)
}

// descriptorLimits makes the rules of limits that descriptors bring to domains of rules.
func (c *compiler) descriptorLimits() {
	doc := Document{Namespace: "(descriptors)", Descriptors: &DescriptorSpec{}} // no name that rules may have
	own := compiler{opts: c.opts, set: c.set, used: map[string]string{}, sourced: map[string]source{}, ns: newNamespace(doc.Namespace)}
	c.set.descriptorLimits = own.tree(&doc)
}

func (c *compiler) tree(doc *Document) *Namespace {
	g := grower{}
	tree := &Descriptors{}
	g.grow(&tree.root, doc.Descriptors, "")
	for _, u := range DescriptorUnits {
		g.rules = append(g.rules, descriptorRuleOf(overrideName(u), &DescriptorLimit{Requests: math.MaxUint32, Unit: u.Length}))
	}
	c.doc = &Document{Namespace: doc.Namespace, Defaults: doc.Defaults, Rules: g.rules}
	rules := make([]*Rule, len(g.rules))
	for i := range g.rules {
		rules[i] = c.rule(indexed("rules", i), &g.rules[i])
		rules[i].Brought = i >= len(g.rules)-len(DescriptorUnits)
	}
	c.ns.groups = []group{newGroup(rules)}
	c.ns.readPaths()
	tree.rule, _ = c.ns.Slot(descriptorRule)
	tree.key, _ = c.ns.Slot(descriptorKey)
	c.ns.descriptors = tree
	return c.ns
}

// grower makes a tree, and the rules of its limits.
type grower struct{ rules []RuleSpec }

// grow makes what is below a place, whose path is that of its rule's name.
func (g *grower) grow(to *descriptor, spec *DescriptorSpec, path string) {
	to.values, to.keys = map[[2]string]*descriptor{}, map[string]*descriptor{}
	for i := range spec.Below {
		s := &spec.Below[i]
		below := &descriptor{}
		whole := s.Key
		if s.Value != "" {
			whole += "_" + s.Value
		}
		switch {
		case strings.Contains(s.Key, "*"):
			to.stars = append(to.stars, starred{parts: strings.Split(whole, "*"), to: below})
			below.share(s, whole)
		case strings.Contains(s.Value, "*"):
			to.stars = append(to.stars, starred{key: s.Key, parts: strings.Split(s.Value, "*"), to: below})
			below.share(s, s.Value)
		}
		// As a text a star matches itself, before all that it may stand for.
		if s.Value != "" {
			to.values[[2]string{s.Key, s.Value}] = below
		} else {
			to.keys[s.Key] = below
		}
		name := dots.Replace(whole)
		if path != "" {
			name = path + "." + name
		}
		if s.Limit != nil {
			l := *s.Limit
			if below.limit = &l; !l.Unlimited {
				l.rule = descriptorName(name)
				g.rules = append(g.rules, descriptorRuleOf(l.rule, &l))
			}
		}
		g.grow(below, s, name)
	}
}

func (d *descriptor) share(spec *DescriptorSpec, pattern string) {
	if spec.Share {
		d.shared = pattern
	}
}

// dots are those in a key or a value, which do not end it.
var dots = strings.NewReplacer(".", `\.`, `\`, `\\`)

// descriptorName is the rule's at a path of the tree: the path, or what is left of it
// where it is too long or has other letters than names have, and a hash of it. So it is
// the same on every edge, whatever else stands in the file.
func descriptorName(path string) string {
	if nameForm.MatchString(path) && !strings.HasPrefix(path, overridePrefix) {
		return path
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(path)) // a hash never fails
	hash := fmt.Sprintf("-%016x", h.Sum64())
	name := "d-" + strings.Map(func(r rune) rune {
		if nameForm.MatchString("a" + string(r)) {
			return r
		}
		return '-'
	}, path)
	return name[:min(len(name), longestName-len(hash))] + hash
}

// longestName is what nameForm allows.
const longestName = 63

const overridePrefix = "override."

func overrideName(u DescriptorUnit) string { return overridePrefix + u.Name }

// descriptorRuleOf is the rule of a limit.
func descriptorRuleOf(name string, l *DescriptorLimit) RuleSpec {
	at := slices.IndexFunc(DescriptorUnits, func(u DescriptorUnit) bool { return u.Length == l.Unit })
	rate := RateSpec{Limit: uint64(l.Requests), Per: l.Unit, Algorithm: FixedWindow.String(), Align: "epoch"}
	if at >= 0 {
		rate.Name = DescriptorUnits[at].Name
	}
	mode := "enforce"
	if l.Shadow {
		mode = "shadow"
	}
	return RuleSpec{
		Name: name, Match: MatchSpec{Equals: map[string][]string{descriptorRule: {name}}}, Key: []string{descriptorKey},
		Rates: []RateSpec{rate}, Mode: mode, Charge: ChargeEach.String(), OnLimit: OnLimitSpec{Headers: []string{"none"}},
	}
}
