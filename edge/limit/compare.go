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
	As    Compared
	Lower bool // the value is compared in lower case

	Line, Column int // of the constant in the expression, from 1
}

// Compared is what a constant is compared with.
type Compared uint8

const (
	Whole     Compared = iota // the value
	Beginning                 // its beginning
	Part                      // any part of it
	Pathless                  // the value, which begins with no slash where this regular expression matches it
)

// comparisons looks at what a condition compares.
func (c *compiler) comparisons(path string, condition Condition) {
	told, ok := condition.(Comparing)
	if !ok {
		return
	}
	addressed := false // one is told of each condition
	for _, cmp := range told.Comparisons() {
		at := Problem{Path: path, Line: cmp.Line, Column: cmp.Column}
		switch slots := cmp.Of.slots; { // what there is of them in upper case
		case !cmp.Lower:
		case standsFor(slots, slotMethod) || c.stands(slots, responseCode):
			cmp.Value = strings.ToUpper(cmp.Value)
		case standsFor(slots, slotPath):
			cmp.Value = strings.ReplaceAll(cmp.Value, "%3f", "%3F")
		}
		c.compared(at, cmp.Of.slots, cmp.Value, cmp.As)
		if !addressed && standsFor(cmp.Of.slots, slotClientIP) {
			addressed = c.asText(at, cmp.Name, cmp.Value, cmp.As, fmt.Sprintf("inCIDR(%s, %%q)", cmp.Name))
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
func (c *compiler) compared(at Problem, slots []int, value string, as Compared) {
	switch {
	case value == "": // what is absent
	case as == Pathless:
		if standsFor(slots, slotPath) {
			c.doubt(at, "W215", slashed(value), "paths begin with a slash, and %q matches none that does", value)
		}
	case standsFor(slots, slotMethod):
		if upper := strings.ToUpper(value); as != Whole && upper != value {
			c.refuse(at, "E162", upper, "no method has %q in it: they are upper case", value)
		} else if as == Whole {
			c.method(at, value)
		}
	case standsFor(slots, slotHost):
		if norm := string(normalHost(nil, value)); as == Whole && norm != value {
			c.refuse(at, "E164", norm, "no host is %q: they are compared in lower case, without port and brackets", value)
		} else if lower := strings.ToLower(value); as != Whole && lower != value {
			c.refuse(at, "E164", lower, "no host has %q in it: they are compared in lower case", value)
		} else {
			c.beyondASCII(at, value)
		}
	case standsFor(slots, slotPath):
		c.comparedPath(at, value, as)
	case c.stands(slots, responseStatus):
		if n, err := strconv.Atoi(value); as == Whole && (err != nil || n < leastStatus || n > mostStatus) {
			c.doubt(at, "W223", "such as 401", "no response has the status %s", value)
		}
	case c.stands(slots, responseCode):
		c.comparedCode(at, value, as)
	}
}

// stands says that slots are those of one attribute, by its name.
func (c *compiler) stands(slots []int, name string) bool {
	at, ok := c.ns.slots[name]
	return ok && len(slots) == 1 && slots[0] == at
}

// responseCodes are the names of gRPC's codes, in their order, as response.code has them.
var responseCodes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// comparedCode is compared for response.code.
func (c *compiler) comparedCode(at Problem, value string, as Compared) {
	if slices.ContainsFunc(responseCodes, func(code string) bool { return code == value || as != Whole && strings.Contains(code, value) }) {
		return
	}
	hint := `such as "UNAVAILABLE"; a name of your own that begins with response., for what is no code of gRPC`
	n, err := strconv.Atoi(value)
	for i, code := range responseCodes {
		if word := plain(code); err == nil && n == i || nearWord(plain(value), word, min(2, len(word)/3)) {
			hint = fmt.Sprintf("did you mean %q?", code)
			break
		}
	}
	c.doubt(at, "W223", hint, "no response has the code %q", value)
}

// comparedPath is compared for paths.
func (c *compiler) comparedPath(at Problem, value string, as Compared) {
	if path, _, query := strings.Cut(value, "?"); query {
		hint := "leave it out, or what is about it"
		if path != "" {
			hint = fmt.Sprintf("%q", path)
		}
		c.refuse(at, "E161", hint, "%q has a query, which takes no part: no path has it", value)
		return
	}
	if as != Part && value[0] != '/' && value != "*" { // OPTIONS * is of the server
		c.doubt(at, "W215", fmt.Sprintf("%q", "/"+value), "paths begin with a slash, and none that does fits %q", value)
		return
	}
	if as == Whole || strings.Contains(value, "%") || strings.Contains(value, "//") { // "/." begins names too
		c.escaped(at, value)
	}
	if segments := strings.Split(value, "/"); as == Whole && segments[0] == "" && slices.ContainsFunc(segments, func(s string) bool { return s == "*" || s == "**" }) {
		c.doubt(at, "W215", "match.path: "+value, "%q is compared as text, and is no pattern here", value)
	}
}

// slashed is a regular expression for paths that had none at its beginning.
func slashed(pattern string) string {
	if rest, ok := strings.CutPrefix(pattern, "^"); ok {
		return fmt.Sprintf("%q", "^/"+rest)
	}
	return `with a slash behind the ^, such as "^/api/"`
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
