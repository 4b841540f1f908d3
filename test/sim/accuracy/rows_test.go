package accuracy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/alone"
)

// The rows name all of A1 to A15, A21 and A22, and are what they say.
func TestRows(t *testing.T) {
	sections, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, s := range sections {
		for _, r := range s.Rows {
			found[r.ID]++
		}
	}
	for i := range 15 {
		if id := fmt.Sprint("A", i+1); found[id] == 0 {
			t.Errorf("%s is missing", id)
		}
	}
	if found["A21"] == 0 || found["A22"] != 21 {
		t.Errorf("A21 has %d rows, A22 %d, want 1 and 21", found["A21"], found["A22"])
	}
}

// What is widened is as far from perfect as it may be, and asks for nothing else.
func TestRowsWithin(t *testing.T) {
	sections, err := load([]byte(`sections:
- title: a
  rows: [{id: A1, scenario: move, limit: 100/1s, over: 10, util: 98, naive: 5}]
- {id: A22, title: b, within: 1.5, of: [A1], under: [{loss: 0.05}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := sections[1].Rows[0]
	if r.ID != "A22" || r.of != "A1" || *r.Over != 15 || *r.Util != 97 || r.Naive != 0 || r.Conditions.Loss != 0.05 {
		t.Errorf("%+v", r)
	}
	if got, want := r.words(), "move, 100/1s, loss 5 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBadRows(t *testing.T) {
	for text, want := range map[string]string{
		"rows: [{scenario: mov, limit: 1/1s}]":                                     "mov",
		"rows: [{scenario: move}]":                                                 "limit is missing",
		"rows: [{scenario: move, limit: 1/x}]":                                     "such as 100/1s",
		"rows: [{scenario: move, limit: 1/1s, ove: 1}]":                            "ove",
		"rows: [{scenario: move, limit: 1/1s, conditions: {loss: 2}}]":             "loss 2",
		"of: [A1]\n  within: 1.3\n  under: [{loss: 0.01}]":                         "A1: want a row above",
		"rows: [{id: A1, scenario: move, limit: 1/1s}]\n  of: [A1]\n  under: [{}]": "within",
	} {
		if _, err := load([]byte("sections:\n- title: a\n  " + text + "\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", text, err, want)
		}
	}
}

func TestRowsThatAreWanted(t *testing.T) {
	all, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	some, a18, err := wanted(all, []string{"A4", "A18"})
	if err != nil || !a18 || len(some) != 1 || len(some[0].Rows) != 1 {
		t.Errorf("%+v, %v, %v; want A4's only row, and A18", some, a18, err)
	}
	if _, _, err := wanted(all, []string{"A4", "A99"}); err == nil || !strings.Contains(err.Error(), "A99") {
		t.Errorf("an unknown row: %v", err)
	}
}

// A row is run under each strategy and judged; what misses its target stands out.
func TestTable(t *testing.T) {
	sections, err := load([]byte(`sections:
- title: Two rows
  rows:
  - {id: A1, scenario: flash-all, limit: 40/1s, over: 100, util: 50, naive: 5}
  - {id: A2, scenario: flash-all, limit: 40/1s, over: -1, more: 40, strict: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	figures, err := runAll(Options{Seeds: 1, Workers: 2, Told: &told}, sections)
	if err != nil {
		t.Fatal(err)
	}
	var tab table
	tab.section(sections[0], figures[0])
	lines := strings.Split(strings.TrimSpace(tab.text.String()), "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[4], "| A1 | flash-all, 40/1s | over ≤ 100, util ≥ 50, naive ≥ 5 × | ") || strings.Contains(lines[4], "**") {
		t.Errorf("the table is\n%s", &tab.text)
	}
	if !strings.Contains(lines[5], "**") || len(tab.missed) < 1 || !strings.Contains(tab.summary(), "A2 over (flash-all, 40/1s") {
		t.Errorf("a target that cannot be reached: %s\n%s", tab.summary(), lines[5])
	}
	if !strings.Contains(lines[2], " adaptive: over ") || strings.Count(lines[2], "|") != strings.Count(lines[4], "|") {
		t.Errorf("columns: %s", lines[2])
	}
}

// The more slices, the fewer verdicts are wrong; windows that jump are wrong most.
func TestEstimators(t *testing.T) {
	alone.Mark(t)
	const n = 2_800_000 // more than a window
	all, reach, err := compareEstimators(n)
	if err != nil || len(all) != 6 {
		t.Fatalf("%d estimators, %v", len(all), err)
	}
	byName := map[string]int{}
	for _, e := range all {
		byName[e.name] = e.wrong[2]
	}
	slices40, slices10, two, fixed := byName["40 slices, as by default"], byName["10 slices"], byName["two windows, interpolated"], byName["fixed window"]
	if !(0 < slices40 && slices40 < slices10 && slices10 < two && two < fixed) || reach[0] == 0 || reach[0] >= reach[1] || reach[1] >= reach[2] {
		t.Errorf("wrong verdicts: %v; sources at the limits: %v", byName, reach)
	}
	var tab table
	tab.estimators(all, reach, n)
	if tab.targets != 1 || strings.Count(tab.text.String(), "\n| ") != 7 {
		t.Errorf("%d targets:\n%s", tab.targets, &tab.text)
	}
}
