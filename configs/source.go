package configs

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
)

// Where rules come from.
const (
	SourceFile = "file" // a file, or a directory of them
	SourceKV   = "kv"   // a key-value bucket of JetStream's, a document a namespace
)

// RulesSettings is where the rules come from.
type RulesSettings struct {
	Source string // SourceFile or SourceKV
	Path   string // a file, or a directory of *.yaml; "" of an aggregator: it has no rules
	Format Format // of what is read
	KV     RulesKVSettings
}

// RulesKVSettings is which bucket has the rules.
type RulesKVSettings struct {
	Bucket string
	Domain string // JetStream's; "": the server's own
	File   string // has those that were good last; "": there is none
}

// Set says that there are rules to read.
func (r *RulesSettings) Set() bool { return r.Source == SourceKV || r.Path != "" }

// table is the settings of them; what is said of the path.
func (r *RulesSettings) table(path string) []setting {
	return []setting{
		{key: "rules.source", fallback: SourceFile, usage: "where rules come from: file (rules.path), or kv, a JetStream bucket that `aggregator rules` writes", parse: asWord(&r.Source, SourceFile, SourceKV)},
		{key: "rules.path", usage: path, path: true, parse: asText(&r.Path)},
		{key: "rules.format", fallback: string(FormatSpillgate), usage: "`format` of the rules: spillgate, or envoy for the files of envoyproxy/ratelimit, a domain each; the same on every edge and aggregator", parse: r.Format.Set},
		{key: "rules.kv.bucket", fallback: "rules", usage: "`name` of the bucket, of rules.source: kv", parse: asToken(&r.KV.Bucket, true)},
		{key: "rules.kv.domain", usage: "JetStream `domain` that has the bucket, which is this region's (default: the NATS server's own JetStream)", parse: asToken(&r.KV.Domain, false)},
		{key: "rules.kv.file", usage: "`file` to keep the last good rules in, by which a start without NATS has rules", path: true, parse: asText(&r.KV.File)},
	}
}

// check is of what only the settings together say; required: there must be rules.
func (r *RulesSettings) check(l *loader, required bool) {
	switch {
	case r.Source == SourceKV && r.Path != "":
		l.mistake("rules.path", "E203", "one of the two", "rules.source: kv reads no files")
	case r.Source == SourceFile && r.Path == "" && required:
		l.mistake("rules.path", "E202", "--help tells what it takes", "is missing")
	case r.Source == SourceFile && l.origins["rules.kv.bucket"] != FromDefault:
		l.mistake("rules.kv.bucket", "E203", "rules.source: kv", "rules come from files")
	case r.Source == SourceFile && r.KV.Domain != "":
		l.mistake("rules.kv.domain", "E203", "rules.source: kv", "rules come from files")
	case r.Source == SourceFile && r.KV.File != "":
		l.mistake("rules.kv.file", "E203", "rules.source: kv", "rules come from files")
	}
}

// limitsOf are a rule's limits, and what they count by.
func limitsOf(r *limit.RuleSpec) *limit.CandidateSpec {
	return &limit.CandidateSpec{Rates: r.Rates, Key: append([]string{}, r.Key...), Consistency: r.Consistency, Margin: r.Margin}
}

// Text is a document of rules that need not stand in a file.
type Text struct {
	Name      string // as mistakes show it
	Line      int    // of what Name is, at which it begins; 0: it is all of that
	Namespace string // that it must be of, and no other; "": of any
	Text      string
	Version   uint64 // see limit.Document; 0: it has none

	// Before is the document that it takes the place of, while it is compared with that: each rule whose
	// limits differ has those that it had as its candidate. "": it is not compared.
	Before string
}

// CheckTexts is Check of documents, each of a namespace of its own. None at all are rules that
// limit nothing.
func (f Format) CheckTexts(texts ...Text) (set *limit.Set, warnings []Mistake, err error) {
	var docs []parsed
	var mistakes []Mistake
	var uncompared []Mistake
	for _, t := range texts {
		d, m := f.parse(t)
		if t.Before != "" && len(m) == 0 {
			before, wrong := f.parse(Text{Name: t.Name, Namespace: t.Namespace, Text: t.Before})
			if len(wrong) == 0 && compareWith(&d[0].doc, &before[0].doc) {
				if _, err := compile(d, nil); err != nil { // what is in force goes before what it is compared with
					d, m = f.parse(t)
					uncompared = append(uncompared, Mistake{File: t.Name, Code: "W267", Detail: "it is not compared with the version before, as what was cannot stand beside it as candidates: " + err.Error(), Hint: "candidate: in the rules that matter"})
				}
			}
		}
		for i := range d {
			d[i].doc.Version = t.Version
		}
		docs, mistakes = append(docs, d...), append(mistakes, m...)
	}
	set, warnings, err = check(docs, mistakes)
	return set, append(warnings, uncompared...), err
}

// compareWith has each rule of a document whose limits were others before have these as its candidate, and
// says whether there is one.
func compareWith(doc, before *limit.Document) (differ bool) {
	was := map[string]*limit.RuleSpec{}
	for i := range before.Rules {
		was[before.Rules[i].Name] = &before.Rules[i]
	}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		old := was[r.Name]
		if old == nil || r.Candidate != nil || r.Allow || r.Deny || len(old.Rates) == 0 || old.Margin.Elastic.Parent != "" {
			continue
		}
		if tried := limitsOf(old); !reflect.DeepEqual(tried, limitsOf(r)) {
			r.Candidate, differ = tried, true
		}
	}
	return differ
}

// NamespaceOf is the namespace of a document. The error is a *RulesError.
func (f Format) NamespaceOf(t Text) (string, error) {
	docs, mistakes := f.parse(t)
	if len(mistakes) > 0 {
		return "", &RulesError{Mistakes: mistakes}
	}
	return docs[0].doc.Namespace, nil
}

// parse reads one document.
func (f Format) parse(t Text) ([]parsed, []Mistake) {
	docs, mistakes := f.parseFiles([]rulesFile{{name: t.Name, text: []byte(t.Text), first: max(0, t.Line-1)}})
	if len(mistakes) > 0 || len(docs) == 1 && (t.Namespace == "" || docs[0].doc.Namespace == t.Namespace) {
		return docs, mistakes
	}
	m := Mistake{File: t.Name, Code: "E247", Path: "namespace"}
	if len(docs) != 1 {
		m.Detail, m.Hint = fmt.Sprintf("%d documents, where one is wanted", len(docs)), "a document a namespace"
	} else {
		m.Detail, m.Hint = fmt.Sprintf("the document is of namespace %s, and is kept as that of %s", docs[0].doc.Namespace, t.Namespace), "namespace: "+t.Namespace
	}
	return docs, []Mistake{m}
}

// SplitRules are the documents of a file, each with the comments before it: what stands between lines
// of "---" alone, but for what says nothing.
func SplitRules(name, text string) (docs []Text) {
	line := 1
	add := func(part string) {
		for l := range strings.Lines(part) {
			if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
				docs = append(docs, Text{Name: name, Line: line, Text: part})
				break
			}
		}
	}
	begin, at := 0, 0
	for l := range strings.Lines(text) {
		if strings.TrimRight(l, " \t\r\n") == "---" {
			add(text[begin:at])
			line += strings.Count(text[begin:at+len(l)], "\n")
			begin = at + len(l)
		}
		at += len(l)
	}
	add(text[begin:])
	return docs
}

// ReadTexts are the documents of rules files, and of directories of them.
func ReadTexts(paths ...string) (docs []Text, err error) {
	files, err := readRules(paths)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		docs = append(docs, SplitRules(f.name, string(f.text))...)
	}
	return docs, nil
}
