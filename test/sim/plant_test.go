package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/alone"
)

// A mutant whose place in the code has gone is an error, not one that passes.
func TestMutantsHaveTheirPlace(t *testing.T) {
	root := filepath.Join("..", "..")
	named := map[string]bool{}
	for _, m := range plantings() {
		if _, err := plant(root, []mutant{m.mutant}); err != nil {
			t.Error(err)
		}
		named[m.name] = true
	}
	for name := range searchedFrom {
		if !named[name] {
			t.Errorf("no mutant is named %q, of which it says from where it is searched", name)
		}
	}
	for _, c := range []struct{ old, want string }{
		{"no such line", "0 times, want once: mend the mutant"},
		{"Charges", " times, want once: mend the mutant"},
		{"package crdt", "outside of functions: mend the mutant"},
	} {
		lost := mutant{name: "lost", file: "crdt/cell.go", old: c.old}
		if err := build(root, t.TempDir(), "", "", []mutant{lost}); err == nil || !strings.HasPrefix(err.Error(), "lost: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a mutant in the place of %q: %v, want %q", c.old, err, c.want)
		}
	}
}

// shapes has functions of all the shapes that a mutant can stand in.
const shapes = `package main

import "fmt"

type pair[K comparable, V any] struct {
	k K
	v V
}

func (p *pair[K, _]) is(k K) bool { return p.k == k }

func (pair[K, V]) kind(string, ...int) (name string, err error) {
	name = "a pair"
	return
}

func zero[T any, _ comparable](_, _ int) (t T, n int) { return t, 1 }

func list(sep string, _ bool, all ...any) string {
	return fmt.Sprint(len(all)) + sep
}

func tell(_ int, words *[]string) {
	*words = append(*words, "told")
	defer func() { *words = append(*words, "end") }()
}

func steps(n int) int {
	if n == 0 {
		return 0
	}
	return steps(n-1) + 1
}

func init() { begun = "begun" }

var begun = "not begun"

// The last has no line break, and is the one that asks.
func main() {
	p := &pair[string, int]{"a", 1}
	kind, err := p.kind("x", 1, 2)
	t, n := zero[float64, int](1, 2)
	var words []string
	tell(1, &words)
	fmt.Println(p.is("a"), kind, err, t, n, list(";", true, 1, 2, 3), words, steps(3), begun)
}`

// All mutants are in one command, which is as it was until it is told which of them to be.
func TestPlantedIsTheOneThatIsChosen(t *testing.T) {
	const clean = "true a pair <nil> 0 1 3; [told end] 3 begun"
	cases := []struct{ name, old, mutated, want string }{
		{"a receiver with types, one unnamed", "p.k == k", "p.k != k", "false a pair <nil> 0 1 3; [told end] 3 begun"},
		{"nothing has a name but the results", `name = "a pair"`, `name, err = "none", fmt.Errorf("odd")`, "true none odd 0 1 3; [told end] 3 begun"},
		{"types that nothing tells", "return t, 1", "return t, 2", "true a pair <nil> 0 2 3; [told end] 3 begun"},
		{"any number of parameters", "len(all)", "all...", "true a pair <nil> 0 1 1 2 3; [told end] 3 begun"},
		{"no results", `"told"`, `"lied"`, "true a pair <nil> 0 1 3; [lied end] 3 begun"},
		{"two in one function", `"end"`, `"no end"`, "true a pair <nil> 0 1 3; [told no end] 3 begun"},
		{"one that calls itself", "steps(n-1) + 1", "steps(n-1) + 2", "true a pair <nil> 0 1 3; [told end] 6 begun"},
		{"a new statement before another", "if n == 0 {", "n--\n\tif n <= 0 {", "true a pair <nil> 0 1 3; [told end] 1 begun"},
		{"before main", `"begun"`, `"ill begun"`, "true a pair <nil> 0 1 3; [told end] 3 ill begun"},
		{"main", "steps(3)", "steps(4)", "true a pair <nil> 0 1 3; [told end] 4 begun"},
	}
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module shapes\n\ngo 1.26\n", "shapes.go": shapes} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all []mutant
	for _, c := range cases {
		all = append(all, mutant{name: c.name, file: "shapes.go", old: c.old, mutated: c.mutated})
	}
	command := filepath.Join(dir, "shapes")
	if err := build(root, dir, command, ".", all); err != nil {
		t.Fatal(err)
	}
	does := func(index string) string {
		out, err := planted(command, index).CombinedOutput()
		if err != nil {
			t.Errorf("as mutant %q: %v: %s", index, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, none := range []string{"", fmt.Sprint(len(all))} {
		if got := does(none); got != clean {
			t.Errorf("as mutant %q: %s, want %s", none, got, clean)
		}
	}
	for i, c := range cases {
		if got := does(fmt.Sprint(i)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	// One that does not compile is told by its name, and where it stands.
	all[4].mutated = "nothing"
	if err := build(root, t.TempDir(), command, ".", all); err == nil || !strings.Contains(err.Error(), `shapes.go with "no results":24:`) {
		t.Errorf("one that does not compile: %v, want an error with its name and line", err)
	}
}

// A planter that breaks the command is found before all is taken for caught.
func TestAPlanterThatBreaksTheCommandIsFound(t *testing.T) {
	alone.Mark(t)
	for what, script := range map[string]string{
		"one that fails":       "echo invariant 1, broken; exit 1",
		"one that finds other": "echo 1 trials, each once, 1 requests, 1 faults in 1s",
	} {
		command := filepath.Join(t.TempDir(), "sim")
		if err := os.WriteFile(command, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := harmless(command, 1); err == nil {
			t.Errorf("%s is harmless, want an error", what)
		}
	}
}
