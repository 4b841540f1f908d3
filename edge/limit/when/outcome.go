package when

import (
	"reflect"

	"github.com/expr-lang/expr/ast"

	"github.com/spillgate/spillgate/edge/limit"
)

var _ limit.Foregone = condition{}

// Foregone implements limit.Foregone.
func (c condition) Foregone() (holds, known bool) {
	holds = c.may == mayHold
	return holds, holds || c.may&mayHold == 0
}

// outcome is what may become of an expression, whatever the request is: a set.
type outcome uint8

const (
	mayHold outcome = 1 << iota
	mayNot
	mayFail
)

// outcomeOf is what may become of n, which was built. What reads an attribute
// may come out either way; the rest is asked.
func (b *builder) outcomeOf(n ast.Node) outcome {
	switch n := n.(type) {
	case *ast.UnaryNode: // nothing but a negation is a truth
		return b.outcomeOf(n.Node).then(mayNot, mayHold)
	case *ast.ConditionalNode:
		return b.outcomeOf(n.Cond).then(b.outcomeOf(n.Exp1), b.outcomeOf(n.Exp2))
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&":
			return b.outcomeOf(n.Left).then(b.outcomeOf(n.Right), mayNot)
		case "or", "||":
			return b.outcomeOf(n.Left).then(mayHold, b.outcomeOf(n.Right))
		}
		if kindOf(n.Left) == reflect.Bool && n.Operator != "in" {
			same := b.outcomeOf(n.Right)
			contrary := same.then(mayNot, mayHold)
			if n.Operator == "!=" {
				same, contrary = contrary, same
			}
			return b.outcomeOf(n.Left).then(same, contrary)
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
