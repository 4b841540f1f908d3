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
