package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The parts of a check add up to what the run measured of it.
func TestPartsAddUp(t *testing.T) {
	row := func(name string, ns float64) result {
		return result{contestant: contestant{name: name}, two: series{cpu: []float64{ns / 1e9}}}
	}
	f := &findings{sizes: []sizeTable{
		{keys: growing, results: []result{row(rowEmpty, 3), row(rowTable, 20), row(rowEdge, 160)}},
		{keys: judged, results: []result{row(rowEmpty, 3), row(rowTable, 67), row(rowEdge, 297)}},
	}}
	var report strings.Builder
	if f.writeParts(&report); report.Len() > 0 {
		t.Errorf("without go-limiter's row: %s", report.String())
	}
	f.sizes[1].results = append(f.sizes[1].results, row(rowGoLimiter, 307))
	f.writeParts(&report)
	for _, want := range []string{"harness | 3 |", "(1 k keys) | 157 |", "1 k keys) | 47 |", "for them | 90 |", "go-limiter is 154 ns", "alone are 207 ns"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("%q is not in:\n%s", want, report.String())
		}
	}
}

// The report that is kept says, as the next will, where the services are that it leaves out.
func TestReportNamesTheOthers(t *testing.T) {
	kept, err := os.ReadFile(filepath.Join("..", "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(kept), beside+"\n") {
		t.Errorf("RESULTS.md does not say %q", beside)
	}
	for _, name := range []string{"envoyproxy/ratelimit", "gubernator", "WIRE.md"} {
		if !strings.Contains(beside, name) {
			t.Errorf("%q does not name %s", beside, name)
		}
	}
}
