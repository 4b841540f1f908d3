package configs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// maxVisited bounds the values read from one file once aliases are followed,
// so that ten lines of aliases cannot stand for a billion rules.
const maxVisited = 500_000

// reader turns a tree into values. It remembers where each path stood, for
// mistakes that only show later, and which paths it has reported already.
type reader struct {
	src      *source
	mistakes []Mistake
	warnings []Mistake // of what can be read, and was hardly meant so
	at       map[string]position
	bad      map[string]bool
	visited  int
}

func newReader(src *source) *reader {
	return &reader{src: src, at: map[string]position{}, bad: map[string]bool{}}
}

func (r *reader) mistake(path string, at position, code, hint, format string, args ...any) {
	r.bad[path] = true
	r.tell(&r.mistakes, path, at, code, hint, format, args...)
}

func (r *reader) warn(path string, at position, code, hint, format string, args ...any) {
	r.tell(&r.warnings, path, at, code, hint, format, args...)
}

func (r *reader) tell(to *[]Mistake, path string, at position, code, hint, format string, args ...any) {
	if len(*to) < maxMistakes {
		*to = append(*to, Mistake{
			File: r.src.name, Line: r.src.lineOf(at.line), Column: at.column, Code: code, Path: path,
			Detail: fmt.Sprintf(format, args...), Hint: hint, Excerpt: r.src.excerpt(at),
		})
	}
}

// placeOf is where a path stands, or the nearest thing around it that is
// written down.
func (r *reader) placeOf(path string) position {
	for {
		if at, ok := r.at[path]; ok {
			return at
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return r.at[""]
		}
		path = path[:cut]
	}
}

// reported says whether a mistake at path would only repeat one that was
// reported there or around it.
func (r *reader) reported(path string) bool {
	for !r.bad[path] {
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return r.bad[""]
		}
		path = path[:cut]
	}
	return true
}

// read is how a value is read; its path is for mistakes.
type read func(path string, n *node)

type field struct {
	name string
	must string // not "": the field is required, and this is how to give it
	read read
}

// object reads a mapping with the given fields. Words in unbuilt belong to
// the language, but not to this version of it.
func (r *reader) object(path string, n *node, fields []field, unbuilt ...string) {
	if n.kind != kindMapping {
		r.wrongKind(path, n, "a mapping", "write name: value, a line for each")
		return
	}
	r.at[path] = n.at
	seen := make([]bool, len(fields))
	// Where some words could not be read or are not built, the required ones
	// may well be meant by them.
	partial := n.partial
	var misspelt []string
	for _, e := range n.entries {
		if !r.visit(n) {
			return
		}
		at := join(path, e.key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == e.key })
		switch {
		case i >= 0:
			seen[i] = true
			r.at[at] = e.value.at
			fields[i].read(at, e.value)
		case slices.Contains(unbuilt, e.key):
			partial = true
			r.mistake(at, e.at, "E008", "leave it out", "%q is not built yet in this version", e.key)
		default:
			names := unbuilt
			for _, f := range fields {
				names = append(names, f.name)
			}
			hint := "one of: " + strings.Join(names[len(unbuilt):], ", ")
			if near := suggest(e.key, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
				misspelt = append(misspelt, near)
			} else if slices.Contains(names, "match") && slices.Contains(matchWords, e.key) {
				hint = fmt.Sprintf("it stands below match: match: {%s: ...}", e.key)
			}
			r.mistake(at, e.at, "E007", hint, "%q is not known here", clip(e.key))
		}
	}
	for i, f := range fields {
		switch at := join(path, f.name); {
		case f.must == "" || seen[i] || slices.Contains(misspelt, f.name):
		case partial:
			r.bad[at] = true
		default:
			r.mistake(at, n.at, "E014", f.must, "%s is missing", f.name)
		}
	}
	if n.partial {
		r.bad[path] = true
	}
	for _, name := range misspelt {
		r.bad[join(path, name)] = true // what lacks it need not be told too
	}
}

func (r *reader) visit(n *node) bool {
	r.visited++
	if r.visited == maxVisited+1 {
		r.mistake("", n.at, "E010", "write it out, or split it into several files", "more than %d values once aliases are followed", maxVisited)
	}
	return r.visited <= maxVisited
}

func (r *reader) wrongKind(path string, n *node, want, hint string) {
	if n.kind == kindBroken {
		r.bad[path] = true
		return
	}
	r.mistake(path, n.at, "E009", hint, "%s, where %s is wanted", n.describe(), want)
}

// describe is what a node is, for a message.
func (n *node) describe() string {
	switch n.kind {
	case kindText, kindInteger, kindFloat, kindBool:
		return fmt.Sprintf("%q is %s", clip(n.text), n.kind)
	}
	return "this is " + n.kind.String()
}

// each reads a list, item by item.
func (r *reader) each(path string, n *node, item read) {
	if n.kind != kindList {
		r.wrongKind(path, n, "a list", "begin each item with a dash")
		return
	}
	for i, v := range n.items {
		if !r.visit(v) {
			return
		}
		at := path + "[" + strconv.Itoa(i) + "]"
		r.at[at] = v.at
		item(at, v)
	}
}

// text reads a word. Numbers are not words: 007 would become 7 somewhere.
func (r *reader) text(dst *string) read {
	return func(path string, n *node) {
		switch {
		case n.kind == kindInteger, n.kind == kindFloat, n.kind == kindBool:
			r.wrongKind(path, n, "text", "put it in quotes")
		case n.kind != kindText:
			r.wrongKind(path, n, "text", "write one word, in quotes if need be")
		case n.text == "":
			r.mistake(path, n.at, "E009", "leave it out", "empty text")
		default:
			*dst = n.text
		}
	}
}

// texts reads a list of words, or one word.
func (r *reader) texts(dst *[]string) read {
	return func(path string, n *node) {
		word := func(path string, n *node) {
			s := ""
			r.text(&s)(path, n)
			*dst = append(*dst, s)
		}
		switch n.kind {
		case kindText, kindInteger, kindFloat, kindBool:
			word(path, n)
			r.at[path+"[0]"] = n.at
		default:
			r.each(path, n, word)
		}
	}
}

// someTexts reads as texts does, and wants one at least: path: [] would
// match every path. without says what is to be written in its place.
func (r *reader) someTexts(dst *[]string, without string) read {
	return func(path string, n *node) {
		if n.kind == kindList && len(n.items) == 0 {
			r.mistake(path, n.at, "E009", without, "an empty list")
			return
		}
		r.texts(dst)(path, n)
	}
}

// filled reads a mapping that says nothing where it is empty: it was meant to, or is left out.
func (r *reader) filled(what read) read {
	return func(path string, n *node) {
		if n.kind == kindMapping && len(n.entries) == 0 && !n.partial {
			r.mistake(path, n.at, "E009", "say what is in it; or leave it out", "an empty mapping")
			return
		}
		what(path, n)
	}
}

func (r *reader) flag(dst *bool) read {
	return func(path string, n *node) {
		if n.kind != kindBool {
			hint := map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}[strings.ToLower(n.text)]
			r.wrongKind(path, n, "true or false", cmp.Or(hint, "true, or leave it out"))
			return
		}
		*dst = n.text == "true" || n.text == "True" || n.text == "TRUE"
	}
}

// whole reads a whole number from lo to hi.
func whole[T int | uint32 | uint64](r *reader, dst *T, lo int64, hi uint64) read {
	return func(path string, n *node) {
		if n.kind == kindText && len(n.text) > 18 && strings.Trim(n.text, "0123456789_") == "" {
			n = &node{kind: kindInteger, text: n.text, at: n.at} // text only because it does not fit
		}
		if n.kind != kindInteger {
			hint := "write digits alone"
			if _, err := strconv.ParseInt(n.text, 10, 64); n.kind == kindText && err == nil {
				hint = "without the quotes"
			}
			r.wrongKind(path, n, "a whole number", hint)
			return
		}
		digits := strings.ReplaceAll(n.text, "_", "")
		unsigned := strings.TrimPrefix(digits, "-")
		if strings.Trim(unsigned, "0123456789") != "" || len(unsigned) > 1 && unsigned[0] == '0' || digits == "-0" {
			r.mistake(path, n.at, "E009", "plain decimal digits", "%q: only decimal numbers without a leading zero or sign are read", clip(n.text))
			return
		}
		var err error
		if unsigned != digits {
			var v int64
			v, err = strconv.ParseInt(digits, 10, 64)
			if err == nil && v >= lo {
				*dst = T(v)
				return
			}
		} else {
			var v uint64
			v, err = strconv.ParseUint(digits, 10, 64)
			if err == nil && v <= hi && (lo <= 0 || v >= uint64(lo)) {
				*dst = T(v)
				return
			}
		}
		r.mistake(path, n.at, "E013", fmt.Sprintf("%d to %d", lo, hi), "%s is out of range", clip(n.text))
	}
}

func (r *reader) duration(dst *time.Duration) read {
	return func(path string, n *node) {
		if n.kind != kindText && n.kind != kindInteger {
			r.wrongKind(path, n, "a duration", "such as 1m")
			return
		}
		d, err := ParseDuration(n.text)
		if err != nil {
			r.mistake(path, n.at, "E145", durationHint(n.text), "%v", err)
			return
		}
		*dst = d
	}
}

// flow reads so many units in a time.
func (r *reader) flow(dst *limit.Flow) read {
	return func(path string, n *node) {
		if n.kind != kindText {
			r.wrongKind(path, n, "a number in a time", "such as 5/s")
			return
		}
		f, err := ParseFlow(n.text)
		if err != nil {
			r.mistake(path, n.at, "E154", "such as 5/s, 300/m or 10/500ms", "%v", err)
			return
		}
		*dst = f
	}
}

// number reads a number that may have a fraction.
func (r *reader) number(dst *float64) read {
	return func(path string, n *node) {
		if n.kind != kindInteger && n.kind != kindFloat {
			r.wrongKind(path, n, "a number", "such as 10 or 0.5")
			return
		}
		v, err := strconv.ParseFloat(n.text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			r.mistake(path, n.at, "E009", "plain decimal digits", "%q is not a decimal number", clip(n.text))
			return
		}
		*dst = v
	}
}

// percent reads "10%".
func (r *reader) percent(dst *float64) read {
	return func(path string, n *node) {
		number, ok := strings.CutSuffix(n.text, "%")
		v, err := strconv.ParseFloat(number, 64)
		switch {
		case n.kind == kindText && ok && err == nil && !math.IsInf(v, 0) && !math.IsNaN(v):
			*dst = v
		case n.kind == kindInteger || n.kind == kindFloat:
			r.wrongKind(path, n, "a percentage", n.text+"%")
		default:
			r.wrongKind(path, n, "a percentage", `such as 10%`)
		}
	}
}

// portion reads a percentage that means nothing at 0%: there it would be taken
// for none at all.
func (r *reader) portion(dst *float64, code, hint string) read {
	return func(path string, n *node) {
		if r.percent(dst)(path, n); *dst == 0 && !r.bad[path] {
			r.mistake(path, n.at, code, hint, "0%% is out of range")
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
