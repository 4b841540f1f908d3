package configs

import (
	"fmt"
	"slices"

	"github.com/spillgate/spillgate/edge/limit"
)

// Format is a language that rules are written in.
type Format string

const (
	FormatSpillgate Format = "spillgate" // our own; "" means it, too
	FormatEnvoy     Format = "envoy"     // envoyproxy/ratelimit's: a domain a file
)

// Formats are all of them.
var Formats = []string{string(FormatSpillgate), string(FormatEnvoy)}

// Set takes the name of one, as a flag does.
func (f *Format) Set(name string) error { return asWord((*string)(f), Formats...)(name) }

// String is its name.
func (f *Format) String() string { return string(*f) }

// Type is what a flag's value is called.
func (f *Format) Type() string { return "format" }

// Load is LoadRules for rules of this format.
func (f Format) Load(paths ...string) (*limit.Set, error) {
	set, _, err := f.Check(paths...)
	return set, err
}

// Check is CheckRules for rules of this format.
func (f Format) Check(paths ...string) (set *limit.Set, warnings []Mistake, err error) {
	files, err := readRules(paths)
	if err != nil {
		return nil, nil, err
	}
	return f.checkFiles(files)
}

// checkFiles is Check of files that were read.
func (f Format) checkFiles(files []rulesFile) (set *limit.Set, warnings []Mistake, err error) {
	return check(f.parseFiles(files))
}

// check compiles what was read, and says what of it works, but hardly as it was meant.
func check(docs []parsed, mistakes []Mistake) (set *limit.Set, warnings []Mistake, err error) {
	if set, err = compile(docs, mistakes); err == nil {
		warnings = suspected(docs, set)
	}
	return set, inOrder(warnings), err
}

// CheckOver is CheckRulesOver for rules of this format.
func (f Format) CheckOver(t limit.Topology, paths ...string) (set *limit.Set, warnings []Mistake, err error) {
	files, err := readRules(paths)
	if err != nil {
		return nil, nil, err
	}
	docs, mistakes := f.parseFiles(files)
	if set, err = compile(docs, mistakes); err != nil {
		return nil, nil, err
	}
	warnings = suspected(docs, set)
	refused, strained := strains(docs, set, t)
	if warnings = append(warnings, strained...); len(refused) > 0 {
		return nil, nil, &RulesError{Mistakes: inOrder(refused)}
	}
	return set, inOrder(warnings), nil
}

// suspected is what works, but hardly as it was meant.
func suspected(docs []parsed, set *limit.Set) (warnings []Mistake) {
	for i := range docs {
		warnings = append(warnings, docs[i].reader.warnings...)
	}
	return append(warnings, placed(docs, set.Warnings())...)
}

func (f Format) parseFiles(files []rulesFile) (docs []parsed, mistakes []Mistake) {
	parse := parseFile
	if f == FormatEnvoy {
		parse = parseEnvoyFile
	}
	for _, file := range files {
		d, m := parse(file)
		docs = append(docs, d...)
		mistakes = append(mistakes, m...)
	}
	return docs, mistakes
}

// isOf says that a file is of the format that has one word at its top, and not the other.
func isOf(n *node, word, not string) bool {
	has := func(word string) bool {
		return slices.ContainsFunc(n.entries, func(e entry) bool { return e.key == word })
	}
	return has(word) && !has(not)
}

// otherFormat is all that is said of a file that is read as another format than its own.
func otherFormat(src *source, n *node, f Format) Mistake {
	return Mistake{
		File: src.name, Line: src.lineOf(n.at.line), Column: n.at.column, Code: "E240", Excerpt: src.excerpt(n.at),
		Detail: fmt.Sprintf("the file is in another format, %s", f),
		Hint:   fmt.Sprintf("rules.format: %s; to check it: edge validate --format %s", f, f),
	}
}
