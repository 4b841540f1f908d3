package envoy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
	"github.com/spillgate/spillgate/test/reference"
)

// programs is where the daemons and the reference's programs are, built once.
var (
	programs string
	daemons  *proc.Daemons
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "spillgate-envoy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "where to build:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if daemons, err = proc.BuildDaemons(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "go install of envoyproxy/ratelimit %s\n", reference.Known)
	if _, err = reference.Install(context.Background(), dir, reference.Known, reference.Service, reference.ConfigCheck); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func program(name string) string { return filepath.Join(programs, name) }
