package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// surroundings are where and when a report was made.
type surroundings struct {
	command    string
	machine    string
	commit     string
	goVersion  string
	started    time.Time
	loadBefore string
	loadAfter  string
}

// look finds out; what cannot be found out is "unknown".
func look(command string) surroundings {
	return surroundings{
		command: command, commit: commit(), started: time.Now(), loadBefore: load(),
		machine:   fmt.Sprintf("%s, %d processors, %s memory, %s/%s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(), field("/proc/meminfo", "MemTotal"), runtime.GOOS, runtime.GOARCH),
		goVersion: fmt.Sprintf("%s, GOMAXPROCS %d, built %s", runtime.Version(), runtime.GOMAXPROCS(0), guided()),
	}
}

// guided says which profile the compiler was guided by, contestants and all.
func guided() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			if s.Key == "-pgo" && s.Value != "off" {
				return "with the profile " + filepath.Join(filepath.Base(filepath.Dir(s.Value)), filepath.Base(s.Value))
			}
		}
	}
	return "without a profile"
}

const unknown = "unknown"

// field is the value behind the first line that starts with name.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// load is the machine's load average over the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// commit is the commit that was measured, and whether the code differed from it.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return unknown
	}
	name := strings.TrimSpace(string(id))
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":/edge", ":/crdt", ":/sync", ":/test/bench/rivals").Output()
	if err != nil || len(changed) > 0 {
		name += " with changes"
	}
	return name
}
