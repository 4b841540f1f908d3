package limit

import (
	"fmt"
	"slices"
	"strings"
)

// match is a compiled MatchSpec.
type match struct {
	paths   []pattern
	methods []string
	has     [][]int // each: the slots that one name stands for
	lacks   [][]int
}

func (m *match) matches(req *Request) bool {
	for _, slots := range m.has {
		if req.first(slots) == "" {
			return false
		}
	}
	for _, slots := range m.lacks {
		if req.first(slots) != "" {
			return false
		}
	}
	if len(m.methods) > 0 && !slices.Contains(m.methods, req.attrs[slotMethod]) {
		return false
	}
	if len(m.paths) == 0 {
		return true
	}
	for i := range m.paths {
		if m.paths[i].matches(req.attrs[slotPath]) {
			return true
		}
	}
	return false
}

// pattern is a path pattern: "*" stands for exactly one segment, a "**" at the
// end for the rest, be it empty. A query string never takes part.
type pattern struct {
	segments []string
	rest     bool
}

func compilePattern(s string) (pattern, error) {
	if !strings.HasPrefix(s, "/") {
		return pattern{}, fmt.Errorf("%q does not start with a slash", s)
	}
	p := pattern{segments: strings.Split(s[1:], "/")}
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
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if path == "" || path[0] != '/' {
		return false
	}
	path = path[1:]
	for i, want := range p.segments {
		seg, rest, more := strings.Cut(path, "/")
		if want != "*" && want != seg || want == "*" && seg == "" {
			return false
		}
		if i == len(p.segments)-1 {
			return !more || p.rest
		}
		if !more {
			return false
		}
		path = rest
	}
	return p.rest
}
