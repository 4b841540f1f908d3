package chaos

import (
	"flag"
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

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(proc.Main(m, &daemons))
}
