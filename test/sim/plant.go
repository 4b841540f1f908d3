package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a protocol bug to plant: old, which must stand in the file exactly
// once and in a function, becomes mutated.
type mutant struct {
	name         string
	file         string
	old, mutated string
	breaks       string // the invariants that it may break first, a regular expression
}

const (
	// plantedEnv tells a command that has mutants which of them it is to be, by its index.
	plantedEnv = "SPILLGATE_PLANTED"
	// plantedMark is in all names that planting adds, and in none that were there.
	plantedMark = "_planted"
	plantedVar  = "is" + plantedMark
	plantedFile = "is" + plantedMark + ".go"
)

// build compiles a package of the module at root with all the mutants in it, so that one
// build does for all. The command is as it was until plantedEnv says which it is to be.
func build(root, dir, command, pkg string, all []mutant) error {
	files, err := plant(root, all)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for path, text := range files {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-overlay", list, "-o", command, pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}

// plant returns the files below root that have mutants, with them, and one more for each
// package of these.
func plant(root string, all []mutant) (map[string]string, error) {
	sources, files := map[string]*source{}, map[string]string{}
	for i, m := range all {
		path := filepath.Join(root, m.file)
		if sources[path] == nil {
			s, err := readSource(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			sources[path] = s
		}
		if err := sources[path].plant(i, m); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for path, s := range sources {
		files[path] = s.planted()
		files[filepath.Join(filepath.Dir(path), plantedFile)] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(%q)\n", s.file.Name.Name, plantedVar, plantedEnv)
	}
	return files, nil
}

// source is a file that mutants are planted in. A function that has some gets a copy for
// each, with the bug, and asks at its begin whether a copy is to run in its stead.
type source struct {
	text   string
	file   *ast.File
	lines  *token.File
	edits  map[int]edit // by their offsets in the text
	copies strings.Builder
}

// edit puts text in the place of so many bytes.
type edit struct {
	bytes int
	text  string
}

func readSource(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(text), plantedMark) {
		return nil, fmt.Errorf("%s has %q, which is for what is planted", path, plantedMark)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{text: string(text), file: file, lines: set.File(file.FileStart), edits: map[int]edit{}}, nil
}

// plant adds the mutant of this index.
func (s *source) plant(index int, m mutant) error {
	if n := strings.Count(s.text, m.old); n != 1 {
		return fmt.Errorf("%s has %q %d times, want once: mend the mutant", m.file, m.old, n)
	}
	from := strings.Index(s.text, m.old)
	to := from + len(m.old)
	f := s.function(from, to)
	if f == nil {
		return fmt.Errorf("%s has %q outside of functions: mend the mutant", m.file, m.old)
	}
	name := fmt.Sprintf("%s%s%d", f.Name.Name, plantedMark, index)
	begin := s.lines.Offset(f.Body.Lbrace) + 1
	s.edits[begin] = edit{0, s.edits[begin].text + fmt.Sprintf(" if %s == \"%d\" { %s };", plantedVar, index, s.call(f, name))}
	// Whatever is wrong with the copy is told with the mutant's name.
	fmt.Fprintf(&s.copies, "\n//line %s with %q:%d\n", filepath.Base(m.file), m.name, s.lines.Line(f.Pos()))
	fmt.Fprintf(&s.copies, "%s%s%s%s%s\n", s.between(f.Pos(), f.Name.Pos()), name,
		s.text[s.lines.Offset(f.Name.End()):from], m.mutated, s.text[to:s.lines.Offset(f.End())])
	return nil
}

// function is the one whose body has this part of the text, or nil.
func (s *source) function(from, to int) *ast.FuncDecl {
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && s.lines.Offset(f.Body.Lbrace) < from && to <= s.lines.Offset(f.Body.Rbrace) {
			return f
		}
	}
	return nil
}

// call is the statement by which a function has its copy run in its stead.
func (s *source) call(f *ast.FuncDecl, name string) string {
	var with []string
	for _, p := range f.Type.Params.List {
		with = append(with, s.names(p)...)
		if _, ok := p.Type.(*ast.Ellipsis); ok { // the last
			with[len(with)-1] += "..."
		}
	}
	switch {
	case f.Recv != nil:
		name = s.names(f.Recv.List[0])[0] + "." + name
	case f.Type.TypeParams != nil: // not all can be inferred
		var types []string
		for _, t := range f.Type.TypeParams.List {
			types = append(types, s.names(t)...)
		}
		name += "[" + strings.Join(types, ", ") + "]"
	}
	call := name + "(" + strings.Join(with, ", ") + ")"
	if f.Type.Results == nil {
		return call + "; return"
	}
	return "return " + call
}

// names are those of a parameter or receiver, which gets one where it has none.
func (s *source) names(p *ast.Field) (names []string) {
	if len(p.Names) == 0 {
		return []string{s.name(p.Type.Pos(), 0, " ")}
	}
	for _, n := range p.Names {
		name := n.Name
		if name == "_" {
			name = s.name(n.Pos(), len(name), "")
		}
		names = append(names, name)
	}
	return names
}

// name puts a name of its own in the place of so many bytes.
func (s *source) name(at token.Pos, bytes int, after string) string {
	offset := s.lines.Offset(at)
	name := fmt.Sprintf("p%s%d", plantedMark, offset)
	s.edits[offset] = edit{bytes, name + after}
	return name
}

func (s *source) between(from, to token.Pos) string {
	return s.text[s.lines.Offset(from):s.lines.Offset(to)]
}

// planted is the text with its mutants. All that was there stays in its line.
func (s *source) planted() string {
	var out strings.Builder
	done := 0
	for _, at := range slices.Sorted(maps.Keys(s.edits)) {
		out.WriteString(s.text[done:at])
		out.WriteString(s.edits[at].text)
		done = at + s.edits[at].bytes
	}
	out.WriteString(s.text[done:])
	out.WriteString(s.copies.String())
	return out.String()
}
