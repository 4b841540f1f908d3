package e2e

import (
	"os"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// daemons are the programs under test, built once.
var daemons *proc.Daemons

func TestMain(m *testing.M) { os.Exit(proc.Main(m, &daemons)) }
