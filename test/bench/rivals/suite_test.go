package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tiny runs every stage in a second or so.
var tiny = options{
	sizes: []int{1, growing, 2000}, rounds: 3, round: time.Millisecond, draws: 1 << 12, aged: 1 << 8,
	exponent: 1.1, together: 4, weighed: 2000, stalled: 5000, episodes: 1,
}

func TestMeasure(t *testing.T) {
	f, err := measure(tiny, io.Discard)
	if err != nil {
		t.Fatalf("measure: %v", err)
	}
	for _, c := range contestants() {
		for _, keys := range []int{1, 2000} {
			r := f.find(keys, c.name)
			if r == nil {
				t.Fatalf("%s is missing at %d keys", c.name, keys)
			}
			if len(r.one.rate) < tiny.rounds || len(r.two.rate) != len(r.one.rate) || len(r.two.rate) > 3*tiny.rounds || median(r.two.rate) <= 0 || median(r.two.cpu) <= 0 {
				t.Errorf("%s at %d keys: rounds %v and %v, want %d each at least, above 0", c.name, keys, r.one, r.two, tiny.rounds)
			}
		}
		if r := f.find(2000, c.name); c.name != rowEmpty && r.heap < 2000*8 {
			t.Errorf("%s holds 2000 keys in %d bytes", c.name, r.heap)
		}
	}
	if f.weight.sparse < 64 || f.weight.hot < f.weight.sparse+80 || f.weight.near < f.weight.hot+80 {
		t.Errorf("weights = %+v, want a record at least, and more where it is hot", f.weight)
	}
	var report bytes.Buffer
	f.write(&report, look("a test"), tiny)
	for _, want := range []string{"| P1 |", "| P2 |", "| P3 |", "| P4 |", "| P7 |", "| P11 |", "**missed**", "sethvargo", "### 1 key\n"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &report)
		}
	}
}

// TestWorked refuses contestants that did nothing, or the wrong thing.
func TestWorked(t *testing.T) {
	for _, c := range []struct {
		name string
		r    result
		want string
	}{
		{"admitted", result{asked: 100, passed: 100}, ""},
		{"denied as it should", result{contestant: contestant{denies: true}, asked: 100}, ""},
		{"never asked", result{}, "never asked"},
		{"denied", result{asked: 100, passed: 98}, "98.0 % only"},
		{"let pass", result{contestant: contestant{denies: true}, asked: 100, passed: 2}, "should deny"},
	} {
		t.Run(c.name, func(t *testing.T) { holds(t, c.r.worked(), c.want) })
	}
}

func TestTrust(t *testing.T) {
	with := func(row string, rates ...float64) *findings {
		return &findings{sizes: []sizeTable{{keys: 1, results: []result{{contestant: contestant{name: row}, two: series{rate: rates}}}}}}
	}
	holds(t, with(rowEdge, 9, 10, 10, 10, 11).trust(), "")
	holds(t, with(rowEdge, 1, 2, 10, 18, 20).trust(), "of the median apart")
	holds(t, with("ulule/limiter/v3 memory", 1, 2, 10, 18, 20).trust(), "")
}

func holds(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q", err, want)
	}
}

// TestJudge reads verdicts off made-up figures.
func TestJudge(t *testing.T) {
	row := func(name string, rate float64) result {
		return result{contestant: contestant{name: name, small: name == rowThree || name == rowTen, cache: name == rowTable}, two: series{rate: []float64{rate}, cpu: []float64{2 / rate}}}
	}
	f := &findings{
		sizes: []sizeTable{
			{1, []result{row(rowEdge, 8e6)}},
			{growing, []result{row(rowEdge, 30e6)}},
			{judged, []result{row(rowEdge, 10e6), row(rowGoLimiter, 5e6), row(rowTable, 21e6), row(rowThree, 5e6), row(rowTen, 6e6)}},
		},
		stalls: []stall{{p999: 51 * time.Microsecond}},
		weight: weights{sparse: 100, hot: 400, near: 400},
	}
	var got []string
	for _, v := range f.judge() {
		if v.outcome() != "" {
			got = append(got, v.id+" "+v.outcome())
		}
	}
	want := "P1 met, P1 met, P1 met, P1 met, P1 **missed**, P2 met, P2 **missed**, P2 **missed**, P3 met, P4 **missed**, P7 met, P7 met, P7 met, P11 met"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("verdicts = %s\nwant       %s", s, want)
	}
	for _, v := range (&findings{}).judge() {
		if v.outcome() == "met" && v.id != "P7" {
			t.Errorf("%s (%s) is met, and nothing was measured", v.id, v.what)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.25, 2}, {0.5, 3}, {0.9, 4.6}, {1, 5}} {
		if got := quantile([]float64{5, 1, 4, 2, 3}, c.q); got != c.want {
			t.Errorf("quantile(%v) = %v, want %v", c.q, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""}, {"-long", ""}, {"-rounds 2", "-rounds 2"}, {"-round 0s", "-round 0s"}, {"-zipf 1", "-zipf 1"}, {"now", "no arguments"},
	} {
		o, err := parse(strings.Fields(c.args), io.Discard)
		holds(t, err, c.want)
		if c.args == "-long" && o.sizes[len(o.sizes)-1] != 10_000_000 {
			t.Errorf("-long measures %v keys", o.sizes)
		}
	}
	if got := command([]string{"-long", "-out", "x", "-rounds=5", "--out=y"}); got != "go run ./test/bench -long -rounds=5" {
		t.Errorf("command = %q", got)
	}
}

func TestRunWritesNothingInVain(t *testing.T) {
	out := filepath.Join(t.TempDir(), "RESULTS.md")
	holds(t, run([]string{"-out", out, "-rounds", "1"}, io.Discard, io.Discard), "-rounds 1")
	if _, err := os.Stat(out); err == nil {
		t.Error("a report was written without a measurement")
	}
	holds(t, run([]string{"-out", out, "-profile", filepath.Join(out, "cpu")}, io.Discard, io.Discard), "write the profile")
}

func TestProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu")
	stop, err := profile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if about, err := os.Stat(file); err != nil || about.Size() == 0 {
		t.Errorf("no profile was written: %v", err)
	}
}

func TestHeats(t *testing.T) {
	asked := 0
	for _, heat := range heats(10_000_000, 4) {
		if len(heat) > 4 {
			t.Errorf("%d contestants at a time, want 4 at most", len(heat))
		}
		asked += len(heat)
	}
	if asked != 12 {
		t.Errorf("%d contestants at ten million keys, want 12", asked)
	}
	if got := len(heats(100_000, 4)); got != 1 {
		t.Errorf("%d heats of small populations, want 1", got)
	}
}
