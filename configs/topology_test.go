package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestTheShippedTopology(t *testing.T) {
	got, warnings, err := ReadTopology("topology.yaml")
	want := limit.Topology{
		Regions: 5, Edges: 10, Largest: 2, Between: 80 * time.Millisecond, Within: 5 * time.Millisecond,
		Interval: 100 * time.Millisecond, UrgentGap: 20 * time.Millisecond,
	}
	if err != nil || got != want || len(warnings) > 0 {
		t.Errorf("%+v, %v, %v; want %+v", got, warnings, err, want)
	}
}

func TestTopologies(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "the file is empty",
		"delay: {edge: 1ms}":                      "E014 regions: regions is missing (hint: such as regions: {eu: 2, us: 2}",
		"regions: [eu, us]":                       "E009 regions: this is a list, where a mapping",
		"regions: {}":                             "E231 regions: 0 regions",
		"regions: {\"\": 2}":                      "E231 regions.: a region without a name",
		"regions: {eu: 0}":                        "E231 regions.eu: 0 edges are out of range (hint: 1 to 100000)",
		"regions: {eu: 1.5}":                      "1.5 edges are out of range",
		"regions: {eu: two}":                      "E009 regions.eu",
		"regions: {eu: 1}\nedges: 2":              `E007 edges: "edges" is not known here`,
		"regions: {eu: 1}\n---\nx: 1":             "E231 a second document",
		"regions: {eu: 1}\ndelay: {region: 80}":   "E145 delay.region",
		"regions: {eu: 1}\ndelay: {region: 11s}":  "E013 delay.region: 11s is out of range (hint: 0s to 10s)",
		"regions: {eu: 1}\nsync: {interval: 1ms}": "E013 sync.interval",
		"regions: {eu: 1}\nsync: {interval: 20ms, urgent_interval: 30ms}":     "E231 sync: urgent_interval, 30ms, is longer than interval, 20ms",
		"regions: {eu: 1, us: 3}\nsync: {interval: 1s}\ndelay: {region: 0ms}": "",
	} {
		file := filepath.Join(t.TempDir(), "topology.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := ReadTopology(file)
		var mistakes *RulesError
		switch {
		case want == "":
			if err != nil || got.Regions != 2 || got.Edges != 4 || got.Largest != 3 || got.Interval != time.Second || got.Between != 0 {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
		case !errors.As(err, &mistakes) || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Delays beyond which frames are given up are warned of, where they stand.
func TestFramesThatAreGivenUp(t *testing.T) {
	for text, want := range map[string]string{
		"regions: {eu: 1, us: 1}\ndelay: {region: 450ms, edge: 120ms}": "",
		"regions: {eu: 1, us: 1}\ndelay: {region: 700ms}":              ":2:17: W231 delay.region: 1.54s there and back, a tenth on top, is more than the 1s after which a region gives up a frame to another: by turns they count each other as gone, and what is predicted here does not hold (hint: sync.timeout: 2s in the aggregators' settings",
		"regions: {eu: 1, us: 1}\ndelay: {region: 1s}":                 "(hint: scope: region, a limit for each, or regions that are nearer)",
		"regions: {eu: 1}\ndelay: {region: 1s}":                        "", // there is no other
		"regions: {eu: 1}\ndelay:\n  edge: 125ms":                      ":3:9: W231 delay.edge: 250ms there and back is no less than the 250ms",
	} {
		file := filepath.Join(t.TempDir(), "topology.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := ReadTopology(file)
		switch {
		case err != nil || len(warnings) > 1 || len(warnings) == 0 && want != "":
			t.Errorf("%q: %v, %v; want %q", text, warnings, err, want)
		case len(warnings) == 1 && (want == "" || !strings.Contains(warnings[0].String(), want)):
			t.Errorf("%q: %v, want %q", text, warnings[0], want)
		}
	}
}

// Of several documents each is told in its own place, refused ones alone if there are any.
func TestRulesOverATopology(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	head := "schema: spillgate/v1\nnamespace: "
	rules := "\ndefaults: {consistency: loose}\nrules:\n- name: api\n  key: [user]\n  rates:\n"
	text := head + "a" + rules + "  - {limit: 1000, per: 10s}\n---\n" + head + "b" + rules + "  - {limit: 100, per: 1m}\n  - {name: burst, limit: 1000, per: 1s}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	topology, _, err := ReadTopology("topology.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, warnings, err := CheckRulesOver(topology, file)
	found := 0
	for _, w := range warnings {
		if w.Code == "W230" {
			found++
			if w.Path != "rules[0].rates[1]" || w.Line != 18 || w.Hint == "" {
				t.Errorf("%+v, want the second rate of the second document, at line 18", w)
			}
		}
	}
	if err != nil || found != 1 {
		t.Errorf("%v, %v; want one W230", warnings, err)
	}
	topology.Between = 5 * time.Second
	var mistakes *RulesError
	if _, _, err := CheckRulesOver(topology, file); !errors.As(err, &mistakes) || len(mistakes.Mistakes) < 1 || mistakes.Mistakes[0].Code != "E230" {
		t.Errorf("five seconds apart: %v, want E230", err)
	}
}

// A limit that is refused where it is written is refused where a tenant has it.
func TestTenantsOverATopology(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text := `schema: spillgate/v1
namespace: shop
keys: {user: {from: header.X-User-Id}, plan: {from: header.X-Plan}}
tenants: {free: {multiply: 0.01}}
rules:
- name: ten
  key: [user]
  tier_from: plan
  rates: [{limit: 1000, per: 1s}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	topology := limit.Topology{Regions: 20, Edges: 20, Largest: 1, Between: 400 * time.Millisecond, Within: 5 * time.Millisecond, Interval: 100 * time.Millisecond, UrgentGap: 20 * time.Millisecond}
	_, _, err := CheckRulesOver(topology, file)
	if want := `:9:11: E230 rules[0].rates[0]: for tenant "free", multiply: 0.01: 10 per 1s, adaptive over 20 edges cannot be held: `; err == nil || strings.Count(err.Error(), "E230") != 1 || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q once", err, want)
	}
}
