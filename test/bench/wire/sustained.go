package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// bodies are how many different messages ghz is given; h2load takes one.
const bodies = 1000

// lasting is what came of a sustained load.
type lasting struct {
	tool                 string
	lasted               time.Duration
	calls                int // that were answered well
	errors               string
	rate                 float64 // of calls a second
	latency              string
	cost                 float64 // of a call, in microseconds
	before, settled, end int64   // memory that is resident, settled: when a third was over
}

// told is what a tool tells.
type told struct {
	calls   int
	errors  string // "": none
	latency string
}

// tool is a client of others that makes a load for some time.
type tool struct {
	name string
	path string
	args []string
	read func(output string) (told, error)
}

// toolFor is what can make a load at a contestant; nil where there is none.
func (f *field) toolFor(c *contestant, lasts time.Duration) (*tool, error) {
	switch {
	case c.way.rpc != nil && f.ghz != "":
		return f.byGHZ(c.way.rpc, lasts)
	case c.way.page != nil && f.h2load != "":
		return f.byH2load(c.way.page, lasts)
	}
	return nil, nil
}

func (f *field) byGHZ(r *rpc, lasts time.Duration) (*tool, error) {
	var data bytes.Buffer
	for i := range bodies {
		data.WriteByte("[,"[min(i, 1)])
		data.Write(r.body())
	}
	data.WriteByte(']')
	body, err := f.write("ghz.json", data.Bytes())
	if err != nil {
		return nil, err
	}
	proto, err := f.write("ghz.proto", []byte(r.proto))
	if err != nil {
		return nil, err
	}
	return &tool{name: "ghz", path: f.ghz, read: readGHZ, args: []string{
		"--insecure", "--proto", proto, "--call", r.method, "--data-file", body, "--concurrency", strconv.Itoa(inFlight), "--connections", "1",
		"--duration", lasts.String(), "--duration-stop", "wait", r.addr,
	}}, nil
}

func (f *field) byH2load(p *page, lasts time.Duration) (*tool, error) {
	args := []string{"--h1", "--clients", strconv.Itoa(inFlight), "--threads", "1", "--duration", strconv.Itoa(max(1, int(lasts.Seconds())))}
	if p.body != nil {
		body, err := f.write("h2load.json", p.body())
		if err != nil {
			return nil, err
		}
		args = append(args, "--data", body, "--header", "content-type: application/json")
	} else {
		args = append(args, "--header", "x-user: "+user())
	}
	return &tool{name: "h2load", path: f.h2load, read: readH2load, args: append(args, p.url)}, nil
}

var (
	ghzStatus  = regexp.MustCompile(`(?m)^\s*\[(\w+)\]\s+(\d+) responses`)
	ghzLatency = regexp.MustCompile(`(?m)^\s*(50|99) % in ([0-9.]+ \S+)`)
	ghzSlowest = regexp.MustCompile(`(?m)^\s*Slowest:\s+([0-9.]+ \S+)`)
	h2Requests = regexp.MustCompile(`(?m)^requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)
	h2Latency  = regexp.MustCompile(`(?m)^time for request:\s+\S+\s+(\S+)\s+(\S+)`)
)

// readGHZ reads the summary of ghz.
func readGHZ(out string) (t told, err error) {
	statuses := ghzStatus.FindAllStringSubmatch(out, -1)
	if statuses == nil {
		return t, errors.New("no status code distribution")
	}
	var wrong []string
	for _, s := range statuses {
		if s[1] == "OK" {
			t.calls, err = strconv.Atoi(s[2])
		} else {
			wrong = append(wrong, s[2]+" "+s[1])
		}
	}
	t.errors = strings.Join(wrong, ", ")
	for _, q := range ghzLatency.FindAllStringSubmatch(out, -1) {
		t.latency += "p" + q[1] + " " + q[2] + ", "
	}
	if most := ghzSlowest.FindStringSubmatch(out); most != nil {
		t.latency += "at most " + most[1]
	}
	return t, err
}

// readH2load reads what h2load prints.
func readH2load(out string) (t told, err error) {
	n := h2Requests.FindStringSubmatch(out)
	if n == nil {
		return t, errors.New("no count of requests")
	}
	var wrong []string
	for i, name := range []string{"status", "broken", "timeout"} {
		if n[i+2] != "0" {
			wrong = append(wrong, n[i+2]+" "+name)
		}
	}
	t.errors = strings.Join(wrong, ", ")
	if l := h2Latency.FindStringSubmatch(out); l != nil {
		t.latency = "mean " + l[2] + ", at most " + l[1]
	}
	t.calls, err = strconv.Atoi(n[1])
	return t, err
}

// sustain has a tool make a load at a contestant for some time, and notes what that took
// of its processes.
func (f *field) sustain(ctx context.Context, c *contestant, lasts time.Duration) error {
	t, err := f.toolFor(c, lasts)
	if t == nil || err != nil {
		return err
	}
	l := &lasting{tool: t.name, lasted: lasts}
	if l.before, err = resident(c.pids); err != nil {
		return err
	}
	before, err := processorTime(c.pids)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lasts+time.Minute) // of a server that hangs, the tool may wait for ever
	defer cancel()
	cmd := exec.CommandContext(ctx, t.path, t.args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", t.name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // until the tool ends, which ctx sees to; waited for below
	select {
	case err = <-ended:
		return fmt.Errorf("%s ended after %v: %w\n%s", t.name, time.Since(began), err, out.String())
	case <-time.After(lasts / 3):
	}
	if l.settled, err = resident(c.pids); err != nil {
		cancel()
		<-ended
		return err
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("%s: %w\n%s", t.name, err, out.String())
	}
	took := time.Since(began)
	after, err := processorTime(c.pids)
	if err != nil {
		return err
	}
	if l.end, err = resident(c.pids); err != nil {
		return err
	}
	said, err := t.read(out.String())
	if err != nil {
		return fmt.Errorf("%s: %w in\n%s", t.name, err, out.String())
	}
	l.calls, l.errors, l.latency = said.calls, said.errors, said.latency
	l.rate, l.cost = float64(l.calls)/took.Seconds(), float64((after-before).Microseconds())/float64(max(1, l.calls))
	c.lasting = l
	return nil
}

// resident is the memory of processes that is resident, in bytes.
func resident(pids []int) (sum int64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
		fields := strings.Fields(string(text))
		if len(fields) < 2 {
			return 0, fmt.Errorf("memory of %d: %q is not understood", pid, text)
		}
		pages, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("memory of %d: %w", pid, err)
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// lookPath finds a program, and sees that it starts.
func lookPath(name, version string) (path string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		return "", err
	}
	if out, err := exec.Command(path, version).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, version, err, out)
	}
	return path, nil
}
