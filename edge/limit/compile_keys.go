package limit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What is compared to find a slip in the names of keys: enough for people, and
// a bound for whoever writes files by the thousand lines.
const (
	mostUnused     = 100
	mostUndeclared = 1000
)

// use notes that a rule names a key or an attribute.
func (c *compiler) use(path, name string) {
	if c.used[name] == "" {
		c.used[name] = path
	}
}

// unusedKeys reports the keys that no rule uses where a rule uses a name that
// is almost the same and not declared. The rule would look for an attribute
// that nobody sends, and limit nobody. Other unused keys do no harm.
func (c *compiler) unusedKeys() {
	var undeclared []string
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		_, declared := c.doc.Keys[name]
		if declared || slices.Contains(fixedNames[:], name) || strings.HasPrefix(name, headerPrefix) || !attributeForm.MatchString(name) {
			continue
		}
		if undeclared = append(undeclared, name); len(undeclared) == mostUndeclared {
			break
		}
	}
	unused := 0
	for _, name := range slices.Sorted(maps.Keys(c.doc.Keys)) {
		if c.used[name] != "" {
			continue
		}
		if unused++; unused > mostUnused {
			return
		}
		for _, word := range undeclared {
			// Of short words two edits leave nothing.
			edits := min(2, min(len(name), len(word))/3)
			if edits > 0 && withinEdits(name, word, edits) {
				c.problem(c.used[word], "E125", fmt.Sprintf("did you mean %q? else rename the key", name), "%q is not declared, and no rule uses the key %q", word, name)
				break
			}
		}
	}
}

// withinEdits says whether that many insertions, deletions, replacements and
// swaps of neighbours make b of a. Its time grows with 4 to the power of edits.
func withinEdits(a, b string, edits int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= edits
	case edits == 0:
		return false
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && withinEdits(a[2:], b[2:], edits-1):
		return true
	}
	return withinEdits(a[1:], b, edits-1) || withinEdits(a, b[1:], edits-1) || withinEdits(a[1:], b[1:], edits-1)
}

func (c *compiler) keySource(path, name string, k KeySource) {
	if !attributeForm.MatchString(name) {
		c.problem(path, "E121", "use letters, digits and _, or header.NAME", "%q is not a name for a key", name)
	}
	for i, from := range k.From {
		if !attributeForm.MatchString(from) {
			c.problem(fmt.Sprintf("%s.from[%d]", path, i), "E122", `client_ip, method, path, host, header.NAME, or a name that callers send`, "%q is not an attribute", from)
		}
		if from == name {
			continue
		}
		if slices.Contains(fixedNames[:], name) {
			c.problem(fmt.Sprintf("%s.from[%d]", path, i), "E128", "a key of another name, such as: my_"+name+": {from: "+from+"}",
				"%s is there with every request over HTTP, and %s would never be read", name, from)
			continue
		}
		c.keyOfKey(fmt.Sprintf("%s.from[%d]", path, i), k, from)
	}
	if k.IPv4Prefix < 0 || k.IPv4Prefix > 32 {
		c.problem(path+".ipv4_prefix", "E123", "1 to 32 bits", "%d bits", k.IPv4Prefix)
	}
	if k.IPv6Prefix < 0 || k.IPv6Prefix > 128 {
		c.problem(path+".ipv6_prefix", "E123", "1 to 128 bits", "%d bits", k.IPv6Prefix)
	}
}

// keyOfKey refuses to take for a key's attribute what is a key itself, as nothing
// that is said of that key would hold.
func (c *compiler) keyOfKey(path string, k KeySource, from string) {
	key := c.doc.Keys[from]
	if slices.ContainsFunc(key.From, func(s string) bool { return s != from }) {
		c.problem(path, "E127", "write out what that key comes from: "+strings.Join(key.From, ", "),
			"%q is a key, and from takes attributes only: it would read the attribute of that name, and nothing that the key comes from", from)
		return
	}
	for _, p := range []struct {
		name       string
		said, here int
	}{{"ipv4_prefix", key.IPv4Prefix, k.IPv4Prefix}, {"ipv6_prefix", key.IPv6Prefix, k.IPv6Prefix}} {
		if p.said != 0 && p.here == 0 {
			c.problem(path, "E127", fmt.Sprintf("%s: %d here too", p.name, p.said), "%q is a key, and from takes attributes only: its %s would not hold here", from, p.name)
			return
		}
	}
}

func (c *compiler) keyPart(path, name string) keyPart {
	ip, v4, v6 := addressPart(name, c.doc.Keys[name])
	return keyPart{source: c.source(path, name), ip: ip, v4: v4, v6: v6}
}

// addressPart says whether a part of a key is an address, and how many bits of
// it make the key.
func addressPart(name string, src KeySource) (ip bool, v4, v6 int) {
	ip = src.IP || name == fixedNames[slotClientIP] || slices.Contains(src.From, fixedNames[slotClientIP])
	return ip, cmp.Or(src.IPv4Prefix, 32), cmp.Or(src.IPv6Prefix, 64)
}

// source is a name and what it stands for, which is found once a document: ten thousand rules
// that lack a hundred names each name a million.
func (c *compiler) source(path, name string) source {
	s, known := c.sourced[name]
	if !known {
		if s = (source{name, c.sources(path, name)}); s.slots != nil { // else each place is told
			c.sourced[name] = s
		}
	}
	return s
}

// sources are the slots that a name in a key, in has or in lacks stands for:
// the attribute of that name itself, then what the keys section says.
func (c *compiler) sources(path, name string) []int {
	src, named := c.doc.Keys[name]
	c.use(path, name)
	if !named && !attributeForm.MatchString(name) {
		c.problem(path, "E124", "define it under keys, or name an attribute", "%q is neither a key nor an attribute", name)
		return nil
	}
	return c.slotsOf(name, src)
}

// slotsOf are the slots of a name and of its sources, each once.
func (c *compiler) slotsOf(name string, src KeySource) []int {
	found := []int{c.slot(name)}
	for _, from := range src.From {
		if s := c.slot(from); !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

func (c *compiler) slot(name string) int {
	name = canonicalAttribute(name)
	if s, ok := c.ns.slots[name]; ok {
		return s
	}
	s := len(c.ns.slots)
	c.ns.slots[name] = s
	if h, ok := strings.CutPrefix(name, headerPrefix); ok {
		c.ns.headers = append(c.ns.headers, headerSlot{name: h, slot: s})
		c.ns.named[h], c.ns.lowered[string(lowerASCII(nil, h))] = s, s
	}
	return s
}
