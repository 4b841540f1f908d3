package configs

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file. The parser takes time quadratic in the keys of one mapping
// and in the documents of one file, and recurses with depth, so that these are
// checked on the tokens, before it runs.
const (
	maxFileBytes   = 4 << 20
	maxTokens      = 1_000_000
	maxDepth       = 64
	maxMappingKeys = 1024
	maxDocuments   = 1024
	maxAnchors     = 1024
)

type kind uint8

const (
	kindNull kind = iota
	kindText
	kindInteger
	kindFloat
	kindBool
	kindList
	kindMapping
	kindBroken // told already
)

func (k kind) String() string {
	return [...]string{"empty", "text", "a whole number", "a number with a fraction", "true or false", "a list", "a mapping", "broken"}[k]
}

// node is a YAML value with its place. Aliases are followed: the same node may
// hang in several places, but never below itself.
type node struct {
	kind    kind
	text    string // of a scalar, unquoted
	at      position
	items   []*node
	entries []entry
	partial bool // a mapping with keys that could not be read, and were told
}

type entry struct {
	key   string
	at    position
	value *node
}

// parseTree reads a file's documents. Where it reports a mistake the documents
// are incomplete or absent.
func parseTree(src *source, text []byte) (docs []*node, mistakes []Mistake) {
	b := &treeBuilder{src: src, anchors: map[string]*node{}}
	defer func() {
		// The parser is not ours, and what it reads may come over a network
		// one day: a bug in it must not end the process.
		if r := recover(); r != nil {
			docs, mistakes = nil, b.mistakes
			mistakes = append(mistakes, Mistake{File: src.name, Code: "E003", Detail: fmt.Sprintf("cannot be read as YAML: %v", r)})
		}
	}()
	switch {
	case len(text) > maxFileBytes:
		b.mistake(position{}, "E002", "split it into several files", "%d bytes; a file has at most %d", len(text), maxFileBytes)
	case !utf8.Valid(text):
		b.mistake(invalidAt(text), "E001", "save the file as UTF-8", "not UTF-8 text")
	case signs(text) > maxTokens: // each is a token, which takes some 250 bytes
		b.mistake(position{}, "E002", "split it into several files", "%d signs of YAML; a file has at most %d words and signs", signs(text), maxTokens)
	default:
		docs = b.read(oneBreak.Replace(string(text)))
	}
	return docs, b.mistakes
}

// signs counts what makes a token of its own wherever it does not stand in quotes, or in a comment.
func signs(text []byte) (n int) {
	for i, c := range text {
		switch c {
		case '[', ']', '{', '}', ',':
			n++
		case ':', '-', '?':
			if i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\n' || text[i+1] == '\r' || text[i+1] == '\t' {
				n++
			}
		}
	}
	return n
}

type treeBuilder struct {
	src      *source
	mistakes []Mistake
	anchors  map[string]*node
}

func (b *treeBuilder) mistake(at position, code, hint, format string, args ...any) {
	if len(b.mistakes) < maxMistakes {
		b.mistakes = append(b.mistakes, Mistake{
			File: b.src.name, Line: b.src.lineOf(at.line), Column: at.column, Code: code,
			Detail: fmt.Sprintf(format, args...), Hint: hint, Excerpt: b.src.excerpt(at),
		})
	}
}

func (b *treeBuilder) read(text string) []*node {
	text, tabs := withoutTabs(strings.TrimPrefix(text, "\uFEFF"))
	tokens := lexer.Tokenize(text)
	if !b.tabbed(tokens, tabs) || !b.bounded(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		b.syntax(err)
		return nil
	}
	var docs []*node
	for _, d := range file.Docs {
		clear(b.anchors) // an anchor lives in its document
		if d.Body == nil {
			continue
		}
		if n := b.node(d.Body); n.kind != kindNull {
			docs = append(docs, n)
		}
	}
	return docs
}

// withoutTabs has a space for each tab that a line is indented with, as the parser does not know
// what to make of these, and says where the first one is of each such line.
func withoutTabs(text string) (string, []position) {
	if !strings.Contains(text, "\t") {
		return text, nil
	}
	var tabs []position
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		rest := strings.TrimLeft(line, " \t")
		indent := line[:len(line)-len(rest)]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && strings.TrimSpace(rest) != "" && rest[0] != '#' {
			tabs = append(tabs, position{i + 1, tab + 1})
			lines[i] = strings.Repeat(" ", len(indent)) + rest
		}
	}
	return strings.Join(lines, "\n"), tabs
}

// tabbed says that the lines which are indented with tabs stand within brackets, where YAML
// lets them, as in JSON.
func (b *treeBuilder) tabbed(tokens token.Tokens, tabs []position) bool {
	flow := 0
	for _, tab := range tabs {
		for len(tokens) > 0 && tokens[0].Position.Line < tab.line {
			switch tokens[0].Type {
			case token.DocumentHeaderType:
				flow = 0
			case token.SequenceStartType, token.MappingStartType:
				flow++
			case token.SequenceEndType, token.MappingEndType:
				flow--
			}
			tokens = tokens[1:]
		}
		if flow <= 0 {
			b.mistake(tab, "E006", "indent with spaces", "a tab in the indentation")
			return false
		}
	}
	return true
}

func (b *treeBuilder) syntax(err error) {
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil {
		hint := "see whether brackets, quotes and indents are closed and line up"
		if strings.HasPrefix(e.GetMessage(), "mapping value is not allowed") {
			hint = "text that holds a colon stands in quotes"
		}
		b.mistake(placeOf(e.GetToken()), "E003", hint, "%s", clip(e.GetMessage()))
		return
	}
	b.mistake(position{}, "E003", "write plain YAML in UTF-8, a mapping at its top", "cannot be read as YAML: %s", clip(err.Error()))
}

// bounded checks what would cost the parser too much.
func (b *treeBuilder) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		b.mistake(position{}, "E002", "split it into several files", "%d words and signs; a file has at most %d", len(tokens), maxTokens)
		return false
	}
	// open holds the columns of the block mappings and lists that the current
	// token stands in, and how many keys each has had.
	type level struct{ column, keys int }
	var open []level
	flow, anchors, documents := 0, 0, 0
	for i, t := range tokens {
		at, key := t, false
		switch t.Type {
		case token.DocumentHeaderType:
			documents++
			open, flow = open[:0], 0
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.AnchorType:
			anchors++
		case token.TagType:
			b.mistake(placeOf(t), "E003", "drop the tag", "tags such as %q are not used here", clip(t.Value))
			return false
		case token.MappingValueType:
			if i > 0 {
				at, key = tokens[i-1], true
			}
		}
		if flow <= 0 && (key || t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType) {
			column := at.Position.Column
			for len(open) > 0 && open[len(open)-1].column > column {
				open = open[:len(open)-1]
			}
			if len(open) == 0 || open[len(open)-1].column < column {
				open = append(open, level{column: column})
			}
			if key {
				open[len(open)-1].keys++
			}
		}
		switch {
		case flow > 0 && i > 0 && t.Type == token.MappingValueType && gluedColon(tokens, i):
			// The parser takes {url: [nats://h:1]} for a mapping of h to 1.
			b.mistake(placeOf(t), "E003", "put the whole word in quotes, or a space after the colon", "a colon inside a word, between braces")
		case len(open)+max(flow, 0) > maxDepth:
			b.mistake(placeOf(t), "E011", "no setting or rule needs so many: see whether brackets and indents are meant", "nested more than %d deep", maxDepth)
		case len(open) > 0 && open[len(open)-1].keys > maxMappingKeys:
			b.mistake(placeOf(t), "E011", "split it into several files", "more than %d keys in one mapping", maxMappingKeys)
		case documents > maxDocuments:
			b.mistake(placeOf(t), "E011", "split it into several files", "more than %d documents", maxDocuments)
		case anchors > maxAnchors:
			b.mistake(placeOf(t), "E011", "write values out, or split the file", "more than %d anchors", maxAnchors)
		default:
			continue
		}
		return false
	}
	return true
}

// gluedColon says whether the colon at i, after a word without quotes, has
// another word right behind it.
func gluedColon(tokens token.Tokens, i int) bool {
	if q := tokens[i-1].Type; q == token.SingleQuoteType || q == token.DoubleQuoteType || i+1 == len(tokens) {
		return false
	}
	colon, next := tokens[i].Position, tokens[i+1]
	switch next.Type {
	case token.CollectEntryType, token.MappingEndType, token.SequenceEndType:
		return false
	}
	return next.Position.Line == colon.Line && next.Position.Column == colon.Column+1
}

func (b *treeBuilder) node(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.MappingNode:
		return b.mapping(n.GetToken(), n.IsFlowStyle, n.Values)
	case *ast.MappingValueNode:
		return b.mapping(n.GetToken(), false, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		list := &node{kind: kindList, at: placeOf(n.GetToken())}
		for _, v := range n.Values {
			list.items = append(list.items, b.node(v))
		}
		return list
	case *ast.AnchorNode:
		v := b.node(n.Value)
		b.anchors[n.Name.GetToken().Value] = v // only now: an anchor cannot stand in itself
		return v
	case *ast.AliasNode:
		name := n.Value.GetToken()
		if v, ok := b.anchors[name.Value]; ok {
			return v
		}
		b.mistake(placeOf(n.GetToken()), "E010", "define it before its use", "there is no anchor %q", clip(name.Value))
		return &node{kind: kindBroken, at: placeOf(n.GetToken())}
	case nil:
		return &node{}
	}
	return scalar(n)
}

func (b *treeBuilder) mapping(start *token.Token, flow bool, values []*ast.MappingValueNode) *node {
	m := &node{kind: kindMapping, at: placeOf(start)}
	first := map[string]position{}
	for i, v := range values {
		key := v.Key.GetToken()
		if _, scalarKey := v.Key.(ast.ScalarNode); !scalarKey || v.Key.IsMergeKey() {
			m.partial = true
			b.mistake(placeOf(key), "E003", "write out what it stands for", "a key is a plain word; lists, mappings, aliases and << do not stand here")
			continue
		}
		at := placeOf(key)
		if i == 0 && !flow {
			m.at = at
		}
		if before, dup := first[key.Value]; dup {
			b.mistake(at, "E005", "drop one", "%q stands here twice; first on line %d", clip(key.Value), b.src.lineOf(before.line))
			continue
		}
		first[key.Value] = at
		value := b.node(v.Value)
		if value.kind == kindNull {
			value = &node{at: at} // nothing is written there
		}
		m.entries = append(m.entries, entry{key: key.Value, at: at, value: value})
	}
	return m
}

func scalar(n ast.Node) *node {
	v := &node{kind: kindText, at: placeOf(n.GetToken()), text: n.GetToken().Value}
	switch n := n.(type) {
	case *ast.NullNode:
		v.kind, v.text = kindNull, ""
	case *ast.IntegerNode:
		v.kind = kindInteger
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		v.kind = kindFloat
	case *ast.BoolNode:
		v.kind = kindBool
	case *ast.StringNode:
		v.text = n.Value
	case *ast.LiteralNode:
		v.text = n.Value.Value
	}
	return v
}

func placeOf(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{t.Position.Line, t.Position.Column}
}

func invalidAt(text []byte) position {
	at := position{1, 1}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			return at
		case r == '\n':
			at = position{at.line + 1, 1}
		default:
			at.column++
		}
		text = text[n:]
	}
	return at
}
