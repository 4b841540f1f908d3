package proc

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the test binary is gone,
// also when that panicked, timed out or was killed itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
