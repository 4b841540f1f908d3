package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the process when the test binary is gone,
// also when that panicked, timed out or was killed itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped returns nil if every thread of the process is stopped.
func stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil { // our own bug: the pattern is malformed
		return fmt.Errorf("threads of pid %d: %w", pid, err)
	}
	if len(threads) == 0 {
		return fmt.Errorf("pid %d has no threads", pid)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// "pid (name) state ...", and the name may hold anything.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		if !strings.HasPrefix(rest, "T") {
			return fmt.Errorf("%s: state %.1q, want T", path, rest)
		}
	}
	return nil
}

// peak is the most memory that a process had resident, in bytes.
func peak(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			return kB << 10, nil
		}
	}
	return 0, fmt.Errorf("%s has no VmHWM", path)
}
