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
	// stalls to a single one: this is no real-time system.
	noise  = 200 * time.Millisecond
	stalls = 2 * time.Second

	// grows is by how much a process may grow beyond twice what it had before
	// the first fault.
	grows = 64 << 20
)

// latencies are what callers saw.
type latencies struct {
	Calls int           `json:"calls"`
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
	at := func(share float64) time.Duration { return took[min(len(took)-1, int(share*float64(len(took))))] }
	return latencies{len(took), at(0.5), at(0.99), at(0.999), took[len(took)-1]}
}

// prompt returns an error if calls waited for something while a fault lasted
// that they had not waited for before.
func prompt(before, during latencies) error {
	switch {
	case before.Calls == 0 || during.Calls == 0:
		return fmt.Errorf("%d calls before the faults and %d while they lasted, want some", before.Calls, during.Calls)
	case during.P999 > 3*before.P999+noise:
		return fmt.Errorf("one call in a thousand took %v or more, want at most %v: it was %v before", during.P999, 3*before.P999+noise, before.P999)
	case during.Worst > 3*before.Worst+stalls:
		return fmt.Errorf("a call took %v, want at most %v: the slowest had been %v before", during.Worst, 3*before.Worst+stalls, before.Worst)
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
func (d decisions) unwaited() error {
	if most := 1 + d.All/1000; d.Waited > most {
		return fmt.Errorf("%d of %d decisions took an edge longer than %v, want at most %d", d.Waited, d.All, waited, most)
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
	before := calls(10000, time.Millisecond, 15, 10*time.Millisecond)
	for _, c := range []struct {
		name   string
		during latencies
		want   string
	}{
		{"as before", calls(2000, time.Millisecond, 2, 10*time.Millisecond), ""},
		{"a busy machine", calls(2000, 20*time.Millisecond, 3, 150*time.Millisecond), ""},
		{"two in a thousand wait for their region", calls(2000, time.Millisecond, 4, 250*time.Millisecond), "one call in a thousand took 250ms"},
		{"one waits for a dead server", calls(2000, time.Millisecond, 1, 4*time.Second), "a call took 4s"},
		{"nobody was called", latencies{}, "want some"},
	} {
		got := ""
		if err := prompt(before, c.during); err != nil {
			got = err.Error()
		}
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := (decisions{All: 5000, Waited: 3}).unwaited(); err != nil {
		t.Errorf("3 of 5000 decisions late: %v, want nothing", err)
	}
	if err := (decisions{All: 5000, Waited: 10}).unwaited(); err == nil {
		t.Error("10 of 5000 decisions late: nothing, want an error")
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
