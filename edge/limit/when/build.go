package when

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"github.com/spillgate/spillgate/edge/limit"
)

// The three kinds of values that an expression has.
type (
	truth  func(*limit.Request) (bool, error)
	word   func(*limit.Request) string
	number func(*limit.Request) (int, error)
)

// builder turns a checked tree into closures.
type builder struct {
	text       string
	lookup     limit.Lookup
	attributes map[string]limit.Attribute
}

const available = "there are == != < <= > >= in contains startsWith endsWith matches and or not ?:, and has, attr, header, lower, int, inCIDR"

// hintFor is how to mend a mistake that the library found.
func hintFor(message string) string {
	switch {
	case message == "unknown name status" || message == "unknown name response":
		return "in count_when it is response.status, a number, such as response.status >= 400"
	case strings.HasPrefix(message, "unknown name"):
		return `a name stands under keys, or is method, path, host or client_ip; attr("name") is another that callers send, header("Name") a header`
	case strings.Contains(message, "mismatched types"):
		return "attributes are text; int(x) is a number"
	}
	return ""
}

func (b *builder) mistake(n ast.Node, hint, format string, args ...any) error {
	at := (&file.Error{Location: n.Location()}).Bind(file.NewSource(b.text))
	return &limit.ConditionError{Line: at.Line, Column: at.Column + 1, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func (b *builder) unavailable(n ast.Node) error {
	return b.mistake(n, available, "this is not available in a condition")
}

func kindOf(n ast.Node) reflect.Kind {
	if t := n.Type(); t != nil {
		return t.Kind()
	}
	return reflect.Invalid
}

func (b *builder) truth(n ast.Node) (truth, error) {
	switch n := n.(type) {
	case *ast.BoolNode:
		v := n.Value
		return func(*limit.Request) (bool, error) { return v, nil }, nil
	case *ast.UnaryNode:
		if n.Operator != "not" && n.Operator != "!" {
			return nil, b.unavailable(n)
		}
		inner, err := b.truth(n.Node)
		if err != nil {
			return nil, err
		}
		return func(req *limit.Request) (bool, error) {
			v, err := inner(req)
			return !v, err
		}, nil
	case *ast.ConditionalNode:
		return b.choice(n)
	case *ast.CallNode:
		return b.call(n)
	case *ast.BinaryNode:
		return b.binary(n)
	}
	return nil, b.unavailable(n)
}

func (b *builder) choice(n *ast.ConditionalNode) (truth, error) {
	cond, err1 := b.truth(n.Cond)
	yes, err2 := b.truth(n.Exp1)
	no, err3 := b.truth(n.Exp2)
	if err := first(err1, err2, err3); err != nil {
		return nil, err
	}
	return func(req *limit.Request) (bool, error) {
		v, err := cond(req)
		if err != nil {
			return false, err
		}
		if v {
			return yes(req)
		}
		return no(req)
	}, nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) binary(n *ast.BinaryNode) (truth, error) {
	switch n.Operator {
	case "and", "&&", "or", "||":
		return b.junction(n)
	case "in":
		return b.member(n)
	case "matches":
		return b.expression(n)
	}
	switch kindOf(n.Left) {
	case reflect.String:
		return b.compareWords(n)
	case reflect.Int:
		return b.compareNumbers(n)
	case reflect.Bool:
		return b.compareTruths(n)
	}
	return nil, b.unavailable(n)
}

func (b *builder) junction(n *ast.BinaryNode) (truth, error) {
	left, err1 := b.truth(n.Left)
	right, err2 := b.truth(n.Right)
	if err := first(err1, err2); err != nil {
		return nil, err
	}
	settles := n.Operator == "or" || n.Operator == "||"
	return func(req *limit.Request) (bool, error) {
		v, err := left(req)
		if err != nil || v == settles {
			return v, err
		}
		return right(req)
	}, nil
}

var wordTests = map[string]func(a, b string) bool{
	"==":         func(a, b string) bool { return a == b },
	"!=":         func(a, b string) bool { return a != b },
	"contains":   strings.Contains,
	"startsWith": strings.HasPrefix,
	"endsWith":   strings.HasSuffix,
}

func (b *builder) compareWords(n *ast.BinaryNode) (truth, error) {
	test := wordTests[n.Operator]
	if test == nil {
		return nil, b.unavailable(n)
	}
	left, err1 := b.word(n.Left)
	right, err2 := b.word(n.Right)
	if err := first(err1, err2); err != nil {
		return nil, err
	}
	return func(req *limit.Request) (bool, error) { return test(left(req), right(req)), nil }, nil
}

var numberTests = map[string]func(a, b int) bool{
	"==": func(a, b int) bool { return a == b },
	"!=": func(a, b int) bool { return a != b },
	"<":  func(a, b int) bool { return a < b },
	"<=": func(a, b int) bool { return a <= b },
	">":  func(a, b int) bool { return a > b },
	">=": func(a, b int) bool { return a >= b },
}

func (b *builder) compareNumbers(n *ast.BinaryNode) (truth, error) {
	test := numberTests[n.Operator]
	if test == nil {
		return nil, b.unavailable(n)
	}
	left, err1 := b.number(n.Left)
	right, err2 := b.number(n.Right)
	if err := first(err1, err2); err != nil {
		return nil, err
	}
	return func(req *limit.Request) (bool, error) {
		x, err := left(req)
		if err != nil {
			return false, err
		}
		y, err := right(req)
		return err == nil && test(x, y), err
	}, nil
}

func (b *builder) compareTruths(n *ast.BinaryNode) (truth, error) {
	if n.Operator != "==" && n.Operator != "!=" {
		return nil, b.unavailable(n)
	}
	left, err1 := b.truth(n.Left)
	right, err2 := b.truth(n.Right)
	if err := first(err1, err2); err != nil {
		return nil, err
	}
	same := n.Operator == "=="
	return func(req *limit.Request) (bool, error) {
		x, err := left(req)
		if err != nil {
			return false, err
		}
		y, err := right(req)
		return err == nil && (x == y) == same, err
	}, nil
}

// member is x in ["a", "b"], or of numbers.
func (b *builder) member(n *ast.BinaryNode) (truth, error) {
	list, ok := n.Right.(*ast.ArrayNode)
	if !ok {
		return nil, b.mistake(n.Right, `such as tier in ["gold", "silver"]`, "a list of constants is wanted here")
	}
	if kindOf(n.Left) == reflect.Int {
		return b.numberMember(n, list)
	}
	left, err := b.word(n.Left)
	if err != nil {
		return nil, err
	}
	words := make([]string, len(list.Nodes))
	for i, item := range list.Nodes {
		if words[i], err = b.constant(item); err != nil {
			return nil, err
		}
	}
	return func(req *limit.Request) (bool, error) { return slices.Contains(words, left(req)), nil }, nil
}

func (b *builder) numberMember(n *ast.BinaryNode, list *ast.ArrayNode) (truth, error) {
	left, err := b.number(n.Left)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, len(list.Nodes))
	for i, item := range list.Nodes {
		v, ok := literal(item)
		if !ok {
			return nil, b.mistake(item, "", "a whole number is wanted here")
		}
		numbers[i] = v
	}
	return func(req *limit.Request) (bool, error) {
		v, err := left(req)
		return err == nil && slices.Contains(numbers, v), err
	}, nil
}

// expression is x matches "regular expression"; these take time linear in x.
func (b *builder) expression(n *ast.BinaryNode) (truth, error) {
	left, err1 := b.word(n.Left)
	text, err2 := b.constant(n.Right)
	if err := first(err1, err2); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, b.mistake(n.Right, "the syntax is RE2's", "%v", err)
	}
	return func(req *limit.Request) (bool, error) { return re.MatchString(left(req)), nil }, nil
}

func (b *builder) word(n ast.Node) (word, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		v := n.Value
		return func(*limit.Request) string { return v }, nil
	case *ast.IdentifierNode:
		if a, ok := b.attributes[n.Value]; ok {
			return a.Value, nil
		}
	case *ast.MemberNode:
		if a, ok := b.dotted(n); ok && !a.Number {
			return a.Value, nil
		}
	case *ast.CallNode:
		switch name := calleeOf(n); name {
		case "attr", "header":
			a, err := b.named(n.Arguments[0], name == "header")
			if err != nil {
				return nil, err
			}
			return a.Value, nil
		case "lower":
			inner, err := b.word(n.Arguments[0])
			if err != nil {
				return nil, err
			}
			return func(req *limit.Request) string { return strings.ToLower(inner(req)) }, nil
		}
	}
	return nil, b.unavailable(n)
}

func (b *builder) number(n ast.Node) (number, error) {
	if v, ok := literal(n); ok {
		return func(*limit.Request) (int, error) { return v, nil }, nil
	}
	if m, ok := n.(*ast.MemberNode); ok {
		if a, ok := b.dotted(m); ok && a.Number {
			return numberOf(a.Value), nil
		}
	}
	call, ok := n.(*ast.CallNode)
	if !ok || calleeOf(call) != "int" {
		return nil, b.unavailable(n)
	}
	inner, err := b.word(call.Arguments[0])
	if err != nil {
		return nil, err
	}
	return numberOf(inner), nil
}

func numberOf(text word) number {
	return func(req *limit.Request) (int, error) {
		v, ok := whole(text(req))
		if !ok {
			return 0, errNotNumber
		}
		return v, nil
	}
}

// dotted is the attribute that a name with a dot in it stands for.
func (b *builder) dotted(n *ast.MemberNode) (limit.Attribute, bool) {
	of, name, ok := memberOf(n)
	if !ok {
		return limit.Attribute{}, false
	}
	a, ok := b.attributes[of+"."+name]
	return a, ok
}

// literal is a number as written, with its sign.
func literal(n ast.Node) (int, bool) {
	if u, ok := n.(*ast.UnaryNode); ok && u.Operator == "-" {
		v, ok := literal(u.Node)
		return -v, ok
	}
	if i, ok := n.(*ast.IntegerNode); ok {
		return i.Value, true
	}
	return 0, false
}

// whole is strconv.Atoi without the errors that this makes: a client that
// sends none may not cost more than one that does. Nor may it get around a rule
// by writing its number longer: leading zeros count for nothing, and what is too
// large or too small for an int is the largest or the smallest one.
func whole(s string) (int, bool) {
	digits, negative := strings.CutPrefix(s, "-")
	if len(digits) == 0 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	digits = strings.TrimLeft(digits, "0")
	v := uint64(math.MaxUint64)
	if len(digits) < 20 { // of those each fits
		v, _ = strconv.ParseUint("0"+digits, 10, 64)
	}
	switch {
	case v <= math.MaxInt && negative:
		return -int(v), true
	case v <= math.MaxInt:
		return int(v), true
	case negative:
		return math.MinInt, true
	}
	return math.MaxInt, true
}

func calleeOf(n *ast.CallNode) string {
	if id, ok := n.Callee.(*ast.IdentifierNode); ok {
		return id.Value
	}
	return ""
}

func (b *builder) call(n *ast.CallNode) (truth, error) {
	switch calleeOf(n) {
	case "has":
		a, err := b.named(n.Arguments[0], false)
		if err != nil {
			return nil, err
		}
		return func(req *limit.Request) (bool, error) { return a.Value(req) != "", nil }, nil
	case "inCIDR":
		return b.inCIDR(n)
	}
	return nil, b.unavailable(n)
}

func (b *builder) inCIDR(n *ast.CallNode) (truth, error) {
	address, err := b.word(n.Arguments[0])
	if err != nil {
		return nil, err
	}
	networks := make([]netip.Prefix, 0, len(n.Arguments)-1)
	for _, arg := range n.Arguments[1:] {
		text, err := b.constant(arg)
		if err != nil {
			return nil, err
		}
		p, err := limit.ParseNetwork(text)
		if inside := (*limit.HostBitsError)(nil); errors.As(err, &inside) {
			return nil, b.mistake(arg, inside.Hint(), "%v", err)
		} else if err != nil {
			return nil, b.mistake(arg, `such as "10.0.0.0/8"`, "%v", err)
		}
		networks = append(networks, p)
	}
	return func(req *limit.Request) (bool, error) {
		addr := limit.NormalAddr(address(req))
		return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) }), nil
	}, nil
}

// named is the attribute that a constant names.
func (b *builder) named(n ast.Node, header bool) (limit.Attribute, error) {
	name, err := b.constant(n)
	if err != nil {
		return limit.Attribute{}, err
	}
	if header {
		name = "header." + name
	}
	a, ok := b.lookup(name)
	if !ok {
		return a, b.mistake(n, "letters, digits and _; header.NAME", "%q is not the name of an attribute", name)
	}
	return a, nil
}

func (b *builder) constant(n ast.Node) (string, error) {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value, nil
	}
	return "", b.mistake(n, `text in quotes, such as "gold"`, "a constant is wanted here")
}
