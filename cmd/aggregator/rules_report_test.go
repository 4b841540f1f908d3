package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/adminapi"
)

// A report has a line a rule, and says what is not in it.
func TestReport(t *testing.T) {
	var out strings.Builder
	if err := printReport(&out, []adminapi.RuleTells{
		{Namespace: "shop", Edges: 1, PerSecond: 2, Regions: map[string]regional.RuleDecisions{"us": {}, "eu": {}}},
		{Namespace: "shop", Rule: "a", Edges: 3, PerSecond: 12.34, Denied: 0.05, Keys: 40, KeysDenied: 2, Compared: 12, OnlyLive: 0.02},
	}); err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for l := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(strings.ReplaceAll(l, " %", "%")))
	}
	for i, want := range []string{"shop - 1 2.0 0.00% 0 0 0.0 - - eu,us", "shop a 3 12.3 5.00% 40 2 12.0 2.00% 0.00%"} {
		if !slices.Equal(got[i+1], strings.Fields(want)) {
			t.Errorf("line %d is %q, want %q", i+1, got[i+1], want)
		}
	}
	short := shortOf([]adminapi.RegionTells{{Region: "eu", Heard: true, Complete: true}, {Region: "us"}, {Region: "ap", Heard: true, Edges: 3, Partial: 1}, {Region: "sa", Heard: true, LeftOut: 7}})
	if len(short) != 3 || !strings.Contains(short[0], "us does not answer") || !strings.Contains(short[1], "1 of 3 edges") || !strings.Contains(short[2], "7 rules") {
		t.Errorf("what is not in it is told as %q", short)
	}
}
