package when

import (
	"math"
	"reflect"
	"slices"

	"github.com/expr-lang/expr/ast"

	"github.com/spillgate/spillgate/edge/limit"
)

var _ limit.Foregone = condition{}

// Foregone implements limit.Foregone.
func (c condition) Foregone() (holds, known bool) {
	return c.always, c.always || c.never
}

// outcome is what may become of an expression, whatever the request is: a set.
type outcome uint8

const (
	mayHold outcome = 1 << iota
	mayNot
	mayFail
)

// settle says whether an expression, which was built, holds always or never. It is asked
// of each value that makes a difference of a number in it, one number after the other, so
// that what one comparison says of it is known to the next.
func (b *builder) settle(n ast.Node) (always, never bool) {
	may := b.outcomeOf(n, nil)
	always, never = may == mayHold, may&mayHold == 0
	found := numbers{builder: b, of: map[ast.Node]int{}}
	ast.Walk(&n, &found)
	for i, v := range found.all {
		if always || never {
			break
		}
		supposed, all := suppose{numbers: &found, number: i}, outcome(0)
		for _, supposed.value = range v.values() {
			all |= b.outcomeOf(n, &supposed)
		}
		supposed.none = true
		without := b.outcomeOf(n, &supposed)
		// Responses have a status, but for those of callers who report none.
		always = all == mayHold && (v.name != "" || without == mayHold)
		never = (all|without)&mayHold == 0
	}
	return always, never
}

// outcomeOf is what may become of n, which was built. What reads an attribute
// may come out either way, unless it is supposed to be some number; the rest is asked.
func (b *builder) outcomeOf(n ast.Node, s *suppose) outcome {
	switch n := n.(type) {
	case *ast.UnaryNode: // nothing but a negation is a truth
		return b.outcomeOf(n.Node, s).then(mayNot, mayHold)
	case *ast.ConditionalNode:
		return b.outcomeOf(n.Cond, s).then(b.outcomeOf(n.Exp1, s), b.outcomeOf(n.Exp2, s))
	case *ast.CallNode:
		if s != nil && s.isThere(n) {
			return mayHold
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&":
			return b.outcomeOf(n.Left, s).then(b.outcomeOf(n.Right, s), mayNot)
		case "or", "||":
			return b.outcomeOf(n.Left, s).then(mayHold, b.outcomeOf(n.Right, s))
		case "contains", "startsWith", "endsWith":
			if text, ok := n.Right.(*ast.StringNode); ok && text.Value == "" { // it is a part of all
				return mayHold
			}
		case "in":
			if list, ok := n.Right.(*ast.ArrayNode); ok && len(list.Nodes) == 0 && kindOf(n.Left) == reflect.String {
				return mayNot
			}
		}
		switch kind := kindOf(n.Left); {
		case kind == reflect.Bool && n.Operator != "in":
			same := b.outcomeOf(n.Right, s)
			contrary := same.then(mayNot, mayHold)
			if n.Operator == "!=" {
				same, contrary = contrary, same
			}
			return b.outcomeOf(n.Left, s).then(same, contrary)
		case kind == reflect.Int && s != nil:
			if o, known := s.compare(n); known {
				return o
			}
		}
	}
	var r reading
	ast.Walk(&n, &r)
	switch {
	case r.attribute && r.number:
		return mayHold | mayNot | mayFail
	case r.attribute:
		return mayHold | mayNot
	}
	holds, err := b.truth(n)
	if err != nil {
		return mayHold | mayNot | mayFail // it was built before
	}
	switch v, err := holds(nil); {
	case err != nil:
		return mayFail
	case v:
		return mayHold
	}
	return mayNot
}

// numbers finds the numbers that an expression reads, and what it compares them with.
type numbers struct {
	*builder
	all []variable
	of  map[ast.Node]int // each place where one is read, and which it is
}

// variable is one of them, wherever it is read.
type variable struct {
	text   string // int(user), or
	name   string // response.status
	of     limit.Attribute
	bounds []int // what it is compared with
}

// Visit implements ast.Visitor.
func (v *numbers) Visit(n *ast.Node) {
	if call, ok := (*n).(*ast.CallNode); ok && calleeOf(call) == "has" {
		if name, ok := call.Arguments[0].(*ast.StringNode); ok {
			if a, ok := v.lookup(name.Value); ok && a.Number {
				v.variable(variable{text: name.Value, name: name.Value, of: a})
			}
		}
		return
	}
	binary, ok := (*n).(*ast.BinaryNode)
	if !ok || kindOf(binary.Left) != reflect.Int {
		return
	}
	left, right := v.number(binary.Left), v.number(binary.Right)
	v.bound(left, binary.Right)
	v.bound(right, binary.Left)
	if list, ok := binary.Right.(*ast.ArrayNode); ok {
		for _, item := range list.Nodes {
			v.bound(left, item)
		}
	}
}

// number is which one n reads, -1 where it reads none.
func (v *numbers) number(n ast.Node) int {
	switch read := n.(type) {
	case *ast.MemberNode:
		of, field, _ := memberOf(read)
		a, _ := v.dotted(read)
		v.of[n] = v.variable(variable{text: of + "." + field, name: of + "." + field, of: a})
	case *ast.CallNode: // nothing but int is a number
		v.of[n] = v.variable(variable{text: n.String()})
	default:
		return -1
	}
	return v.of[n]
}

// variable is the place of one among all.
func (v *numbers) variable(found variable) int {
	i := slices.IndexFunc(v.all, func(known variable) bool { return known.text == found.text })
	if i < 0 {
		i = len(v.all)
		v.all = append(v.all, found)
	}
	return i
}

func (v *numbers) bound(i int, n ast.Node) {
	if with, ok := literal(n); ok && i >= 0 {
		v.all[i].bounds = append(v.all[i].bounds, with)
	}
}

// values are all that make a difference: between two bounds one is like another.
func (v *variable) values() (all []int) {
	least, most := math.MinInt, math.MaxInt
	if v.name != "" {
		least, most = v.of.Least, v.of.Most
	}
	all = append(all, least, most)
	for _, bound := range v.bounds {
		for _, near := range [...]int{bound, max(bound, math.MinInt+1) - 1, min(bound, math.MaxInt-1) + 1} {
			if least < near && near < most {
				all = append(all, near)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// suppose is that one number has a value, or, as it is absent or no number, none.
type suppose struct {
	*numbers
	number, value int
	none          bool
}

// isThere says that a call asks whether what is supposed to be there is.
func (s *suppose) isThere(call *ast.CallNode) bool {
	if s.none || calleeOf(call) != "has" {
		return false
	}
	name, ok := call.Arguments[0].(*ast.StringNode)
	return ok && name.Value == s.all[s.number].name
}

// compare is what becomes of a comparison of the number with a constant; known is false
// of others.
func (s *suppose) compare(n *ast.BinaryNode) (o outcome, known bool) {
	value := func(n ast.Node) (v int, ok bool) {
		if i, reads := s.of[n]; reads {
			return s.value, i == s.number
		}
		return literal(n)
	}
	left, ok := value(n.Left)
	if !ok {
		return 0, false
	}
	holds := false
	if list, in := n.Right.(*ast.ArrayNode); in {
		holds = slices.ContainsFunc(list.Nodes, func(item ast.Node) bool { v, _ := literal(item); return v == left })
	} else if right, ok := value(n.Right); ok {
		holds = numberTests[n.Operator](left, right)
	} else {
		return 0, false
	}
	_, reads := s.of[n.Left]
	_, also := s.of[n.Right]
	switch {
	case s.none && (reads || also):
		return mayFail, true
	case holds:
		return mayHold, true
	}
	return mayNot, true
}

// then is what follows where yes follows what holds, and no what does not.
func (o outcome) then(yes, no outcome) outcome {
	all := o & mayFail
	if o&mayHold != 0 {
		all |= yes
	}
	if o&mayNot != 0 {
		all |= no
	}
	return all
}

// reading finds out whether an expression reads attributes, and numbers of them.
type reading struct{ attribute, number bool }

// Visit implements ast.Visitor.
func (r *reading) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		if name := n.Value; functions[name] == nil || name == "attr" || name == "header" || name == "has" {
			r.attribute = true
		} else if name == "int" {
			r.number = true
		}
	case *ast.MemberNode: // response.status is one
		r.attribute, r.number = true, true
	}
}
