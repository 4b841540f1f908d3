package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/alone"
)

func TestOneTrialInWords(t *testing.T) {
	alone.Mark(t)
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

// Trials run twice each, unless they are to run once.
func TestTrialsRunTwiceOrOnce(t *testing.T) {
	alone.Mark(t)
	for args, want := range map[string]string{"-seeds 2": "2 trials, each twice, ", "-seeds 2 -once": "2 trials, each once, "} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %v, %q, want %q", args, err, &out, want)
		}
	}
}

// A tale has a line for all that is told of a counter, and none of others.
func TestTale(t *testing.T) {
	alone.Mark(t)
	var out bytes.Buffer
	if err := run([]string{"-seed", "84", "-only", "flap", "-tale", "u1/api.r0"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tells, in frame", " answers frame ", "took it; others [", "tells us, in frame"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tale has no %q:\n%.3000s", want, &out)
		}
	}
}

func TestBadOptions(t *testing.T) {
	alone.Mark(t)
	for args, want := range map[string]string{
		"-without nonsense":       `"nonsense" is no kind of fault`,
		"-seeds -1":               "invalid value",
		"-workers 0":              "want 1 or more",
		"-seed 1 and more":        "no arguments",
		"-only loss,clog,freezes": `"freezes" is no kind of fault`,
		"-limit 5/1s":             "-limit: for a -scenario",
		"-rows A1":                "-rows: with -accuracy",
		"-accuracy -limit 5/1s":   "-limit: not with -accuracy",
		"-accuracy -rows A99":     `no row is called "A99"`,
		"-bounds -rows A99":       `no row is called "A99"`,
		"-bounds -limit 5/1s":     "-limit: not with -bounds",
		"-bounds -rows A1,A18":    "-rows A18: nothing is bounded there; -bounds has A1, A2, ",
		"-algorithm sliding_log":  "-algorithm: for a -scenario",

		"-accuracy -algorithm concurrency":           `"concurrency": want one of sub_windows, `,
		"-accuracy -rows A18 -algorithm sliding_log": "-rows A18: it compares algorithms",
		"-capacity -algorithm sliding_log":           "-algorithm: not with -capacity",
		"-loss 5%":                                   "-loss: for a -scenario",
		"-scenario move -loss 5x":                    `"5x": want a part`,
		"-scenario move -rates 2":                    "2 rates: want 1 or 3",
		"-capacity -seeds 5":                         "-seeds: not with -capacity",
		"-keys 5":                                    "-keys: for -capacity",
		"-capacity -targets all":                     `targets "all": want mesh or homes`,
		"-seed 3 -tale u9/x":                         `nobody is called "u9/x" here: u0/api.r0`,
		"-seeds 3 -tale u1/a":                        "-tale: of one trial",
		"-seed 3 -once":                              "-once: of trials, with -seeds",
		"-mutate -scenario flash-all":                "-scenario: not with -mutate",
		"-mutate -seed 3 -seeds 9":                   "-seed, -seeds: not with -mutate",
		"-mutate -once":                              "-once: of trials, with -seeds",
		"-capacity -rps 0":                           "rps 0: want more than 0",
		"-scenario flash-mob":                        `no scenario is called "flash-mob"`,

		"-scenario move -consistency eventual":     "want loose, naive, adaptive or strict",
		"-scenario move -strict-wait 1s":           "-strict-wait: it does nothing where the limit is loose; want -consistency strict",
		"-scenario move -surge 2":                  "-surge: it does nothing",
		"-scenario move -on-partition open":        "-on-partition: it does nothing",
		"-scenario move -limit 5":                  "such as 100/1s",
		"-scenario move -limit 0/1s":               "such as 100/1s",
		"-scenario move -limit 5/1ms":              "a window from",
		"-scenario move -o yaml":                   "want text or json",
		"-scenario move -regions 1":                "want 2 to 50 regions",
		"-scenario move -seeds 1 -without nothing": "no kind of fault",
	} {
		if err := run(strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", args, err, want)
		}
	}
}

// A scenario's figures as one JSON object: the same each time.
func TestScenarioInJSON(t *testing.T) {
	alone.Mark(t)
	args := []string{"-scenario", "under-50", "-limit", "50/1s", "-seeds", "2", "-o", "json"}
	var first, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &again} {
		if err := run(args, out, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	var f figures
	if err := json.Unmarshal(first.Bytes(), &f); err != nil {
		t.Fatalf("%v: %s", err, &first)
	}
	if f.Scenario != "under-50" || f.Limit != "50/1s" || f.Seeds != 2 || f.Over.Worst > 0 || f.Util.Mean != 1 || f.Messages.Mean == 0 || f.Requests.Worst < f.Requests.Mean {
		t.Errorf("%+v", f)
	}
	if first.String() != again.String() {
		t.Errorf("%s\nthen\n%s", &first, &again)
	}
}

func TestListNamesAll(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-list"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"flash-all", "burst-random", "crash-edge", "one-way"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("-list does not name %s", want)
		}
	}
}

func TestCapacity(t *testing.T) {
	var out bytes.Buffer
	if err := run(strings.Fields("-capacity -regions 5 -edges 7 -rps 50 -keys 1000 -limit 600/30s -slices 20 -lanes 4 -targets homes -o json"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Envelopes []struct {
			Plan struct {
				Regions, Edges, Keys, Slices, Lanes int
				Limit                               float64
				Targets                             string
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Envelopes) != 1 {
		t.Fatalf("%d fleets, want 1", len(got.Envelopes))
	}
	p := got.Envelopes[0].Plan
	if p.Regions != 5 || p.Edges != 7 || p.Keys != 1000 || p.Slices != 20 || p.Lanes != 4 || p.Limit != 600 || p.Targets != "homes" {
		t.Errorf("the plan is %+v", p)
	}
}

// Each table of capacity/RESULTS.md is what the command above it prints.
func TestCapacityResultsAreThoseOfTheirCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("capacity", "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	envelopes, _, _ := strings.Cut(string(text), "\n## What it says\n")
	command, tables, compared := "", 0, 0
	var printed string
	for _, line := range strings.Split(envelopes, "\n") {
		if _, after, ok := strings.Cut(line, "`go run ./test/sim -capacity"); ok && !strings.HasPrefix(line, "Written by") {
			args, _, _ := strings.Cut(after, "`")
			var out bytes.Buffer
			if err := run(strings.Fields("-capacity"+args), &out, io.Discard); err != nil {
				t.Fatalf("-capacity%s: %v", args, err)
			}
			command, printed = "-capacity"+args, out.String()
			tables++
		}
		if !strings.HasPrefix(line, "| ") || command == "" {
			continue
		}
		if compared++; !strings.Contains(printed, line) {
			t.Errorf("%s does not print\n%s", command, line)
		}
	}
	if tables < 4 || compared < 4*20 {
		t.Errorf("%d tables of %d rows compared: RESULTS.md has another form", tables, compared)
	}
}
