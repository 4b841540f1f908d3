package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
)

// ErrNoRules is returned where the paths hold no rules file at all.
var ErrNoRules = errors.New("there is no rules file")

// parsed is one document with what is needed to show mistakes in it.
type parsed struct {
	doc    limit.Document
	reader *reader
}

// ParseRules reads the documents of one file and compiles them. The error is a
// *RulesError with all mistakes.
func ParseRules(name string, text []byte) (*limit.Set, error) {
	docs, mistakes := parseFile(rulesFile{name: name, text: text})
	return compile(docs, mistakes)
}

// LoadRules reads rules files, and the *.yaml and *.yml files of directories
// (but not their *.test.yaml), into one set: all or nothing. The error is a
// *RulesError where the files could be read, but not understood.
func LoadRules(paths ...string) (*limit.Set, error) {
	return FormatSpillgate.Load(paths...)
}

// CheckRules is LoadRules with what works, but hardly as it was meant.
func CheckRules(paths ...string) (set *limit.Set, warnings []Mistake, err error) {
	return FormatSpillgate.Check(paths...)
}

// rulesFile is a file, or a part of one.
type rulesFile struct {
	name  string
	text  []byte
	first int // lines of it that stand before
}

// source is the file's text, for excerpts.
func (f *rulesFile) source() *source {
	src := newSource(f.name, f.text)
	src.first = f.first
	return src
}

func parseFile(f rulesFile) ([]parsed, []Mistake) {
	src, name := f.source(), f.name
	trees, mistakes := parseTree(src, f.text)
	if len(trees) == 0 && len(mistakes) == 0 {
		return nil, []Mistake{{File: name, Code: "E004", Detail: "the file is empty", Hint: "it starts with: schema: " + RulesSchema}}
	}
	if len(trees) > 0 && isOf(trees[0], "domain", "schema") {
		return nil, []Mistake{otherFormat(src, trees[0], FormatEnvoy)}
	}
	docs := make([]parsed, len(trees))
	for i, tree := range trees {
		r := newReader(src)
		docs[i] = parsed{doc: r.document(tree), reader: r}
		if r.bad[""] { // not a document, or one that never ends: there is nothing to compile
			docs[i].doc = limit.Document{}
		}
		mistakes = append(mistakes, r.mistakes...)
	}
	return docs, sortMistakes(mistakes)
}

// compile compiles the documents even where reading them found mistakes, so
// that all are told at once; what follows from one already told is left out.
func compile(docs []parsed, mistakes []Mistake) (*limit.Set, error) {
	specs := make([]limit.Document, len(docs))
	for i := range docs {
		specs[i] = docs[i].doc
	}
	set, problems := compiler.Compile(specs...)
	mistakes = append(mistakes, placed(docs, problems)...)
	if len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: inOrder(mistakes)}
	}
	return set, nil
}

// compiler compiles rules with all that the language of rules has.
var compiler = limit.Options{Conditions: when.Compile, DescriptorLimits: true}

// placed are the compiler's problems, those left out that follow from what
// the reader told.
func placed(docs []parsed, problems []limit.Problems) (mistakes []Mistake) {
	for i, ps := range problems {
		for _, p := range ps {
			if r := docs[i].reader; !r.reported(p.Path) {
				mistakes = append(mistakes, r.mistakeOf(p))
			}
		}
	}
	return mistakes
}

// mistakeOf shows a problem of the compiler in the text.
func (r *reader) mistakeOf(p limit.Problem) Mistake {
	at := r.placeOf(p.Path)
	if p.Line > 0 {
		if inside, ok := r.src.inside(at, p.Line, p.Column); ok {
			at = inside
		} else {
			p.Detail = fmt.Sprintf("line %d, column %d of the expression: %s", p.Line, p.Column, p.Detail)
		}
	}
	return Mistake{
		File: r.src.name, Line: r.src.lineOf(at.line), Column: at.column, Code: p.Code, Path: p.Path,
		Detail: p.Detail, Hint: p.Hint, Excerpt: r.src.excerpt(at),
	}
}

// inOrder sorts the mistakes of several files: by file as they were given,
// then by place.
func inOrder(mistakes []Mistake) []Mistake {
	var names []string
	byFile := map[string][]Mistake{}
	for _, m := range mistakes {
		if byFile[m.File] == nil {
			names = append(names, m.File)
		}
		byFile[m.File] = append(byFile[m.File], m)
	}
	ordered := mistakes[:0:0]
	for _, name := range names {
		ordered = append(ordered, sortMistakes(byFile[name])...)
	}
	return ordered[:min(len(ordered), maxMistakes)]
}

// readRules reads the files that the paths stand for, each once.
func readRules(paths []string) ([]rulesFile, error) {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("rules: %w at %s", ErrNoRules, path)
		case err != nil:
			return nil, fmt.Errorf("rules: %w", err)
		case !info.IsDir():
			names = append(names, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		for _, e := range entries {
			if name := filepath.Join(path, e.Name()); rulesName(e.Name()) && !isDir(name) {
				names = append(names, name)
			}
		}
	}
	var files []rulesFile
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		text, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		files = append(files, rulesFile{name: name, text: text})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("rules: %w in %s", ErrNoRules, strings.Join(paths, ", "))
	}
	return files, nil
}

// rulesName leaves out hidden files, editors' and Kubernetes' own, and the
// tests that stand beside the rules: shop.test.yaml.
func rulesName(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".") && filepath.Ext(strings.TrimSuffix(name, ext)) != ".test"
}

func isDir(name string) bool {
	info, err := os.Stat(name) // follows links: a ConfigMap's files are links
	return err == nil && info.IsDir()
}

// readFile reads at most one byte more than a file may have; parseTree says
// then that it is too long.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}
