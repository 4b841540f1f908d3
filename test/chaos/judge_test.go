package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// refresh is how long counts of a window of a minute rest before they are
	// told again unasked, and export how long what changed little waits for its
	// turn.
	refresh = time.Minute / 6
	export  = time.Second
	// converges is when all edges must agree after the faults.
	converges = refresh + 2*export

	// waited is less than a decision took that waited for anybody: an edge gives
	// the region 250 ms to answer, and a silent server seconds.
	waited = 100 * time.Millisecond
	// noise is what a busy machine may add to the slowest calls in a thousand,
	// stalls to a single one. Both are wide: with eight times as many processes
	// that want to run as processors, an edge was once not let run for 300 ms.
	// What decisions wait for shows in the edges' own clocks.
	noise  = 500 * time.Millisecond
	stalls = 2 * time.Second

	// grows is by how much a process may grow beyond twice what it had before
	// the first fault.
	grows = 64 << 20
)

// latencies are what callers saw.
type latencies struct {
	Calls int           `json:"calls"`
	Slow  int           `json:"slow"` // that took longer than waited
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Worst time.Duration `json:"worst_ns"`
}

// latenciesOf sorts what it is given.
func latenciesOf(took []time.Duration) latencies {
	if len(took) == 0 {
		return latencies{}
	}
	slices.Sort(took)
	quick, _ := slices.BinarySearch(took, waited+1)
	at := func(share float64) time.Duration { return took[min(len(took)-1, int(share*float64(len(took))))] }
	return latencies{len(took), len(took) - quick, at(0.5), at(0.99), at(0.999), took[len(took)-1]}
}

// prompt returns an error if calls waited for something while a fault lasted
// that they had not waited for before, and that calls to the control did not
// wait for meanwhile.
func prompt(before, during, control latencies) error {
	usual, worst := max(before.P999, control.P999), max(before.Worst, control.Worst)
	switch {
	case before.Calls == 0 || during.Calls == 0 || control.Calls == 0:
		return fmt.Errorf("%d calls before the faults, and %d and %d of the control while they lasted, want some", before.Calls, during.Calls, control.Calls)
	case during.P999 > 3*usual+noise:
		return fmt.Errorf("one call in a thousand took %v or more, want at most %v: it was %v before, and %v by the control", during.P999, 3*usual+noise, before.P999, control.P999)
	case during.Worst > 3*worst+stalls:
		return fmt.Errorf("a call took %v, want at most %v: the slowest was of %v before, and of %v by the control", during.Worst, 3*worst+stalls, before.Worst, control.Worst)
	}
	return nil
}

// decisions are what edges say of themselves: how many they made, and how many
// of those took so long that they may have waited.
type decisions struct {
	All    int `json:"all"`
	Waited int `json:"waited"`
}

// unwaited returns an error if decisions waited: more than the machine alone
// makes late.
func (d decisions) unwaited(control latencies) error {
	most := 1 + d.All/1000
	if control.Calls > 0 {
		most += 3 * d.All * control.Slow / control.Calls
	}
	if d.Waited > most {
		return fmt.Errorf("%d of %d decisions took an edge longer than %v, want at most %d: of %d calls to the control %d did", d.Waited, d.All, waited, most, control.Calls, control.Slow)
	}
	return nil
}

// bounded returns an error if a process has grown too much.
func bounded(before, after map[string]int64) error {
	for _, kind := range kinds {
		if most := 2*before[kind] + grows; after[kind] > most {
			return fmt.Errorf("memory of a process of kind %s: %d MB, want at most %d: it was %d before the first fault", kind, after[kind]>>20, most>>20, before[kind]>>20)
		}
	}
	return nil
}

func TestPrompt(t *testing.T) {
	calls := func(n int, usual time.Duration, slow int, slowly time.Duration) latencies {
		all := make([]time.Duration, n)
		for i := range all {
			if all[i] = usual; i < slow {
				all[i] = slowly
			}
		}
		return latenciesOf(all)
	}
	before, calm := calls(10000, time.Millisecond, 15, 10*time.Millisecond), calls(500, time.Millisecond, 0, 0)
	stalled := calls(500, time.Millisecond, 2, 3*time.Second)
	for _, c := range []struct {
		name            string
		during, control latencies
		want            string
	}{
		{"as before", calls(2000, time.Millisecond, 2, 10*time.Millisecond), calm, ""},
		{"a busy machine", calls(2000, 20*time.Millisecond, 3, 150*time.Millisecond), calm, ""},
		{"a machine that stalls", calls(2000, time.Millisecond, 4, 4*time.Second), stalled, ""},
		{"two in a thousand wait for a silent server", calls(2000, time.Millisecond, 4, time.Second), calm, "one call in a thousand took 1s"},
		{"one waits for a dead server", calls(2000, time.Millisecond, 1, 4*time.Second), calm, "a call took 4s"},
		{"nobody was called", latencies{}, calm, "want some"},
		{"no control", calm, latencies{}, "want some"},
	} {
		got := ""
		if err := prompt(before, c.during, c.control); err != nil {
			got = err.Error()
		}
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		late    int
		control latencies
		wrong   bool
	}{{3, calm, false}, {10, calm, true}, {60, stalled, false}, {100, stalled, true}} {
		if err := (decisions{All: 5000, Waited: c.late}).unwaited(c.control); (err != nil) != c.wrong {
			t.Errorf("%d of 5000 decisions late, of %d calls to the control %d: %v, want an error: %v", c.late, c.control.Calls, c.control.Slow, err, c.wrong)
		}
	}
}

func TestBounded(t *testing.T) {
	before := map[string]int64{"edge": 40 << 20, "nats": 20 << 20}
	if err := bounded(before, map[string]int64{"edge": 100 << 20, "nats": 90 << 20}); err != nil {
		t.Errorf("some growth: %v, want nothing", err)
	}
	if err := bounded(before, map[string]int64{"edge": 40 << 20, "nats": 200 << 20}); err == nil || !strings.Contains(err.Error(), "kind nats") {
		t.Errorf("a server that grows tenfold: %v, want an error", err)
	}
}
