package httpapi

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spillgate/spillgate/edge/limit"
)

const (
	maxCost       = 1 << 53 // of bytes or tokens there are many; exact in JSON. Rules have bounds of their own: cost.max
	maxBatch      = 100
	maxAttributes = 64 // of one call; also what keeps the search for duplicates short
)

type attribute struct {
	name, value string
	otherPaths  []string // of a path
}

// call is one decision that is asked for.
type call struct {
	namespace   string
	first, last int // its attributes: decoder.attributes[first:last]
	cost        uint64
	peek        bool

	// Of a report only:
	report   bool   // the call is one
	giveBack bool   // the cost is negative
	answered bool   // count what the response was
	decision string // the id of the check that it is about; "": not told

	// mistake is the first one in what the call says. The rest of the call was
	// then only read to find its end, so that in a batch the others are served.
	mistake *inputError
}

// decoder reads the bodies of /v1/check, /v1/check/batch and /v1/report. Reading again
// overwrites what was read before.
type decoder struct {
	scanner
	attributes []attribute
	calls      []call
}

// start sets the decoder to a body, which is refused unless it is UTF-8. A
// replacement character in place of what a caller sent would give different
// keys one counter.
func (d *decoder) start(text, example string) *inputError {
	d.forget()
	d.scanner = scanner{text: text}
	if !utf8.ValidString(text) {
		for i, r := range text {
			if _, n := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && n == 1 {
				return badRequest("body", "send JSON in UTF-8", "is not UTF-8 at byte %d", i)
			}
		}
	}
	if d.space(); d.at == len(text) {
		return badRequest("body", "send "+example, "is empty")
	}
	return nil
}

// give sets the attributes of a call on a request.
func (d *decoder) give(c *call, req *limit.Request) {
	for _, attr := range d.attributes[c.first:c.last] {
		if req.Set(attr.name, attr.value); attr.otherPaths != nil {
			req.AlsoPaths(attr.otherPaths)
		}
	}
}

// forget drops what was read, so that a pooled decoder keeps no caller's text.
func (d *decoder) forget() {
	clear(d.attributes)
	clear(d.calls)
	d.scanner, d.attributes, d.calls = scanner{}, d.attributes[:0], d.calls[:0]
}

// check reads the body of a single check.
func (d *decoder) check(text string) *inputError {
	if bad := d.start(text, `a JSON object, such as {"attributes":{"user":"u1"}}`); bad != nil {
		return bad
	}
	if bad := d.call(call{}); bad != nil {
		return bad
	}
	if bad := d.end(); bad != nil {
		return bad
	}
	return d.calls[0].mistake
}

// report reads the body of a report.
func (d *decoder) report(text string) *inputError {
	if bad := d.start(text, `a JSON object, such as {"attributes":{"user":"u1"},"cost":250}`); bad != nil {
		return bad
	}
	if bad := d.call(call{report: true}); bad != nil {
		return bad
	}
	if bad := d.end(); bad != nil {
		return bad
	}
	c := &d.calls[0]
	d.answered(c)
	return c.mistake
}

// answered checks a report of what a request was answered.
func (d *decoder) answered(c *call) {
	if !c.answered || c.mistake != nil {
		return
	}
	if c.giveBack {
		c.mistake = badRequest("cost", "report the two apart", "gives back, while answered charges")
		return
	}
	for _, a := range d.attributes[c.first:c.last] {
		if strings.HasPrefix(a.name, "response.") && a.value != "" {
			return
		}
	}
	c.mistake = badRequest("attributes", `such as {"user":"u1","response.status":"401"}`, "say nothing of the response, by which answered charges")
}

// batch reads the body of a batch. Mistakes within a call stay with the call;
// all others refuse the batch.
func (d *decoder) batch(text string) *inputError {
	const (
		example = `{"checks":[{"attributes":{"user":"u1"}}]}`
		hint    = "send " + example
	)
	if bad := d.start(text, example); bad != nil {
		return bad
	}
	if !d.take('{') {
		return d.syntax(`"{"`)
	}
	seen := false
	for n := 0; ; n++ {
		name, more, bad := d.member(n)
		if bad != nil {
			return bad
		}
		if !more {
			break
		}
		switch {
		case name != "checks":
			return badRequest(short(name), hint, "is not a field of a batch")
		case seen:
			return badRequest("checks", "send it once", "stands twice")
		}
		seen = true
		if bad := d.callList(); bad != nil {
			return bad
		}
	}
	if bad := d.end(); bad != nil {
		return bad
	}
	if !seen {
		return badRequest("checks", hint, "is missing")
	}
	return nil
}

func (d *decoder) callList() *inputError {
	if kind := d.kind(); kind != "an array" && kind != "" {
		return badRequest("checks", "send an array of checks", "is %s", kind)
	}
	if !d.take('[') {
		return d.syntax(`"["`)
	}
	for n := 0; ; n++ {
		more, bad := d.element(n)
		if bad != nil || !more {
			return bad
		}
		if n == maxBatch {
			return badRequest("checks", "split the batch", "has more than %d checks", maxBatch)
		}
		if bad := d.call(call{}); bad != nil {
			return bad
		}
	}
}

// end makes sure that nothing follows the value.
func (d *decoder) end() *inputError {
	if d.space(); d.at < len(d.text) {
		return d.syntax("the end of the body")
	}
	return nil
}

// Fields of a call, as bits, to find those that stand twice.
const (
	fieldNamespace = 1 << iota
	fieldAttributes
	fieldCost
	fieldPeek
	fieldAnswered
	fieldDecision
)

// call reads one call into one of its kind. What it returns is a mistake in the JSON; mistakes in
// what the JSON says are kept in the call.
func (d *decoder) call(kind call) *inputError {
	kind.first, kind.last = len(d.attributes), len(d.attributes)
	d.calls = append(d.calls, kind)
	c := &d.calls[len(d.calls)-1]
	if kind := d.kind(); kind != "an object" && kind != "" {
		c.note(badRequest("check", `send an object, such as {"attributes":{"user":"u1"}}`, "is %s", kind))
		return d.skip(1)
	}
	if !d.take('{') {
		return d.syntax(`"{"`)
	}
	seen := 0
	for n := 0; ; n++ {
		name, more, bad := d.member(n)
		if bad != nil || !more {
			c.last = len(d.attributes)
			return bad
		}
		field := 0
		switch {
		case name == "namespace":
			field = fieldNamespace
		case name == "attributes":
			field = fieldAttributes
		case name == "cost":
			field = fieldCost
		case name == "peek" && !c.report:
			field = fieldPeek
		case name == "answered" && c.report:
			field = fieldAnswered
		case name == "decision_id" && c.report:
			field = fieldDecision
		case c.report:
			c.note(badRequest(short(name), "the fields are namespace, attributes, cost, decision_id and answered; what rules read goes into attributes", "is not a field of a report"))
		default:
			c.note(badRequest(short(name), "the fields are namespace, attributes, cost and peek; what rules read goes into attributes", "is not a field of a check"))
		}
		if seen&field != 0 {
			c.note(badRequest(name, "send it once", "stands twice"))
			field = 0
		}
		seen |= field
		if bad := d.value(c, field); bad != nil {
			return bad
		}
	}
}

const decisionHint = "send that of the reply to the check, or leave it out"

func (d *decoder) value(c *call, field int) (bad *inputError) {
	kind := d.kind()
	switch {
	case field == fieldNamespace && kind == "a string":
		c.namespace, bad = d.str()
	case field == fieldNamespace:
		c.wrongKind("namespace", kind, `send a string, such as "acme", or leave it out where the rules have only one`)
		bad = d.skip(1)
	case field == fieldAttributes && kind == "an object":
		bad = d.attributeList(c)
	case field == fieldAttributes:
		c.wrongKind("attributes", kind, `send an object of strings, such as {"user":"u1"}`)
		bad = d.skip(1)
	case field == fieldCost && kind == "a number":
		var text string
		if text, bad = d.number(); bad == nil {
			c.setCost(text)
		}
	case field == fieldCost:
		c.wrongKind("cost", kind, c.costHint()+", or leave it out for the cost that the rule says")
		bad = d.skip(1)
	case field == fieldPeek && kind == "a boolean":
		var word string
		word, bad = d.literal()
		c.peek = c.peek || word == "true"
	case field == fieldAnswered && kind == "a boolean":
		var word string
		word, bad = d.literal()
		c.answered = word == "true"
	case field == fieldDecision && kind == "a string":
		if c.decision, bad = d.str(); bad == nil {
			c.knowDecision()
		}
	case field == fieldDecision:
		c.wrongKind("decision_id", kind, decisionHint)
		bad = d.skip(1)
	case field == fieldAnswered:
		c.wrongKind("answered", kind, "send true to charge rules that count certain responses, or leave it out")
		bad = d.skip(1)
	case field == fieldPeek:
		c.wrongKind("peek", kind, "send true to ask without being counted, or leave it out")
		bad = d.skip(1)
	default:
		bad = d.skip(1)
	}
	return bad
}

func (d *decoder) attributeList(c *call) *inputError {
	d.take('{')
	for n := 0; ; n++ {
		name, more, bad := d.member(n)
		if bad != nil || !more {
			return bad
		}
		if kind := d.kind(); kind != "a string" {
			c.wrongKind(attributePath(name), kind, "attributes are strings: quote it, or leave it out")
			if bad := d.skip(1); bad != nil {
				return bad
			}
			continue
		}
		value, bad := d.str()
		if bad != nil {
			return bad
		}
		d.attribute(c, n, name, value)
	}
}

// attribute takes an attribute of a call, its nth.
func (d *decoder) attribute(c *call, n int, name, value string) {
	switch at := d.stands(c, name); {
	case n >= maxAttributes:
		if n == maxAttributes {
			c.note(badRequest("attributes", "send those that the rules read", "are more than %d", maxAttributes))
		}
	case at != nil && at.name == name:
		c.note(badRequest(attributePath(name), "send it once", "stands twice"))
	case at != nil:
		c.note(badRequest(attributePath(name), "send it once", "is the same as %s", short(at.name)))
	case name == "client_ip" && !isAddress(value):
		c.note(badRequest("attributes.client_ip", "send the address alone, such as 192.0.2.1 or 2001:db8::1, or leave it out", "%s is not an IP address", short(value)))
	case c.report && name == "response.status" && !isStatus(value):
		c.note(badRequest("attributes.response.status", `send its number, such as "401", or leave it out`, "%s is not a whole number", short(value)))
	default:
		value, others := written(name, value) // as of /v1/auth: a caller passes on what a client wrote
		d.attributes = append(d.attributes, attribute{name, value, others})
	}
}

// knowDecision notes an id that cannot be one.
func (c *call) knowDecision() {
	if c.decision != "" && !isID(strings.ToUpper(c.decision)) {
		c.note(badRequest("decision_id", decisionHint, "%s is no id of a decision", short(c.decision)))
	}
}

// isAddress says whether text can be counted as an address, or says of which kind of
// clients without one it is. Else each way to write one that is none would be a client of
// its own.
func isAddress(text string) bool {
	if text == "" || text == onUnix || text == noAddress { // absent, or as middleware has it
		return true
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}

// isStatus says whether text can be a status, which conditions read as a number: below 0
// some write what was no answer.
func isStatus(text string) bool {
	return isDigits(strings.TrimPrefix(text, "-")) || text == "" // absent
}

// stands is the same attribute of a call before; nil where there is none.
func (d *decoder) stands(c *call, name string) *attribute {
	for i := c.first; i < len(d.attributes); i++ {
		if at := &d.attributes[i]; limit.SameAttribute(at.name, name) {
			return at
		}
	}
	return nil
}

// attributePath names an attribute in a message, cut where a caller made it long.
func attributePath(attribute string) string {
	if len(attribute) > shortest {
		return "attributes." + short(attribute)
	}
	return "attributes." + attribute
}

// note keeps the first mistake of a call.
func (c *call) note(e *inputError) {
	if c.mistake == nil {
		c.mistake = e
	}
}

// wrongKind notes a value of the wrong kind; where there is no value at all,
// reading on says so.
func (c *call) wrongKind(field, kind, hint string) {
	if kind != "" && c.mistake == nil {
		c.mistake = badRequest(field, hint, "is %s", kind)
	}
}

func (c *call) setCost(text string) {
	if c.report {
		text, c.giveBack = strings.CutPrefix(text, "-")
	}
	cost, bad := parseCost("cost", c.costHint(), text)
	if bad != nil {
		c.note(bad)
		return
	}
	c.costs(cost)
}

// costs notes what a call is to cost.
func (c *call) costs(cost uint64) {
	switch {
	case cost > maxCost:
		c.note(badRequest("cost", c.costHint(), `"%d" is above 2^53`, cost))
		return
	case cost == 0 && c.report:
		c.note(badRequest("cost", c.costHint(), "of 0 records nothing"))
	case cost == 0:
		c.peek = true
	}
	c.cost = cost
}

const costHint = "send a whole number from 0 to 2^53"

func (c *call) costHint() string {
	if c.report {
		return "send a whole number from 1 to 2^53, or its negative to give back"
	}
	return costHint
}

// parseCost reads a cost that a caller names. Zero asks what would be decided
// without being counted, as a peek does.
func parseCost(field, hint, text string) (uint64, *inputError) {
	cost, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err == nil && cost <= maxCost:
		return cost, nil
	case len(text) > 0 && text[0] == '-':
		return 0, badRequest(field, hint, "%s is negative", short(text))
	case err == nil || isDigits(text):
		return 0, badRequest(field, hint, "%s is above 2^53", short(text))
	default:
		return 0, badRequest(field, hint, "%s is not a whole number", short(text))
	}
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
