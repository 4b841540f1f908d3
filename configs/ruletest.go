package configs

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// RuleTest is a file of rule tests: requests at instants of virtual time, and
// the verdicts that their author expects.
type RuleTest struct {
	File  string
	Rules []limit.Document // of all files that rules: names

	// Regions are the cluster that the cases run on, in the order of the
	// file; one region with one edge where it names none.
	Regions []TestRegion
	// EdgeDelay is the way between an edge and its region, RegionDelay that
	// between two regions, each one way; 0: as the simulator has it.
	EdgeDelay, RegionDelay time.Duration

	Cases []TestCase
}

// TestRegion is a region with its edges.
type TestRegion struct {
	Name  string
	Edges []string
}

// TestCase is a story that starts with nothing counted.
type TestCase struct {
	Name  string
	Line  int
	Start time.Time
	Cuts  []TestCut // by From
	Steps []TestStep
}

// TestCut takes a region off the others for a while, in time since the start.
type TestCut struct {
	Region   string
	From, To time.Duration
}

// TestAct is what a step does.
type TestAct uint8

const (
	ActAsk      TestAct = iota // requests are decided about
	ActReport                  // Cost is charged, whatever room there is
	ActGiveBack                // Cost is given back
	ActSet                     // nothing but Capacity is set
)

// TestStep is a number of equal requests and what is to become of them, or of
// reports about some.
type TestStep struct {
	Line  int
	At    time.Duration // of the first one, since the start
	Every time.Duration // from one to the next
	Times int

	Act        TestAct
	Edge       string // "": all of them, for those that only set something
	Namespace  string
	Attributes map[string]string
	Cost       uint64 // 0: as the rule says
	Peek       bool
	Trusted    bool               // it comes from a trusted proxy, which may name its cost
	Response   map[string]string  // what those that were allowed are answered: response.status
	Capacity   map[string]float64 // signals that are set when the step begins: the part in use

	Allow, Deny int // together Times where requests are decided about, else 0
	Last        Expectation
}

// Expectation is what a step wants of its last decision. Nil fields are not
// compared.
type Expectation struct {
	Rule, Policy, Zone *string // NoRule: no rule limited the request
	Remaining          *uint64
	RetryAfter, Delay  *time.Duration
	NearLimit          *bool
}

// NoRule is the rule and the policy of a request that no rule limits.
const NoRule = "none"

// The cluster of a file that names no regions.
const (
	defaultRegion = "local"
	defaultEdge   = "edge"
)

// defaultStart is the start of a case that names none.
var defaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Bounds on a rule test, so that a slip of the finger does not run for days.
const (
	maxTestTimes   = 1_000_000
	maxTestSpan    = 366 * 24 * time.Hour
	maxTestCut     = 24 * time.Hour // all through which the regions call in vain
	maxTestRegions = 16
	maxTestEdges   = 64 // of all regions
	maxEdgeDelay   = 100 * time.Millisecond
	maxRegionDelay = 400 * time.Millisecond
)
