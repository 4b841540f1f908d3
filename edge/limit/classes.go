package limit

import (
	"fmt"
	"maps"
	"slices"
)

// ClassesSpec orders requests by how much they matter: those of a class may
// not spend what is reserved for the classes above it.
type ClassesSpec struct {
	From    string             // a key or attribute that names the class
	Order   []string           // the classes, the least first: [batch, normal, critical]
	Reserve map[string]float64 // by class: percent of each limit that it alone, and those above it, may spend
}

// classes is a compiled ClassesSpec.
type classes struct {
	from  []int
	names []string
}

const maxClasses = 16

// classes reads a rule's priority classes, and reserves parts of its limits.
func (c *compiler) classes(path string, spec *ClassesSpec, r *Rule) {
	if spec.From == "" && len(spec.Order) == 0 && len(spec.Reserve) == 0 {
		return
	}
	const example = "such as: classes: {from: header.X-Class, order: [batch, normal, critical], reserve: {critical: 10%}}"
	if spec.From == "" {
		c.problem(path+".from", "E212", example, "nothing names the class of a request")
		return
	}
	r.classes = &classes{from: c.sources(path+".from", spec.From), names: spec.Order}
	if n := len(spec.Order); n < 2 || n > maxClasses {
		c.problem(path+".order", "E213", example, "%d classes; there are 2 to %d", n, maxClasses)
		return
	}
	for i, name := range spec.Order {
		if name == "" || slices.Contains(spec.Order[:i], name) {
			c.problem(fmt.Sprintf("%s.order[%d]", path, i), "E213", "each class once, the least first", "%q stands here twice, or is no name", name)
			return
		}
	}
	if len(spec.Reserve) == 0 {
		c.problem(path+".reserve", "E214", example, "no class has a reserve, so that their order says nothing")
		return
	}
	total, above := 0.0, make([]float64, len(spec.Order))
	for _, name := range slices.Sorted(maps.Keys(spec.Reserve)) {
		at, percent := path+".reserve."+name, spec.Reserve[name]
		switch i := slices.Index(spec.Order, name); {
		case i < 0:
			c.problem(at, "E214", "one of the classes of order", "there is no class %q", name)
			return
		case i == 0:
			c.problem(at, "E214", "a class above it", "%q is the least class: there is nobody to reserve from", name)
			return
		case !(percent > 0 && percent < 100): // nor NaN
			c.problem(at, "E214", "above 0% and below 100%", "%v%% is out of range", percent)
			return
		default:
			total += percent
			for k := range i {
				above[k] += percent
			}
		}
	}
	if total >= 100 {
		c.problem(path+".reserve", "E214", "less than 100% together", "%v%% is reserved, which leaves nothing to %q", total, spec.Order[0])
		return
	}
	withheld := make([]percent, len(above)) // that of the highest is none
	for i := range above[:len(above)-1] {
		if above[i] > 0 {
			withheld[i] = positive(above[i])
		}
	}
	for _, rate := range r.Rates {
		if !rate.PerRequest {
			rate.divide(func(p *parts) { p.withheld = withheld })
			if least := 100 - slices.Max(above); least < contended && rate.Scope != ScopeEdge && rate.Consistency != Strict {
				rate.Eager = 1 + uint64(least*contended/100) // as of the limit, of what the least class may have
			}
		}
	}
}

// contended is the part of a limit, in percent, from which on others hear of each change of it.
const contended = 80

// ClassOf is the class of a request, by its place in the order: 0 is the least,
// and that of requests that name no class, or none that there is.
func (r *Rule) ClassOf(req *Request) int {
	if r.classes == nil {
		return 0
	}
	return max(0, slices.Index(r.classes.names, req.first(r.classes.from)))
}

// Withheld is the part of the limit that a class leaves to those above it:
// there is room for a cost of the class where there is room for both together.
func (r *Rate) Withheld(class int) uint64 {
	if class >= len(r.withheld) {
		return 0
	}
	return r.withheld[class]
}
