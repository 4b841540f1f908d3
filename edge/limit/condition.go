package limit

import "fmt"

// Condition is a compiled expression over the attributes of a request. It
// serves many goroutines, and what it costs is bounded by its text. It reads those that it
// looked up when it was compiled, and no others.
type Condition interface {
	// Holds says whether the expression is true of the request. An error, be
	// it a port that is no number, makes the rule not apply; it is counted.
	Holds(req *Request) (bool, error)
}

// Wanting is a condition that tells what it wants, so that a rule that has it is
// found by that, and not asked in vain.
type Wanting interface {
	// Wants is what must be true of a request for the condition to hold, as far
	// as it is known: it may fail all the same, and never holds without. It is
	// called once, when the rule is compiled.
	Wants() []Want
}

// Foregone is a condition that can tell that it is the same of all requests,
// which hardly anybody means.
type Foregone interface {
	// Foregone says whether it holds, where known says that this is settled.
	// What never holds, as it always fails, does not hold. That a response has a status
	// is taken for granted by what always holds.
	Foregone() (holds, known bool)
}

// Canonical is a condition that tells its text in one form, however it is written. One
// that does not is another condition with each blank.
type Canonical interface {
	// Canonical is the same text for all that is read alike, and another for all else.
	Canonical() string
}

// Want is what a condition wants of one name: that its value is one of some or,
// with Not, none of them. "" is the value of what is absent.
type Want struct {
	Name   string // "tier", or "header.X-Tier"
	Of     Attribute
	Values []string
	Not    bool
}

// ConditionCompiler checks an expression and compiles it. Its error is a
// *ConditionError where the place of the mistake is known. Engines live in
// packages of their own, so that this one needs nothing but the standard
// library.
type ConditionCompiler func(text string, lookup Lookup) (Condition, error)

// Lookup finds an attribute; ok is false for what cannot be the name of one.
type Lookup func(name string) (a Attribute, ok bool)

// Attribute is where a condition finds the value of a name.
type Attribute struct {
	slots []int

	// Known says that the rules file or the language knows the name: other
	// names stand for what callers may send.
	Known bool
	// Number says that the value is a whole number, where it is there at all, from Least to
	// Most.
	Number      bool
	Least, Most int
}

// Value is the attribute's in a request, "" where it is absent.
func (a Attribute) Value(req *Request) string { return req.first(a.slots) }

// ConditionError is a mistake in an expression.
type ConditionError struct {
	Line, Column int // of the expression, from 1; 0: unknown
	Detail, Hint string
}

func (e *ConditionError) Error() string {
	s := e.Detail
	if e.Line > 0 {
		s = fmt.Sprintf("%d:%d: %s", e.Line, e.Column, s)
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}
