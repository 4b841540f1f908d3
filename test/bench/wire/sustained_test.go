package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillgate/spillgate/test/bench/latency"
)

const ghzSays = `
Summary:
  Count:	12894
  Total:	2.00 s
  Slowest:	76.10 ms
  Fastest:	0.26 ms
  Average:	4.84 ms
  Requests/sec:	6437.59

Latency distribution:
  10 % in 1.87 ms 
  50 % in 3.57 ms 
  99 % in 45.11 ms 

Status code distribution:
  [OK]            12890 responses   
  [Unavailable]   4 responses   

Error distribution:
  [4]   rpc error: code = Unavailable desc = connection error
`

const h2loadSays = `finished in 2.00s, 24962.50 req/s, 12.03MB/s
requests: 49925 total, 49957 started, 49925 done, 49920 succeeded, %d failed, %d errored, %d timeout
status codes: 49920 2xx, 0 3xx, 5 4xx, 0 5xx
                     min         max         mean         sd        +/- sd
time for request:       33us     13.47ms      1.28ms      1.42ms    85.55%%
time for connect:        7us       234us       132us        64us    59.38%%
`

func TestWhatToolsSay(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(string) (told, error)
		says string
		want told
		bad  string
	}{
		{"ghz", readGHZ, ghzSays, told{12890, "4 Unavailable", "p50 3.57 ms, p99 45.11 ms, at most 76.10 ms"}, ""},
		{"ghz without errors", readGHZ, strings.Replace(ghzSays, "[Unavailable]   4", "(none)", 1), told{12890, "", "p50 3.57 ms, p99 45.11 ms, at most 76.10 ms"}, ""},
		{"ghz, of another version", readGHZ, "all is well", told{}, "no status code distribution"},
		{"h2load", readH2load, fmt.Sprintf(h2loadSays, 5, 0, 2), told{49920, "5 status, 2 timeout", "mean 1.28ms, at most 13.47ms"}, ""},
		{"h2load without errors", readH2load, fmt.Sprintf(h2loadSays, 0, 0, 0), told{49920, "", "mean 1.28ms, at most 13.47ms"}, ""},
		{"h2load, of another version", readH2load, "all is well", told{}, "no count of requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.read(c.says)
			if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%+v, %v, want %+v, %q", got, err, c.want, c.bad)
			}
		})
	}
}

func newContestant() *contestant { return &contestant{latency: new(latency.Histogram)} }

// script is a program that stands for a tool.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSustain(t *testing.T) {
	says := fmt.Sprintf(h2loadSays, 5, 0, 0)
	for name, c := range map[string]struct{ script, want string }{
		"a load":           {"sleep .3\ncat <<'E'\n" + says + "E\n", ""},
		"ends at once":     {"echo no such host >&2; exit 3", "ended after"},
		"ends badly":       {"sleep .3; echo out of memory >&2; exit 3", "exit status 3\nout of memory"},
		"says nothing":     {"sleep .3", "no count of requests"},
		"is not there":     {"", "start h2load"},
		"is as it is told": {"sleep .3; echo \"$@\"; echo 'requests: 1 total, 2 succeeded, 0 failed, 0 errored, 0 timeout'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &field{dir: t.TempDir(), h2load: script(t, c.script)}
			if c.script == "" {
				f.h2load = filepath.Join(f.dir, "none")
			}
			con := &contestant{name: "page", pids: []int{os.Getpid()}, way: way{page: &page{"http://x/", checkBody}}}
			err := f.sustain(t.Context(), con, 90*time.Millisecond)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || con.lasting != nil {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if l := con.lasting; l.calls < 2 || l.rate <= 0 || l.before <= 0 || l.settled <= 0 || l.end <= 0 || l.tool != "h2load" {
				t.Errorf("%+v", l)
			}
		})
	}
}

// Without a tool nothing is sustained, and nothing fails.
func TestNoTool(t *testing.T) {
	f := &field{}
	for _, c := range []*contestant{{way: way{page: &page{}}}, {way: way{rpc: &rpc{}}}} {
		if err := f.sustain(t.Context(), c, time.Minute); err != nil || c.lasting != nil {
			t.Errorf("%v, %+v", err, c.lasting)
		}
	}
}

// What fails ends its own part, and is told where the others' figures stand; of ours it is
// a target missed.
func TestFailuresAreReported(t *testing.T) {
	f := &field{contestants: []*contestant{
		{name: "spillgate", failed: errors.New("it hung\nup")},
		{name: "gubernator", costs: []float64{1}, rates: []float64{2}, latency: newContestant().latency, failed: errors.New("it fell | over")},
		{name: "spillgate /v1/check", costs: []float64{1}, rates: []float64{2}, latency: newContestant().latency,
			lasting: &lasting{tool: "h2load", errors: "7 timeout", settled: 100, end: 105}},
		{name: "spillgate /v1/auth", costs: []float64{1}, rates: []float64{2}, latency: newContestant().latency,
			lasting: &lasting{tool: "h2load", settled: 100, end: 150}},
	}}
	f.rival(t.Context(), "x/ratelimit", func(context.Context) (string, error) { return "", errors.New("go install: 403") })
	f.rival(t.Context(), "y/ratelimit", func(context.Context) (string, error) { return "v7", nil })
	var out strings.Builder
	about := look([]string{"-rounds", "2", "-out", "x"}, options{})
	about.before = "2.50"
	missed := f.report(&out, about)
	if missed != 3 {
		t.Errorf("%d targets are missed, want 3", missed)
	}
	for _, want := range []string{
		"go run ./test/bench -wire -rounds 2`", "load average 2.50 before", "- **others worked on this machine meanwhile**",
		"- x/ratelimit is not measured: go install: 403\n", "- y/ratelimit is v7\n",
		"| | spillgate | answers | it hung | **missed** |", "| spillgate | failed: it hung |", "| gubernator | failed: it fell / over |",
		"7 timeout; 1.05 × | **missed** |", "none; 1.50 × | **missed** |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	calls := 0
	c := newContestant()
	for range 3 {
		if err := c.attempt(t.Context(), func() error { calls++; return errors.New("gone") }); err != nil {
			t.Errorf("it ends all: %v", err)
		}
	}
	if calls != 1 || c.failed == nil {
		t.Errorf("tried %d times, %v", calls, c.failed)
	}
}

func TestGubernatorsAnswers(t *testing.T) {
	one := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7) // its limit
	over := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	wrong := protowire.AppendString(protowire.AppendTag(nil, 5, protowire.BytesType), "no peer")
	answer := func(limits ...[]byte) (out []byte) {
		for _, l := range limits {
			out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), l)
		}
		return out
	}
	for name, c := range map[string]struct {
		out  []byte
		want string
	}{
		"granted":    {answer(one, one), ""},
		"too few":    {answer(one), "1 limits in an answer, want 2"},
		"over limit": {answer(one, over), "it answered"},
		"an error":   {answer(wrong, one), "no peer"},
		"torn":       {answer(one, one)[:5], "EOF"},
	} {
		if err := granted(c.out, 2); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
