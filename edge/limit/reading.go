package limit

import "slices"

// met is a rule that applies by a reading of the request's path.
type met struct {
	rule    *Rule
	reading int // its place among the others; -1: the request's own
}

// AlsoPaths says how other origins read the request's path: see PathReadings. Nobody here
// knows which of them serves it, so the rules of all readings apply, with keys of each, and
// of the costs by route the highest. The slice belongs to the request from then on.
func (req *Request) AlsoPaths(paths []string) { req.otherPaths = paths }

// Ambiguous says that the request's path can be read in several ways.
func (req *Request) Ambiguous() bool { return len(req.otherPaths) > 0 }

// meet finds the rules that apply by other readings of the path, beside those of its own.
// A client may choose a path of many readings: nothing is looked for again that the path
// has no part in.
func (req *Request) meet() {
	req.met = req.met[:0]
	for _, r := range req.rules {
		req.met = append(req.met, met{r, -1})
	}
	for i := range req.otherPaths {
		req.swapPath(i)
		for k := range req.ns.groups {
			g := &req.ns.groups[k]
			if !g.byPath {
				continue
			}
			r := g.first(req)
			if r == nil {
				continue
			}
			if r = r.For(req); !slices.Contains(req.rules, r) {
				req.rules = append(req.rules, r)
			} else if !r.counterByPath() {
				continue
			}
			req.met = append(req.met, met{r, i})
		}
		req.swapPath(i)
	}
}

// Readings has f see the request once for each reading of its path by which a rule of the
// last Rules applies, with that in the place of the path: the request's own first. Where
// neither the rule's key nor that of what it borrows from has the path in it, once is for
// all readings.
func (req *Request) Readings(f func(*Rule)) {
	if !req.Ambiguous() {
		for _, r := range req.rules {
			f(r)
		}
		return
	}
	for _, m := range req.met {
		if m.reading < 0 {
			f(m.rule)
			continue
		}
		req.swapPath(m.reading)
		f(m.rule)
		req.swapPath(m.reading)
	}
}

// swapPath swaps the request's path with another reading of it.
func (req *Request) swapPath(i int) {
	path := req.attrs[slotPath]
	req.put(slotPath, req.otherPaths[i])
	req.otherPaths[i] = path
}

// counterByPath says that other readings of a path may count in other counters of the
// rule, of its candidate, or of what it borrows from.
func (r *Rule) counterByPath() bool {
	return r.keyByPath() || r.Candidate != nil && r.Candidate.keyByPath() || r.Elastic != nil && r.Elastic.Parent != nil && r.Elastic.Parent.keyByPath()
}

func (r *Rule) keyByPath() bool {
	return slices.ContainsFunc(r.key, func(p keyPart) bool { return p.byPath() })
}

// readPaths finds the groups in which the path has a part: in whether a rule applies, or
// for whom, or in what it counts in; and whether any has, or a cost by route.
func (ns *Namespace) readPaths() {
	for i := range ns.groups {
		g := &ns.groups[i]
		g.byPath = slices.ContainsFunc(g.rules, func(r *Rule) bool {
			return r.match.byPath() || slices.Contains(r.tierFrom, slotPath) || r.counterByPath()
		})
		ns.byPath = ns.byPath || g.byPath || slices.ContainsFunc(g.rules, func(r *Rule) bool { return len(r.byRoute) > 0 })
	}
}

// ReadsPath says that some rule reads the path of requests.
func (ns *Namespace) ReadsPath() bool { return ns.byPath }

func (m *match) byPath() bool {
	return len(m.paths) > 0 || m.whenByPath ||
		slices.ContainsFunc(m.equals, func(e equal) bool { return e.byPath() }) ||
		slices.ContainsFunc(m.has, source.byPath) || slices.ContainsFunc(m.lacks, source.byPath)
}

func (s source) byPath() bool { return slices.Contains(s.slots, slotPath) }
