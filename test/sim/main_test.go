package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOneTrialInWords(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-seed", "3", "-without", "skew,drift"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"aggregators", "requests", "denied", "trace "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "skew") {
		t.Errorf("a fault that was left out is there:\n%s", &out)
	}
}

func TestBadOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-without nonsense":       `"nonsense" is no kind of fault`,
		"-seeds -1":               "invalid value",
		"-workers 0":              "want 1 or more",
		"-seeds 5 -without loss":  "go with one -seed",
		"-seed 1 and more":        "no arguments",
		"-only loss,clog,freezes": `"freezes" is no kind of fault`,
	} {
		if err := run(strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", args, err, want)
		}
	}
}

// A mutant whose place in the code has gone is an error, not one that passes.
func TestMutantsHaveTheirPlace(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has its place %d times, want once", m.name, m.file, n)
		}
	}
	lost := mutant{name: "lost", file: "crdt/cell.go", old: "no such line"}
	if err := lost.build(root, t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "mend the mutant") {
		t.Errorf("a mutant without its place: %v", err)
	}
}
