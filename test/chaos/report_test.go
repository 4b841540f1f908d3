package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	figuresFile = "figures.json"
	resultsFile = "RESULTS.md"
)

// figures are the results of the long form, by whom they were made.
type figures struct {
	Commit    string    `json:"commit"`
	Go        string    `json:"go"`
	Machine   string    `json:"machine"`
	Seed      uint64    `json:"seed"`
	Commands  []string  `json:"commands"`
	Finished  time.Time `json:"finished"`
	Seconds   float64   `json:"seconds"`
	Scenarios []result  `json:"scenarios"`
}

// line is a result in words.
func (r *result) line() string {
	return fmt.Sprintf("%d calls meanwhile, %d failed, p50 %v, p99.9 %v (%v before, control %v), worst %v (control %v); %d of %d decisions above %v; %d counts, %d unsure, %d acknowledged of the dead; agreed after %v; peaks %s",
		r.During.Calls, r.Failed, brief(r.During.P50), brief(r.During.P999), brief(r.Before.P999), brief(r.Control.P999), brief(r.During.Worst), brief(r.Control.Worst), r.Decisions.Waited, r.Decisions.All, waited,
		r.Counted, r.Unsure, r.Acknowledged, brief(r.Converged), megabytes(r.Peaks))
}

// brief is a duration with two or three digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

func megabytes(bytes map[string]int64) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, fmt.Sprintf("%d", bytes[kind]>>20))
	}
	return strings.Join(all, "/") + " MB"
}

// merge puts results in place of those of the same name, in the order of the
// scenarios; results of another commit, machine or seed go.
func (f figures) merge(newer figures) figures {
	if f.Commit != newer.Commit || f.Seed != newer.Seed || f.Go != newer.Go || f.Machine != newer.Machine {
		return newer
	}
	for _, old := range f.Scenarios {
		if !slices.ContainsFunc(newer.Scenarios, func(r result) bool { return r.Name == old.Name }) {
			newer.Scenarios = append(newer.Scenarios, old)
		}
	}
	place := map[string]int{}
	for i, s := range scenarios() {
		place[s.name] = i
	}
	slices.SortStableFunc(newer.Scenarios, func(a, b result) int { return place[a.Name] - place[b.Name] })
	newer.Commands = append(slices.Clone(f.Commands), newer.Commands...)
	newer.Seconds += f.Seconds
	return newer
}

// publish writes both files.
func publish(results []result, started time.Time) error {
	f := figures{
		Commit: commit(), Go: runtime.Version(), Machine: machine(), Seed: *seed, Commands: []string{command(*only)},
		Finished: time.Now().UTC().Round(time.Second), Seconds: time.Since(started).Round(100 * time.Millisecond).Seconds(), Scenarios: results,
	}
	text, err := os.ReadFile(figuresFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		var before figures
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("%s: %w", figuresFile, err)
		}
		f = before.merge(f)
	}
	if text, err = json.MarshalIndent(f, "", " "); err != nil {
		return err
	}
	if err := os.WriteFile(figuresFile, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(resultsFile, []byte(f.page()), 0o644)
}

// page is RESULTS.md.
func (f figures) page() string {
	var b strings.Builder
	kept := 0
	for _, r := range f.Scenarios {
		if len(r.Failures) == 0 {
			kept++
		}
	}
	fmt.Fprintf(&b, "# Chaos: real processes, killed, stopped, cut and slowed under load\n\n")
	fmt.Fprintf(&b, "Written by the long form of test/chaos, whose package comment tells what runs; figures.json beside this file has every figure. Target R2. A promise that is broken stays here until it is kept.\n\n")
	fmt.Fprintf(&b, "- kept in **%d of %d** scenarios\n- commit: %s; %s\n- machine: %s\n- seed: %d; finished %s after %.0f s in all\n", kept, len(f.Scenarios), f.Commit, f.Go, f.Machine, f.Seed, f.Finished.UTC().Format(time.DateTime+" UTC"), f.Seconds)
	for _, c := range f.Commands {
		fmt.Fprintf(&b, "- `%s`\n", c)
	}
	fmt.Fprintf(&b, "\nPromised: of calls to edges that live none fails; p99.9 is at most 3 × that of all calls before faults in the same run + %v, the slowest 3 × + %v, or that of a control if it is higher: a Redis that nobody uses, called meanwhile as often as an edge; by their own clocks edges decide all but one in a thousand (and one, and 3 × the control's share) within %v (whoever waits for a region waits 250 ms, for a silent server seconds); what a killed edge had told and was acknowledged is counted everywhere, as is all that living edges admitted; nothing else is; all six edges agree within %v of the faults' end (a refresh of a window of a minute and two exports); no process grows beyond twice what it had, and %d MB.\n\n", noise, stalls, waited, converges, grows>>20)
	fmt.Fprintf(&b, "Memory is the most that any edge, aggregator, nats-server and redis-server had, in MB. Unsure are calls that had no answer because their edge was killed or stopped, and what a killed edge had not told; acknowledged is what it had. Both are for callers to know only.\n\n")
	fmt.Fprintf(&b, "| scenario | what happened | calls meanwhile, failed | p99.9 before, meanwhile, control; worst, control | decisions, above %v | counted, unsure, acknowledged | agreed after | MB | |\n|---|---|---|---|---|---|---|---|---|\n", waited)
	for _, r := range f.Scenarios {
		verdict := "kept"
		if len(r.Failures) > 0 {
			verdict = "**broken**: " + strings.ReplaceAll(strings.Join(r.Failures, "; "), "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s | %s | %d, %d | %v, %v, %v; %v, %v | %d, %d | %d, %d, %d | %v | %s | %s |\n", r.Name, strings.Join(r.Faults, "; "),
			r.During.Calls, r.Failed, brief(r.Before.P999), brief(r.During.P999), brief(r.Control.P999), brief(r.During.Worst), brief(r.Control.Worst), r.Decisions.All, r.Decisions.Waited,
			r.Counted, r.Unsure, r.Acknowledged, brief(r.Converged), strings.TrimSuffix(megabytes(r.Peaks), " MB"), verdict)
	}
	return b.String()
}

// command runs the scenarios that a pattern names once more.
func command(only string) string {
	c := fmt.Sprintf("go test ./test/chaos -v -timeout 60m -run 'Chaos$' -chaos.seed %d", *seed)
	if *long {
		c += " -chaos.long"
	}
	if only != "" {
		c += fmt.Sprintf(" -chaos.only '%s'", only)
	}
	return c
}

// commit is the commit that was tested, and whether the code differed from it.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(id))
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":!"+figuresFile, ":!"+resultsFile).Output()
	if err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}

// machine is what it ran on.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d processors, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func TestFigures(t *testing.T) {
	old := figures{Commit: "c", Seed: 1, Commands: []string{"one"}, Seconds: 1, Scenarios: []result{{Name: "kill-edge_and_kill-nats"}, {Name: "kill-edge", Failed: 7}}}
	both := old.merge(figures{Commit: "c", Seed: 1, Commands: []string{"two"}, Seconds: 2, Scenarios: []result{{Name: "kill-edge_and_kill-edge"}, {Name: "kill-edge", Failures: []string{"lost | much"}}}})
	var names []string
	for _, r := range both.Scenarios {
		names = append(names, r.Name)
	}
	if want := []string{"kill-edge", "kill-edge_and_kill-edge", "kill-edge_and_kill-nats"}; !slices.Equal(names, want) || both.Scenarios[0].Failed != 0 || both.Seconds != 3 {
		t.Errorf("merged: %v, %+v, want %v with the newer kill-edge, in 3 s", names, both, want)
	}
	if page := both.page(); !strings.Contains(page, "kept in **2 of 3** scenarios") || !strings.Contains(page, "**broken**: lost") || !strings.Contains(page, "- `one`\n- `two`\n") {
		t.Errorf("page:\n%s", page)
	}
	if alone := old.merge(figures{Commit: "d", Seed: 1, Scenarios: []result{{Name: "kill-edge_and_kill-edge"}}}); len(alone.Scenarios) != 1 {
		t.Errorf("results of another commit were kept: %+v", alone)
	}
}
