// Package when reads the conditions of rules: expressions over the attributes
// of a request, such as
//
//	tier == "gold" and not inCIDR(client_ip, "10.0.0.0/8")
//	has("header.X-Size") && int(header("X-Size")) > 1000
//
// Syntax and types are those of github.com/expr-lang/expr, whose parser and
// checker read the text. What they have checked becomes a tree of closures, in
// place of the library's machine: that one boxes each string it touches, and a
// condition is asked on the way of every request. The closures allocate
// nothing (but for lower where there is an upper case letter), there are no
// loops, and so the work is bounded by the text and by the attributes' length.
//
// All attributes are text, "" where they are absent. The names method, path,
// host, client_ip and those that the rules file defines under keys stand for
// themselves; attr("name") is any other that callers send, header("Name") a
// header. There are == != in contains startsWith endsWith matches on text,
// == != < <= > >= in on whole numbers, and or not and ?: on what is true or
// false, and
//
//	has(name)                 whether an attribute is present
//	lower(text)               text in lower case
//	int(text)                 its number; the rule does not apply where it is none.
//	                          One that is too large is the largest
//	inCIDR(address, network…) whether an address is in one of the networks
//
// In count_when there are also the names that begin with response: the number
// response.status, and text such as response.code, of gRPC, and whatever else
// callers report, such as response.outcome.
package when

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"

	"github.com/spillgate/spillgate/edge/limit"
)

// Bounds on an expression: the parser recurses with its depth.
const (
	maxText  = 4096
	maxNodes = 1000
)

var _ limit.ConditionCompiler = Compile

// errNotNumber is why a rule does not apply where int meets other text. It is
// made once: it comes on the way of requests.
var errNotNumber = errors.New("int: not a whole number")

// condition is a compiled expression.
type condition struct {
	holds truth
	wants []limit.Want

	always, never bool // it holds

	compared []limit.Comparison

	canonical string
}

// Holds implements limit.Condition.
func (c condition) Holds(req *limit.Request) (bool, error) { return c.holds(req) }

// functions are what expressions may call, with their types; what they do is
// in the closures.
var functions = map[string]reflect.Type{
	"has":    reflect.TypeFor[func(string) bool](),
	"attr":   reflect.TypeFor[func(string) string](),
	"header": reflect.TypeFor[func(string) string](),
	"lower":  reflect.TypeFor[func(string) string](),
	"int":    reflect.TypeFor[func(string) int](),
	"inCIDR": reflect.TypeFor[func(string, string, ...string) bool](),
}

// callable are the functions as the parser knows them, for all conditions.
var callable = func() conf.FunctionsTable {
	table := conf.FunctionsTable{}
	for name, t := range functions {
		table[name] = &builtin.Function{Name: name, Types: []reflect.Type{t}}
	}
	return table
}()

// Compile checks an expression and compiles it. The error is a
// *limit.ConditionError.
func Compile(text string, lookup limit.Lookup) (c limit.Condition, err error) {
	defer func() {
		// The parser is not ours: a bug in it must not end the process.
		if r := recover(); r != nil {
			c, err = nil, &limit.ConditionError{Detail: fmt.Sprintf("cannot be read: %v", r)}
		}
	}()
	if len(text) > maxText {
		return nil, &limit.ConditionError{Detail: fmt.Sprintf("%d bytes; a condition has at most %d", len(text), maxText), Hint: "make it two rules"}
	}
	cfg := &conf.Config{MaxNodes: maxNodes, Expect: reflect.Bool, Functions: callable} // no built-in ones: among them are loops
	tree, err := parser.ParseWithConfig(text, cfg)
	if err != nil {
		return nil, mistakeOf(err, text)
	}
	names := nameCollector{lookup: lookup, env: map[string]any{}, attributes: map[string]limit.Attribute{}}
	ast.Walk(&tree.Node, &names)
	cfg.WithEnv(names.env)
	if _, err := checker.Check(tree, cfg); err != nil {
		return nil, mistakeOf(err, text)
	}
	b := builder{text: text, lookup: lookup, attributes: names.attributes}
	holds, err := b.truth(tree.Node)
	if err != nil {
		return nil, err
	}
	found := comparer{builder: &b}
	ast.Walk(&tree.Node, &found)
	if found.err != nil {
		return nil, found.err
	}
	done := condition{holds: holds, wants: b.wants(tree.Node, false), compared: found.all}
	done.always, done.never = b.settle(tree.Node)
	done.canonical = canonicalOf(tree.Node)
	return done, nil
}

// nameCollector finds out which of the names in an expression are known.
type nameCollector struct {
	lookup     limit.Lookup
	env        map[string]any
	attributes map[string]limit.Attribute
}

// Visit implements ast.Visitor.
func (c *nameCollector) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		if a, ok := c.lookup(n.Value); ok && a.Known && functions[n.Value] == nil {
			c.env[n.Value], c.attributes[n.Value] = "", a
		}
	case *ast.MemberNode:
		c.member(n)
	}
}

// member notes a name with a dot in it, such as response.status.
func (c *nameCollector) member(n *ast.MemberNode) {
	of, name, ok := memberOf(n)
	if !ok {
		return
	}
	a, ok := c.lookup(of + "." + name)
	if !ok || !a.Known {
		return
	}
	fields, ok := c.env[of].(types.Map)
	if !ok {
		fields = types.Map{}
		c.env[of] = fields
	}
	fields[name] = types.String
	if a.Number {
		fields[name] = types.Int
	}
	c.attributes[of+"."+name] = a
}

// memberOf takes a name with a dot apart.
func memberOf(n *ast.MemberNode) (of, name string, ok bool) {
	id, ok1 := n.Node.(*ast.IdentifierNode)
	field, ok2 := n.Property.(*ast.StringNode)
	if !ok1 || !ok2 {
		return "", "", false
	}
	return id.Value, field.Value, true
}

// mistakeOf is the library's error with its place counted from 1.
func mistakeOf(err error, text string) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return &limit.ConditionError{Detail: err.Error()}
	}
	at = at.Bind(file.NewSource(text))
	return &limit.ConditionError{Line: at.Line, Column: at.Column + 1, Detail: at.Message, Hint: hintFor(at.Message)}
}
