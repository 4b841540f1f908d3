package limit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// routeCost is what the requests of a route cost.
type routeCost struct {
	method string // "": any
	path   pattern
	cost   uint64
}

// routeOf reads "POST /api/search", or a path alone.
func routeOf(s string) (method, path string) {
	if method, path, ok := strings.Cut(s, " "); ok && !strings.HasPrefix(s, "/") { // a path may have a space
		return method, path
	}
	return "", s
}

// routeCosts are the costs by route, as they are asked: the most specific route
// first, as nobody who names a route means another one. That is the one whose
// path says more where the two differ first; of the same path the one that names
// a method. Routes that cannot be read are told to bad.
func routeCosts(costs map[string]uint64, bad func(route string, err error)) (all []routeCost) {
	for _, route := range slices.Sorted(maps.Keys(costs)) {
		method, path := routeOf(route)
		p, err := compilePattern(path)
		if err != nil {
			bad(route, err)
			continue
		}
		all = append(all, routeCost{method: method, path: p, cost: costs[route]})
	}
	slices.SortStableFunc(all, func(a, b routeCost) int {
		return cmp.Or(a.path.compare(&b.path), strings.Compare(b.method, a.method)) // no method comes last
	})
	return all
}

// routeCost is what the rule says of the request's route, by a path of it, or of all.
func (r *Rule) routeCost(req *Request, path string) uint64 {
	for i := range r.byRoute {
		rc := &r.byRoute[i]
		if (rc.method == "" || rc.method == req.attrs[slotMethod]) && rc.path.matches(path) {
			return rc.cost
		}
	}
	return r.cost
}
