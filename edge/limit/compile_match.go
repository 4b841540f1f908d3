package limit

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// methodForm is a token of HTTP, in upper case.
var methodForm = regexp.MustCompile("^[A-Z0-9!#$%&'*+.^_`|~-]+$")

func (c *compiler) match(path string, spec *MatchSpec, m *match) {
	for i, s := range spec.Path {
		p, err := compilePattern(s)
		if err != nil {
			c.problem(fmt.Sprintf("%s.path[%d]", path, i), "E161", `such as "/api/**" or "/users/*/keys"`, "%v", err)
		}
		c.escaped(Problem{Path: indexed(path+".path", i)}, s)
		c.templated(Problem{Path: indexed(path+".path", i)}, s)
		m.paths = append(m.paths, p)
	}
	if len(m.paths) > scanned {
		m.tree = treeOf(m.paths)
	}
	for i, s := range spec.Methods {
		c.method(Problem{Path: indexed(path+".methods", i)}, s)
		m.methods.add(s)
	}
	for i, s := range spec.Host {
		if err := m.hosts.add(s); err != nil {
			c.problem(fmt.Sprintf("%s.host[%d]", path, i), "E164", `such as "api.example.com" or "*.example.com"`, "%v", err)
			continue
		}
		c.beyondASCII(Problem{Path: indexed(path+".host", i)}, s)
	}
	for i, s := range spec.CIDR {
		p, err := ParseNetwork(s)
		if inside := (*HostBitsError)(nil); errors.As(err, &inside) {
			c.problem(fmt.Sprintf("%s.cidr[%d]", path, i), "E169", inside.Hint(), "%v", err)
			continue
		} else if err != nil {
			c.problem(fmt.Sprintf("%s.cidr[%d]", path, i), "E163", `such as "10.0.0.0/8", "2001:db8::/32" or "192.0.2.1"`, "%v", err)
			continue
		}
		m.networks.prefixes = append(m.networks.prefixes, p)
	}
	m.networks.join()
	for _, name := range slices.Sorted(maps.Keys(spec.Equals)) {
		c.equals(path+".equals."+name, name, spec.Equals[name], m)
	}
	m.has, m.lacks = c.sourceList(path+".has", spec.Has), c.sourceList(path+".lacks", spec.Lacks)
	c.when(path+".when", spec.When, m)
	m.all = len(spec.Path)+len(spec.Methods)+len(spec.Host)+len(spec.CIDR)+len(spec.Equals)+len(spec.Has)+len(spec.Lacks) == 0 && spec.When == ""
}

func (c *compiler) sourceList(path string, names []string) (list []source) {
	list = make([]source, 0, len(names))
	for i, name := range names {
		list = append(list, c.source(indexed(path, i), name))
	}
	return list
}

// meansAny says that a word is written for any method. It is a token of HTTP, and
// no method that anybody has.
func meansAny(method string) bool {
	return strings.Contains(method, "*") || strings.EqualFold(method, "any") || strings.EqualFold(method, "all")
}

// method reports a word that no request has as its method.
func (c *compiler) method(at Problem, s string) {
	if meansAny(s) {
		c.refuse(at, "E162", "leave methods out: then the rule is of all", "%q is not a method, and stands for none", s)
	} else if strings.Contains(s, "|") { // likewise
		c.refuse(at, "E162", fmt.Sprintf("[%s]", strings.ReplaceAll(strings.ToUpper(s), "|", ", ")), "%q is not a method: one an entry", s)
	} else if hint := strings.ToUpper(s); s != hint && methodForm.MatchString(hint) {
		c.refuse(at, "E162", hint, "%q is not a method: they are upper case", s)
	} else if !methodForm.MatchString(s) {
		c.refuse(at, "E162", "one method an entry, such as [GET, POST]", "%q is not a method", s)
	}
}

func (c *compiler) equals(path, name string, values []string, m *match) {
	e := equal{source: c.source(path, name)}
	if len(values) == 0 {
		c.problem(path, "E165", "such as: equals: {tier: gold}", "%q is compared with nothing", name)
	}
	for i, v := range values {
		if v == "" {
			c.problem(fmt.Sprintf("%s[%d]", path, i), "E165", "lacks: "+name, "an absent attribute has no value to compare")
		}
		c.compared(Problem{Path: indexed(path, i)}, e.slots, v, Whole)
		e.add(v)
	}
	m.equals = append(m.equals, e)
}

// when compiles the condition, if there is one.
func (c *compiler) when(path, text string, m *match) {
	if text == "" {
		return
	}
	m.when = c.condition(path, text, func(name string) (Attribute, bool) {
		c.use(path, name)
		a, ok := c.attribute(name)
		m.whenByPath = m.whenByPath || slices.Contains(a.slots, slotPath)
		return a, ok
	})
	m.text = text
	m.wants = wanted(m.when, "match.when")
}

// wanted is what a condition wants, by the word that has it.
func wanted(condition Condition, by string) (facts []fact) {
	told, ok := condition.(Wanting)
	if !ok {
		return nil
	}
	for _, w := range told.Wants() {
		f := fact{source: source{w.Name, w.Of.slots}, choice: &choice{}, not: w.Not, by: by}
		for _, v := range w.Values {
			f.add(v)
		}
		facts = append(facts, f)
	}
	return facts
}

// beyondASCII warns of a host with letters that clients do not send.
func (c *compiler) beyondASCII(at Problem, host string) {
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		c.doubt(at, "W244", `in punycode, as clients send it: "xn--mnchen-3ya.de" is münchen.de`, "no client sends %q: hosts are in ASCII", host)
	}
}

// attribute is how conditions find what a name stands for.
func (c *compiler) attribute(name string) (Attribute, bool) {
	src, named := c.doc.Keys[name]
	if !named && !attributeForm.MatchString(name) {
		return Attribute{}, false
	}
	known := named || slices.Contains(fixedNames[:], name)
	return Attribute{slots: c.slotsOf(name, src), Known: known}, true
}

// defaultStatus is 403 for those whom waiting does not help.
func defaultStatus(spec *RuleSpec) int {
	if spec.Deny {
		return 403
	}
	return 429
}
