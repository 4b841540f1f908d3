package limit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Comparing is a condition that tells what it compares with constants, so that a
// constant which nothing ever equals is told when the rules are read.
type Comparing interface {
	Comparisons() []Comparison
}

// Comparison is of the value of a name with a constant.
type Comparison struct {
	Name  string
	Of    Attribute
	Value string
	Part  bool // with a part of the value: its beginning, say

	Line, Column int // of the constant in the expression, from 1
}

// comparisons looks at what a condition compares.
func (c *compiler) comparisons(path string, condition Condition) {
	told, ok := condition.(Comparing)
	if !ok {
		return
	}
	addressed := false // one is told of each condition
	for _, cmp := range told.Comparisons() {
		at := Problem{Path: path, Line: cmp.Line, Column: cmp.Column}
		c.compared(at, cmp.Of.slots, cmp.Value, cmp.Part)
		if addr := NormalAddr(cmp.Value); !addressed && !cmp.Part && standsFor(cmp.Of.slots, slotClientIP) && addr.IsValid() {
			addressed = true
			c.asText(at, cmp.Name, cmp.Value, fmt.Sprintf("inCIDR(%s, %q)", cmp.Name, addr))
		}
	}
}

// standsFor says that a name is that of an attribute that all requests have, or a
// key's that comes from it alone.
func standsFor(slots []int, slot int) bool {
	return len(slots) > 0 && len(slots) <= 2 && slots[len(slots)-1] == slot
}

// compared reports a constant that what it is compared with never is, or hardly:
// that would be a rule which never bites. at is where the constant stands.
func (c *compiler) compared(at Problem, slots []int, value string, part bool) {
	switch {
	case value == "": // what is absent
	case standsFor(slots, slotMethod):
		if upper := strings.ToUpper(value); part && upper != value {
			c.refuse(at, "E162", upper, "no method has %q in it: they are upper case", value)
		} else if !part {
			c.method(at, value)
		}
	case standsFor(slots, slotHost):
		if norm := string(normalHost(nil, value)); !part && norm != value {
			c.refuse(at, "E164", norm, "no host is %q: they are compared in lower case, without port and brackets", value)
		} else if lower := strings.ToLower(value); part && lower != value {
			c.refuse(at, "E164", lower, "no host has %q in it: they are compared in lower case", value)
		}
	case standsFor(slots, slotPath):
		c.comparedPath(at, value, part)
	case !part && len(slots) == 1 && c.slotIs(slots[0], responseStatus):
		if n, err := strconv.Atoi(value); err != nil || n < 100 || n > 599 {
			c.doubt(at, "W223", "such as 401", "no response has the status %s", value)
		}
	}
}

// slotIs says that an attribute has that name.
func (c *compiler) slotIs(slot int, name string) bool {
	at, ok := c.ns.slots[name]
	return ok && at == slot
}

// comparedPath is compared for paths.
func (c *compiler) comparedPath(at Problem, value string, part bool) {
	if path, _, query := strings.Cut(value, "?"); query {
		c.refuse(at, "E161", fmt.Sprintf("%q", path), "%q has a query, which takes no part: no path has it", value)
		return
	}
	if !part || strings.Contains(value, "%") || strings.Contains(value, "//") { // "/." begins names too
		c.escaped(at, value)
	}
	if segments := strings.Split(value, "/"); !part && segments[0] == "" && slices.ContainsFunc(segments, func(s string) bool { return s == "*" || s == "**" }) {
		c.doubt(at, "W215", "match.path: "+value, "%q is compared as text, and is no pattern here", value)
	}
}

// escaped warns of a path that is written as clients write it, and not as most origins
// read it: it fits who writes it so. It may be meant.
func (c *compiler) escaped(at Problem, path string) {
	if norm := NormalPath(path); strings.HasPrefix(path, "/") && norm != path {
		c.doubt(at, "W215", fmt.Sprintf("%q", norm), "%q fits no more than what is written almost so: paths are compared with escapes read, and with dots and double slashes resolved", path)
	}
}

// templated warns of a pattern that is written as routers write it: its names in
// braces, or behind a colon, are compared like any other, and fit themselves alone.
func (c *compiler) templated(at Problem, pattern string) {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") || len(s) > 1 && strings.HasPrefix(s, ":") {
			segments[i] = "*"
		}
	}
	if fits := strings.Join(segments, "/"); fits != pattern {
		c.doubt(at, "W216", fmt.Sprintf("%q", fits), "%q fits itself alone, letter for letter: what stands for any name is a star", pattern)
	}
}

// refuse and doubt report a mistake, and warn, at a place that is known.
func (c *compiler) refuse(at Problem, code, hint, format string, args ...any) {
	at.Code, at.Hint, at.Detail = code, hint, fmt.Sprintf(format, args...)
	c.report(at)
}

func (c *compiler) doubt(at Problem, code, hint, format string, args ...any) {
	at.Code, at.Hint, at.Detail = code, hint, fmt.Sprintf(format, args...)
	c.warnings = append(c.warnings, at)
}
