package when

import (
	"regexp/syntax"
	"strconv"
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
		c.compare(binary.Left, binary.Right, limit.Whole)
		c.compare(binary.Right, binary.Left, limit.Whole)
	case "startsWith":
		c.compare(binary.Left, binary.Right, limit.Beginning)
	case "contains", "endsWith":
		c.compare(binary.Left, binary.Right, limit.Part)
	case "in":
		if list, ok := binary.Right.(*ast.ArrayNode); ok {
			for _, item := range list.Nodes {
				c.compare(binary.Left, item, limit.Whole)
			}
		}
	case "matches":
		c.comparePattern(binary.Left, binary.Right)
	}
}

// compare notes that a value is compared with n, where that is a constant.
func (c *comparer) compare(value, n ast.Node, as limit.Compared) {
	if c.compareNumber(value, n) {
		return
	}
	text, ok := n.(*ast.StringNode)
	if !ok {
		return
	}
	lower := false
	if call, ok := value.(*ast.CallNode); ok && calleeOf(call) == "lower" {
		if lower := strings.ToLower(text.Value); lower != text.Value {
			if c.err == nil {
				c.err = c.mistake(n, lower, "lower gives lower case, which has no %q in it", text.Value)
			}
			return
		}
		value, lower = call.Arguments[0], true
	}
	if name, a, ok := c.attributeOf(value); ok {
		c.note(limit.Comparison{Name: name, Of: a, Value: text.Value, As: as, Lower: lower}, n)
	}
}

// comparePattern notes what a regular expression has a value begin with, and what parts.
func (c *comparer) comparePattern(value, n ast.Node) {
	text, ok := n.(*ast.StringNode)
	name, a, known := c.attributeOf(value)
	if !ok || !known {
		return
	}
	re, err := syntax.Parse(text.Value, syntax.Perl)
	if err != nil {
		return // it was built before
	}
	for _, part := range parts(re) {
		c.note(limit.Comparison{Name: name, Of: a, Value: part, As: limit.Part}, n)
	}
	if !beginsWith(re, '/') {
		c.note(limit.Comparison{Name: name, Of: a, Value: text.Value, As: limit.Pathless}, n)
	}
}

// compareNumber notes that a value that is a number is compared with n, and says whether
// n is one.
func (c *comparer) compareNumber(value, n ast.Node) bool {
	number, ok := n.(*ast.IntegerNode)
	if !ok {
		return false
	}
	if member, ok := value.(*ast.MemberNode); ok {
		if a, ok := c.dotted(member); ok && a.Number {
			of, field, _ := memberOf(member)
			c.note(limit.Comparison{Name: of + "." + field, Of: a, Value: strconv.Itoa(number.Value)}, n)
		}
	}
	return true
}

// note notes a comparison with a constant where that stands.
func (c *comparer) note(found limit.Comparison, constant ast.Node) {
	at := (&file.Error{Location: constant.Location()}).Bind(file.NewSource(c.text))
	found.Line, found.Column = at.Line, at.Column+1
	c.all = append(c.all, found)
}
