package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

var (
	long = flag.Bool("chaos.long", false, "all single faults and all pairs of them, longer and under more load; writes RESULTS.md")
	seed = flag.Uint64("chaos.seed", 1, "draws whom the faults hit, how, and for how long")
	only = flag.String("chaos.only", "", "only scenarios whose name this `regexp` matches, of all that there are")
)

// daemons are the programs under test, built once.
var daemons *proc.Daemons

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "spillgate-chaos-")
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
