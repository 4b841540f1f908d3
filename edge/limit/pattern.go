package limit

import (
	"fmt"
	"slices"
	"strings"
)

// pattern is a path pattern: "*" stands for exactly one segment, a "**" at the
// end for the rest, be it empty. A query string never takes part. Patterns are
// walked by recursion, so that their segments are bounded.
type pattern struct {
	segments []string
	rest     bool
}

const maxSegments = 64

func compilePattern(s string) (pattern, error) {
	if !strings.HasPrefix(s, "/") {
		return pattern{}, fmt.Errorf("%q does not start with a slash", s)
	}
	if strings.Contains(s, "?") {
		return pattern{}, fmt.Errorf("%q has a query, which takes no part: no path fits it", s)
	}
	p := pattern{segments: strings.Split(s[1:], "/")}
	if len(p.segments) > maxSegments {
		return pattern{}, fmt.Errorf("%d segments; a pattern has at most %d", len(p.segments), maxSegments)
	}
	for i, seg := range p.segments {
		switch {
		case seg == "**" && i == len(p.segments)-1:
			p.segments, p.rest = p.segments[:i], true
			return p, nil
		case seg != "*" && strings.Contains(seg, "*"):
			return pattern{}, fmt.Errorf("%q: a segment is a name, \"*\", or \"**\" at the end", s)
		}
	}
	return p, nil
}

func (p *pattern) matches(path string) bool {
	rest, more := pathSegments(path)
	if !more {
		return false
	}
	for _, want := range p.segments {
		if !more {
			return false
		}
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		if !segmentMatches(want, seg) {
			return false
		}
	}
	return !more || p.rest
}

// pathSegments is what follows a path's first slash, its query cut off. ok is
// false where it does not start with one.
func pathSegments(path string) (rest string, ok bool) {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	return strings.CutPrefix(path, "/")
}

// segmentMatches compares a segment with what a pattern wants there. A star
// stands for a name, so that an empty segment is none.
func segmentMatches(want, seg string) bool {
	return want == seg && want != "*" || want == "*" && seg != ""
}

// compare puts the more specific of two patterns first: where they differ first,
// a name comes before "*", and that before "**".
func (p *pattern) compare(o *pattern) int {
	byName := func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == "*":
			return 1
		case b == "*":
			return -1
		}
		return strings.Compare(a, b) // no path takes both
	}
	n := min(len(p.segments), len(o.segments))
	switch first := slices.CompareFunc(p.segments[:n], o.segments[:n], byName); {
	case first != 0:
		return first
	case len(p.segments) != len(o.segments):
		return len(o.segments) - len(p.segments)
	case p.rest == o.rest:
		return 0
	case p.rest:
		return 1
	}
	return -1
}

// trimmed is the pattern's first n segments with whatever follows.
func (p pattern) trimmed(n int) pattern {
	if len(p.segments) <= n {
		return p
	}
	return pattern{segments: p.segments[:n], rest: true}
}

// String is the pattern as it was written.
func (p pattern) String() string {
	if p.rest {
		return "/" + strings.Join(append(slices.Clip(p.segments), "**"), "/")
	}
	return "/" + strings.Join(p.segments, "/")
}
