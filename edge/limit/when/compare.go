package when

import (
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"github.com/spillgate/spillgate/edge/limit"
)

var _ limit.Comparing = condition{}

// Comparisons implements limit.Comparing.
func (c condition) Comparisons() []limit.Comparison { return c.compared }

// comparer finds what an expression that was built compares with constants,
// wherever in it that is.
type comparer struct {
	*builder
	all []limit.Comparison
	err error // the first mistake
}

// Visit implements ast.Visitor.
func (c *comparer) Visit(n *ast.Node) {
	binary, ok := (*n).(*ast.BinaryNode)
	if !ok {
		return
	}
	switch binary.Operator {
	case "==", "!=":
		c.compare(binary.Left, binary.Right, false)
		c.compare(binary.Right, binary.Left, false)
	case "contains", "startsWith", "endsWith":
		c.compare(binary.Left, binary.Right, true)
	case "in":
		if list, ok := binary.Right.(*ast.ArrayNode); ok {
			for _, item := range list.Nodes {
				c.compare(binary.Left, item, false)
			}
		}
	}
}

// compare notes that a value is compared with n, where that is a constant, or
// with a part of it.
func (c *comparer) compare(value, n ast.Node, part bool) {
	text, ok := n.(*ast.StringNode)
	if !ok {
		return
	}
	if call, ok := value.(*ast.CallNode); ok && calleeOf(call) == "lower" {
		if lower := strings.ToLower(text.Value); lower != text.Value && c.err == nil {
			c.err = c.mistake(n, lower, "lower gives lower case, which has no %q in it", text.Value)
		}
		return
	}
	name, a, ok := c.attributeOf(value)
	if !ok {
		return
	}
	at := (&file.Error{Location: n.Location()}).Bind(file.NewSource(c.text))
	c.all = append(c.all, limit.Comparison{Name: name, Of: a, Value: text.Value, Part: part, Line: at.Line, Column: at.Column + 1})
}
