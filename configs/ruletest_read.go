package configs

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// ReadRuleTest reads a file of rule tests and the rules that it names, whose
// paths are relative to it. The error is a *RulesError with the mistakes of
// all of these files.
func ReadRuleTest(file string) (*RuleTest, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, &RulesError{Mistakes: []Mistake{{File: file, Code: "E311", Detail: fmt.Sprintf("cannot be read: %v", err)}}}
	}
	src := newSource(file, text)
	trees, mistakes := parseTree(src, text)
	if len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: sortMistakes(mistakes)}
	}
	r := &testReader{reader: newReader(src), test: &RuleTest{File: file}}
	switch len(trees) {
	case 0:
		r.mistake("", position{}, "E004", "it starts with: rules: rules.yaml", "the file is empty")
	case 1:
		r.file(trees[0])
	default:
		r.mistake("", trees[1].at, "E312", "write them into one list of cases, or into two files", "a second document; a rule test is one")
	}
	if mistakes = append(sortMistakes(r.mistakes), r.inRules...); len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: inOrder(mistakes)}
	}
	return r.test, nil
}

// documentsOf reads and compiles files, for the mistakes in them.
func documentsOf(files []rulesFile) (documents []limit.Document, mistakes []Mistake) {
	var docs []parsed
	for _, f := range files {
		d, m := parseFile(f)
		docs = append(docs, d...)
		mistakes = append(mistakes, m...)
	}
	var told *RulesError
	if _, err := compile(docs, mistakes); errors.As(err, &told) {
		return nil, told.Mistakes
	}
	for i := range docs {
		documents = append(documents, docs[i].doc)
	}
	return documents, nil
}

// testReader reads one file of rule tests.
type testReader struct {
	*reader
	test    *RuleTest
	set     *limit.Set // nil where the rules have mistakes
	inRules []Mistake
}

// file reads the cases last: they name edges, and attributes of the rules.
func (r *testReader) file(n *node) {
	var paths []string
	later := func(string, *node) {}
	r.object("", n, []field{
		{"rules", "such as rules: rules.yaml", r.texts(&paths)},
		{"regions", "", r.regions},
		{"delay", "", r.delay},
		{"cases", "such as cases: [{name: one, steps: [{at: 0s, allow: 1}]}]", later},
	})
	if n.kind != kindMapping {
		return
	}
	if len(r.test.Regions) == 0 {
		r.test.Regions = []TestRegion{{Name: defaultRegion, Edges: []string{defaultEdge}}}
	}
	r.rules(paths)
	for _, e := range n.entries {
		if e.key == "cases" {
			r.each("cases", e.value, r.testCase)
			if e.value.kind == kindList && len(e.value.items) == 0 {
				r.mistake("cases", e.at, "E312", "such as cases: [{name: one, steps: [{at: 0s, allow: 1}]}]", "there is no case: the test would pass by doing nothing")
			}
		}
	}
}

// rules reads the rules under test.
func (r *testReader) rules(paths []string) {
	var files []rulesFile
	for i, path := range paths {
		if path == "" {
			continue // told
		}
		at := r.placeOf(fmt.Sprintf("rules[%d]", i))
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(r.src.name), path)
		}
		read, err := readRules([]string{path})
		if err != nil {
			r.mistake("rules", at, "E311", "the path is relative to this file", "%s", strings.TrimPrefix(err.Error(), "rules: "))
			continue
		}
		for _, f := range read {
			if !slices.ContainsFunc(files, func(o rulesFile) bool { return o.name == f.name }) {
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 || r.bad["rules"] {
		return
	}
	if r.test.Rules, r.inRules = documentsOf(files); len(r.inRules) == 0 {
		r.set, _ = compiler.Compile(r.test.Rules...)
	}
}

// regions reads {eu: [eu-1, eu-2], us: [us-1]}.
func (r *testReader) regions(path string, n *node) {
	if n.kind != kindMapping {
		r.wrongKind(path, n, "a mapping of regions to their edges", "such as regions: {eu: [eu-1, eu-2], us: [us-1]}")
		return
	}
	if len(n.entries) < 1 || len(n.entries) > maxTestRegions {
		r.mistake(path, n.at, "E313", "or leave regions out, for one edge alone", "%d regions; a rule test has 1 to %d", len(n.entries), maxTestRegions)
		return
	}
	told := len(r.mistakes)
	defer func() {
		if len(r.mistakes) > told {
			r.bad[path] = true // what regions there are is not known
		}
	}()
	edges := map[string]bool{}
	for _, e := range n.entries {
		at := join(path, e.key)
		r.token(at, e.at, e.key)
		region := TestRegion{Name: e.key}
		r.texts(&region.Edges)(at, e.value)
		for i, name := range region.Edges {
			place := fmt.Sprintf("%s[%d]", at, i)
			switch {
			case r.bad[place]:
			case edges[name]:
				r.mistake(place, r.at[place], "E313", "the steps name edges alone, so their names must differ", "edge %q stands there twice", clip(name))
			default:
				r.token(place, r.at[place], name)
			}
			edges[name] = true
		}
		if len(region.Edges) == 0 && !r.bad[at] {
			r.mistake(at, e.at, "E313", fmt.Sprintf("such as %s: [%s-1]", e.key, e.key), "region %q has no edge", clip(e.key))
		}
		r.test.Regions = append(r.test.Regions, region)
	}
	if len(edges) > maxTestEdges {
		r.mistake(path, n.at, "E313", "leave some out", "%d edges; a rule test has at most %d", len(edges), maxTestEdges)
	}
}

// token checks a name that becomes part of subjects.
func (r *testReader) token(path string, at position, name string) {
	if err := deltasync.ValidToken(name); err != nil {
		r.mistake(path, at, "E313", "write it in small letters, digits and -", "%v", err)
	}
}

// delay reads {edge: 5ms, region: 80ms}.
func (r *testReader) delay(path string, n *node) {
	r.object(path, n, []field{
		{"edge", "", r.between(&r.test.EdgeDelay, time.Millisecond, maxEdgeDelay)},
		{"region", "", r.between(&r.test.RegionDelay, time.Millisecond, maxRegionDelay)},
	})
}

// between reads a duration from lo to hi.
func (r *testReader) between(dst *time.Duration, lo, hi time.Duration) read {
	return func(path string, n *node) {
		r.duration(dst)(path, n)
		if !r.bad[path] && (*dst < lo || *dst > hi) {
			r.mistake(path, n.at, "E013", fmt.Sprintf("%s to %s", durationText(lo), durationText(hi)), "%s is out of range", clip(n.text))
		}
	}
}

// durationText writes a duration as files do: "400ms", "1h", "366d".
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	text := ""
	if days := d / day; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%day
	}
	if d > 0 || text == "" {
		rest := d.String()
		if strings.HasSuffix(rest, "m0s") {
			rest = strings.TrimSuffix(rest, "0s")
		}
		if strings.HasSuffix(rest, "h0m") {
			rest = strings.TrimSuffix(rest, "0m")
		}
		text += rest
	}
	return text
}

// edgeNames are all edges of the test, for looking up and for hints.
func (r *testReader) edgeNames() (names []string) {
	for _, region := range r.test.Regions {
		names = append(names, region.Edges...)
	}
	return names
}

// oneOf is a hint: the nearest of the words, or all of them.
func oneOf(word string, words []string) string {
	if near := suggest(word, words); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	const shown = 12
	if len(words) > shown {
		return "one of: " + strings.Join(words[:shown], ", ") + ", …"
	}
	return "one of: " + strings.Join(words, ", ")
}
