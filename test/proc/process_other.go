//go:build !linux

package proc

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// dieWithParent does nothing where the kernel has no such thing: there the
// test's cleanup alone ends the process.
func dieWithParent(*exec.Cmd) {}

// stopped returns nil if the process is stopped.
func stopped(pid int) error {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return fmt.Errorf("state of pid %d: %w", pid, err)
	}
	if !strings.HasPrefix(strings.TrimSpace(string(state)), "T") {
		return fmt.Errorf("pid %d has state %q, want T", pid, state)
	}
	return nil
}

// peak is the memory that a process has resident now, in bytes: nobody keeps the
// most that it had.
func peak(pid int) (int64, error) {
	out, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, fmt.Errorf("memory of pid %d: %w", pid, err)
	}
	kB, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of pid %d: %w", pid, err)
	}
	return kB << 10, nil
}
