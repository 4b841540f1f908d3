package when

import (
	"github.com/expr-lang/expr/ast"

	"github.com/spillgate/spillgate/edge/limit"
)

var _ limit.Canonical = condition{}

// Canonical implements limit.Canonical.
func (c condition) Canonical() string { return c.canonical }

// canonicalOf is the text of a tree, which is of no further use: its operators are then
// all words, and its choices are ?:.
func canonicalOf(n ast.Node) string {
	ast.Walk(&n, plainWords{})
	return n.String()
}

// plainWords writes what there are two words for with one.
type plainWords struct{}

// Visit implements ast.Visitor.
func (plainWords) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.UnaryNode:
		if n.Operator == "!" {
			n.Operator = "not"
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "&&":
			n.Operator = "and"
		case "||":
			n.Operator = "or"
		}
	case *ast.ConditionalNode:
		n.Ternary = true
	}
}
