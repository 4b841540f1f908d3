package when

import (
	"slices"

	"github.com/expr-lang/expr/ast"

	"github.com/spillgate/spillgate/edge/limit"
)

var _ limit.Wanting = condition{}

// Wants implements limit.Wanting.
func (c condition) Wants() []limit.Want { return c.wants }

// wants is what must be true of single names for n to be true, or false where
// not is set. Comparisons with constants, in and has say something; and adds
// up, and of an or is left what both sides say of the same name.
func (b *builder) wants(n ast.Node, not bool) []limit.Want {
	switch n := n.(type) {
	case *ast.UnaryNode: // nothing but a negation is a truth
		return b.wants(n.Node, !not)
	case *ast.CallNode:
		if calleeOf(n) == "has" {
			return b.want(n.Arguments[0], false, !not, "")
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&", "or", "||":
			left, right := b.wants(n.Left, not), b.wants(n.Right, not)
			if (n.Operator == "or" || n.Operator == "||") == not {
				return append(left, right...)
			}
			return either(left, right)
		case "==", "!=":
			not = not != (n.Operator == "!=")
			if text, ok := n.Right.(*ast.StringNode); ok {
				return b.want(n.Left, true, not, text.Value)
			}
			if text, ok := n.Left.(*ast.StringNode); ok {
				return b.want(n.Right, true, not, text.Value)
			}
		case "in":
			list, ok := n.Right.(*ast.ArrayNode)
			if !ok {
				return nil
			}
			values := make([]string, len(list.Nodes))
			for i, item := range list.Nodes {
				text, ok := item.(*ast.StringNode)
				if !ok {
					return nil // of numbers
				}
				values[i] = text.Value
			}
			return b.want(n.Left, true, not, values...)
		}
	}
	return nil
}

// want wants the attribute that n stands for, or names where it is no value, to
// be one of some values; nothing where it is no attribute.
func (b *builder) want(n ast.Node, value, not bool, values ...string) []limit.Want {
	name, a, ok := "", limit.Attribute{}, false
	if value {
		name, a, ok = b.attributeOf(n)
	} else if text, constant := n.(*ast.StringNode); constant {
		name = text.Value
		a, ok = b.lookup(name)
	}
	if !ok {
		return nil
	}
	return []limit.Want{{Name: name, Of: a, Values: values, Not: not}}
}

// attributeOf is the attribute whose value, as it is, n stands for.
func (b *builder) attributeOf(n ast.Node) (name string, a limit.Attribute, ok bool) {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		name = n.Value
		a, ok = b.attributes[name]
	case *ast.MemberNode:
		of, field, dotted := memberOf(n)
		name = of + "." + field
		a, ok = b.attributes[name]
		ok = ok && dotted && !a.Number
	case *ast.CallNode:
		callee := calleeOf(n)
		if text, constant := n.Arguments[0].(*ast.StringNode); constant && (callee == "attr" || callee == "header") {
			if name = text.Value; callee == "header" {
				name = "header." + name
			}
			a, ok = b.lookup(name)
		}
	}
	return name, a, ok
}

// either is what is left of two lists of wants where one of them is met.
func either(left, right []limit.Want) (both []limit.Want) {
	for _, l := range left {
		i := slices.IndexFunc(right, func(r limit.Want) bool { return r.Name == l.Name })
		if i < 0 {
			continue
		}
		r := right[i]
		if l.Not && !r.Not {
			l, r = r, l
		}
		within := func(values []string, in bool) []string {
			return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return slices.Contains(l.Values, v) != in })
		}
		switch {
		case !r.Not:
			l.Values = append(slices.Clip(l.Values), r.Values...)
		case l.Not: // neither excludes what the other does not
			l.Values = within(r.Values, true)
		default:
			l.Values, l.Not = within(r.Values, false), true
		}
		if !l.Not || len(l.Values) > 0 {
			both = append(both, l)
		}
	}
	return both
}
