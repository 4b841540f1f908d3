package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is a protocol bug to plant: old, which must stand in the file exactly
// once, becomes mutated.
type mutant struct {
	name         string
	file         string
	old, mutated string
	breaks       string // the invariants that it may break first, a regular expression
}

var mutants = []mutant{
	{"sum instead of max", "crdt/cell.go",
		"c.Charges = max(c.Charges, d.Charges)", "c.Charges = SatAdd(c.Charges, d.Charges)", "1"},
	{"the request's value is subtracted, not the stored one", "regional/aggregator.go",
		"t = l.totalsFor(up.Replica(sec.Life), c, oldest, now)",
		`t = l.totals(c, oldest, now)
					var left []crdt.Cell
					for _, cell := range t.Peers {
						for _, told := range sec.Deltas[di].Cells {
							if told.Slice == cell.Slice {
								cell = cell.Less(told)
							}
						}
						if !cell.Zero() {
							left = append(left, cell)
						}
					}
					t.Peers = left`, "1|6"},
	{"no new incarnation when an edge starts again", "edge/node.go",
		"Incarnation: cfg.Incarnation, Lanes:", "Incarnation: 1767225630001, Lanes:", "4|9"}, // that of its first life in a trial
	{"a slice leaks into the next", "edge/ledger.go",
		"b.own.Add(crdt.Cell{Slice: b.slice, Charges: r.fresh})", "b.own.Add(crdt.Cell{Slice: b.slice + 1, Charges: r.fresh})", "1|5|9|16"},
	{"acknowledged before it is stored", "regional/aggregator.go",
		"if !stored || a.store.away.Load() > 0 {", "if stored = true; !stored {", "4"},
}

// mutantSeeds is within how many trials each must be caught.
const mutantSeeds = 1000

var (
	broken = regexp.MustCompile(`invariant (\d+),`)
	reason = regexp.MustCompile(`[^,]*after the start.*`)
)

// mutate builds this command with each of the bugs in turn, and has it search.
// An error says which was not caught, or broke what it cannot break.
func mutate(stdout io.Writer) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "spillgate-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, m := range mutants {
		command := filepath.Join(dir, fmt.Sprint("sim", i))
		if err := m.build(strings.TrimSpace(string(root)), dir, command); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		out, err := exec.Command(command, "-seeds", fmt.Sprint(mutantSeeds)).CombinedOutput()
		found := broken.FindSubmatch(out)
		switch {
		case err == nil:
			return fmt.Errorf("%s: %d trials pass, it must be caught", m.name, mutantSeeds)
		case found == nil:
			return fmt.Errorf("%s: it fails, and breaks no invariant: %s", m.name, out)
		case !regexp.MustCompile("^(" + m.breaks + ")$").Match(found[1]):
			return fmt.Errorf("%s: it breaks invariant %s, want %s: %s", m.name, found[1], m.breaks, out)
		}
		fmt.Fprintf(stdout, "caught: %s: invariant %s, %s\n", m.name, found[1], reason.Find(out))
	}
	return nil
}

// build compiles the command with the mutant in place of the file it is of.
func (m *mutant) build(root, dir, command string) error {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return fmt.Errorf("%s has %q %d times, want once: mend the mutant", m.file, m.old, n)
	}
	mutated := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.mutated, 1)), 0o600); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-overlay", list, "-o", command, "./test/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}
