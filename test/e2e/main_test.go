package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// daemons are the programs under test, built once.
var daemons *proc.Daemons

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "spillgate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "where to build the daemons:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if daemons, err = proc.BuildDaemons(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
