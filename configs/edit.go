package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInPlace: one rule of a document cannot be changed by itself; the document can, as a whole.
var ErrInPlace = errors.New("a single rule of this document cannot be changed")

// RuleText is one rule as a document has it.
type RuleText struct {
	Name  string
	Line  int    // of the document, at which it begins
	Text  string // as it is written, without its dash and the comments before it; "" where rules stand within brackets
	Value any    // as JSON has it
}

// RulesOf are the rules of a document of our own format. The error is a *RulesError.
func RulesOf(t Text) ([]RuleText, error) {
	doc, err := editable(t)
	if err != nil {
		return nil, err
	}
	rules := make([]RuleText, len(doc.rules))
	for i, n := range doc.rules {
		rules[i] = RuleText{Name: nameOf(n), Line: n.at.line, Value: n.value()}
		if doc.spans != nil {
			rules[i].Text = doc.spans[i].text(doc.lines)
		}
	}
	return rules, nil
}

// SetRule is the document with one of its rules written otherwise, or, where it has none of that
// name, with one more, at its end; rule "" takes it away, with the comments right above it. All
// that is written elsewhere stays as it is. The error is a *RulesError where the document or the
// rule cannot be read, or wraps ErrInPlace. Whether the rule works is CheckTexts' to say.
func SetRule(t Text, name, rule string) (string, error) {
	doc, err := editable(t)
	if err != nil {
		return "", err
	}
	if doc.spans == nil {
		return "", fmt.Errorf("%w: its rules do not stand one below the other, each with a dash; write the document as a whole", ErrInPlace)
	}
	at := slices.IndexFunc(doc.rules, func(n *node) bool { return nameOf(n) == name })
	lines, want := doc.lines, slices.Clone(doc.rules)
	switch {
	case rule == "" && at < 0:
		return "", fmt.Errorf("%w: it has no rule %q", ErrInPlace, clip(name))
	case rule == "":
		lines = slices.Delete(slices.Clone(lines), doc.spans[at].comments(lines), doc.spans[at].end)
		want = slices.Delete(want, at, at+1)
	default:
		n, err := readRule(name, rule)
		if err != nil {
			return "", err
		}
		from, to := doc.spans[len(doc.spans)-1].end, doc.spans[len(doc.spans)-1].end
		if at >= 0 {
			from, to, want[at] = doc.spans[at].begin, doc.spans[at].end, n
		} else {
			want = append(want, n)
		}
		lines = slices.Replace(slices.Clone(lines), from, to, item(rule, doc.spans[0].column)...)
	}
	if len(want) == 0 {
		return "", fmt.Errorf("%w: %q is its only rule; take the namespace away", ErrInPlace, clip(name))
	}
	text := strings.Join(lines, "\n")
	if rest := text[len(strings.TrimRight(text, "\n")):]; rest == "" {
		text += "\n"
	}
	after, err := editable(Text{Name: t.Name, Text: text})
	if err != nil {
		return "", err
	}
	if strings.Contains(t.Text, "\r\n") && strings.Count(t.Text, "\r\n") == strings.Count(t.Text, "\n") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if !slices.EqualFunc(after.rules, want, (*node).same) || !doc.besideRules(after) {
		return "", fmt.Errorf("%w, as it is written: write the document as a whole", ErrInPlace)
	}
	return text, nil
}

// readRule reads a rule that stands by itself, which must have the name.
func readRule(name, rule string) (*node, error) {
	src := newSource("rule "+name, []byte(rule))
	trees, mistakes := parseTree(src, []byte(rule))
	r := newReader(src)
	switch {
	case len(mistakes) > 0:
	case len(trees) != 1 || trees[0].kind != kindMapping:
		r.mistake("", position{1, 1}, "E009", "write name: value, a line for each", "one rule is wanted, a mapping")
	case nameOf(trees[0]) != name:
		r.mistake("name", trees[0].at, "E247", "name: "+name, "the rule is called %q, and is to be %q", clip(nameOf(trees[0])), clip(name))
	}
	if mistakes = append(mistakes, r.mistakes...); len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: sortMistakes(mistakes)}
	}
	return trees[0], nil
}

// item is a rule as an item of a list whose dashes stand at a column.
func item(rule string, column int) []string {
	lines := strings.Split(strings.TrimRight(oneBreak.Replace(rule), "\n"), "\n")
	indent := strings.Repeat(" ", column-1)
	out := []string{indent + "-"}
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			l = indent + "  " + l
		}
		out = append(out, l)
	}
	// The dash stands on a line with what begins there, unless that is a comment or is indented.
	if first := lines[0]; strings.TrimSpace(first) != "" && first[0] != ' ' && first[0] != '#' && first[0] != '-' {
		out[1] = indent + "- " + first
		out = out[1:]
	}
	return out
}

// editing is a document of which single rules are to be changed.
type editing struct {
	lines []string
	tree  *node
	rules []*node
	spans []span // of each rule; nil: they do not stand one below the other
}

// span is the lines of an item of a list: from begin to before end, counted from 0.
type span struct{ begin, end, column int }

// editable reads a document with its rules.
func editable(t Text) (*editing, error) {
	text := oneBreak.Replace(t.Text)
	src := newSource(t.Name, []byte(text))
	trees, mistakes := parseTree(src, []byte(text))
	r := newReader(src)
	var list *node
	if len(mistakes) == 0 {
		if len(trees) == 1 && trees[0].kind == kindMapping {
			if i := slices.IndexFunc(trees[0].entries, func(e entry) bool { return e.key == "rules" }); i >= 0 {
				list = trees[0].entries[i].value
			}
		}
		if list == nil || list.kind != kindList {
			r.mistake("", position{1, 1}, "E009", "a document of rules: "+RulesSchema, "one document with a list of rules is wanted")
		}
	}
	if mistakes = append(mistakes, r.mistakes...); len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: sortMistakes(mistakes)}
	}
	doc := &editing{lines: strings.Split(text, "\n"), tree: trees[0], rules: list.items}
	doc.spans = doc.locate(list)
	return doc, nil
}

// locate finds the lines of each rule.
func (doc *editing) locate(list *node) []span {
	var spans []span
	column := list.at.column
	for i, n := range doc.rules {
		begin, least := n.at.line-1, 0
		if i > 0 {
			least = spans[i-1].begin + 1
		}
		for begin >= least && !dashed(doc.lines[begin], column) {
			begin--
		}
		if begin < least {
			return nil
		}
		spans = append(spans, span{begin: begin, column: column})
		if i > 0 {
			spans[i-1].end = begin
		}
	}
	if len(spans) == 0 {
		return nil
	}
	last := &spans[len(spans)-1]
	for last.end = last.begin + 1; last.end < len(doc.lines); last.end++ {
		l := doc.lines[last.end]
		if said := strings.TrimLeft(l, " "); said != "" && said[0] != '#' && len(l)-len(said) < column {
			break
		}
	}
	for i := range spans { // what stands before the next is of that
		for s := &spans[i]; s.end > s.begin+1 && s.silent(doc.lines[s.end-1]); {
			s.end--
		}
	}
	return spans
}

// dashed says that an item of a list begins on a line, at a column.
func dashed(line string, column int) bool {
	rest := strings.TrimLeft(line, " ")
	return len(line)-len(rest) == column-1 && (rest == "-" || strings.HasPrefix(rest, "- "))
}

// silent says that a line says nothing of the item: it is empty, or a comment that is indented no more
// than the item. One that is may be a part of a text.
func (s span) silent(line string) bool {
	said := strings.TrimLeft(line, " ")
	return strings.TrimSpace(said) == "" || said[0] == '#' && len(line)-len(said) < s.column
}

// comments is the first line of the comments right above the item.
func (s span) comments(lines []string) int {
	from := s.begin
	for from > 0 && strings.HasPrefix(strings.TrimSpace(lines[from-1]), "#") {
		from--
	}
	return from
}

// text is the item without its dash, and with no more indent than it needs.
func (s span) text(lines []string) string {
	own := slices.Clone(lines[s.begin:s.end])
	own[0] = own[0][:s.column-1] + " " + own[0][s.column:]
	if strings.TrimSpace(own[0]) == "" {
		own = own[1:]
	}
	least := -1
	for _, l := range own {
		if n := len(l) - len(strings.TrimLeft(l, " ")); strings.TrimSpace(l) != "" && (least < 0 || n < least) {
			least = n
		}
	}
	var b strings.Builder
	for _, l := range own {
		b.WriteString(l[min(max(least, 0), len(l)):] + "\n")
	}
	return b.String()
}

// besideRules says that two documents differ in nothing but their rules.
func (doc *editing) besideRules(other *editing) bool {
	without := func(e entry) bool { return e.key == "rules" }
	return slices.EqualFunc(slices.DeleteFunc(slices.Clone(doc.tree.entries), without), slices.DeleteFunc(slices.Clone(other.tree.entries), without), entry.same)
}

func (e entry) same(o entry) bool { return e.key == o.key && e.value.same(o.value) }

// same says that two nodes say the same, wherever they stand.
func (n *node) same(o *node) bool {
	return n.kind == o.kind && n.text == o.text && slices.EqualFunc(n.items, o.items, (*node).same) && slices.EqualFunc(n.entries, o.entries, entry.same)
}

// nameOf is what a rule is called; "" where that is not said.
func nameOf(n *node) string {
	for _, e := range n.entries {
		if e.key == "name" {
			return e.value.text
		}
	}
	return ""
}

// value is a node as JSON has it.
func (n *node) value() any {
	switch n.kind {
	case kindList:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.value()
		}
		return list
	case kindMapping:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = e.value.value()
		}
		return m
	case kindInteger, kindFloat:
		if number := strings.ReplaceAll(n.text, "_", ""); json.Valid([]byte(number)) {
			return json.Number(number)
		}
	case kindBool:
		return strings.EqualFold(n.text, "true")
	case kindNull:
		return nil
	}
	return n.text
}
