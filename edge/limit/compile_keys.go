package limit

import (
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
				c.problem("keys."+name, "E125", "did you mean \""+word+"\"?", "no rule uses this key, while %s names %q, which is not declared", c.used[word], word)
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
