package accuracy

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine is what it runs on.
func Machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d processors of %s, %s/%s, %s", runtime.GOMAXPROCS(0), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// Commit is what was measured, as git knows it.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "an unknown commit"
	}
	return "commit " + strings.TrimSpace(string(out))
}
