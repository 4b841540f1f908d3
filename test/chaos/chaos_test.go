package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// short are the scenarios of an ordinary test run: each act and each kind
// twice, two of them in pairs, and the case of three.
var short = []string{"kill-aggregator", "kill-redis", "stop-redis", "kill-nats", "cut-nats", "slow-edge", "told-and-gone", "kill-edge_and_cut-aggregator", "stop-edge_and_slow-redis"}

// form is how long and how hard.
type form struct {
	perSecond int           // calls to each edge
	calm      time.Duration // how long there is load before the first fault
	shortest  time.Duration // a fault lasts so long, up to twice that
	wide      int           // keys of each rule
	tight     int
}

// Both must leave time for judgement: counts that leave their window of a minute
// cannot be told from lost ones.
var (
	shortForm = form{perSecond: 100, calm: 1500 * time.Millisecond, shortest: 1500 * time.Millisecond, wide: 100, tight: 20}
	longForm  = form{perSecond: 250, calm: 2 * time.Second, shortest: 4 * time.Second, wide: 300, tight: 60}
)

// keeps is how long all counts of a scenario are in their window, but for its
// oldest slice, which counts in part.
const keeps = time.Minute - time.Minute/40

// result is what came of a scenario.
type result struct {
	Name         string           `json:"name"`
	Faults       []string         `json:"faults"`
	Failures     []string         `json:"failures"` // of what is promised
	Before       latencies        `json:"before"`   // of all scenarios so far
	During       latencies        `json:"during"`
	Control      latencies        `json:"control"` // meanwhile
	Failed       int              `json:"failed_calls"`
	Decisions    decisions        `json:"decisions"`
	Acknowledged uint64           `json:"acknowledged_of_killed_edges"`
	Counted      uint64           `json:"counted"`
	Unsure       uint64           `json:"unsure"` // calls that may have been counted or not
	Converged    time.Duration    `json:"converged_ns"`
	Peaks        map[string]int64 `json:"peak_bytes"`
}

// chaos is a cluster under test.
type chaos struct {
	*cluster
	truth   *truth
	control *control
	form    form
	first   map[string]int64 // memory before the first fault
	before  []time.Duration  // what calls took before faults, in all scenarios
}

// TestChaos holds a cluster of real processes to what is promised, in one
// scenario after the other.
func TestChaos(t *testing.T) {
	chosen := chosen(t)
	x := &chaos{form: shortForm, truth: newTruth()}
	if *long {
		x.form = longForm
	}
	started := time.Now()
	t.Log(command(*only))
	x.control = newControl(t)
	x.cluster = newCluster(t, x.truth, slices.ContainsFunc(chosen, func(s scenario) bool { return s.name == promoted }))
	x.whole(t)
	t.Logf("three regions after %v", time.Since(started).Round(100*time.Millisecond))
	var results []result
	for _, s := range chosen {
		t.Run(s.name, func(t *testing.T) {
			r := x.run(t, s)
			results = append(results, r)
			t.Log(r.line())
			for _, f := range r.Failures {
				t.Errorf("%s\nagain: %s", f, command("^"+s.name+"$"))
			}
		})
	}
	if *long {
		if err := publish(results, started); err != nil {
			t.Errorf("results: %v", err)
		}
	}
}

// chosen are the scenarios that the flags name.
func chosen(t *testing.T) (some []scenario) {
	t.Helper()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-chaos.only: %v", err)
	}
	for _, s := range scenarios() {
		if !*long && *only == "" && !slices.Contains(short, s.name) || !pattern.MatchString(s.name) {
			continue
		}
		some = append(some, s)
	}
	if len(some) == 0 {
		t.Fatalf("-chaos.only %q: no scenario has such a name; pairs are named as %s", *only, pairOf([2]string{acts[0], kinds[0]}, [2]string{acts[2], kinds[2]}).name)
	}
	return some
}

// run runs one scenario.
func (x *chaos) run(t *testing.T, s scenario) result {
	r := dice(*seed, s.name)
	plan := s.plan(x.cluster, r, x.form.shortest)
	result := result{Name: s.name}
	for _, f := range plan {
		result.Faults = append(result.Faults, f.String())
	}
	t.Log(result.Faults)
	keys := x.keys(s.name, r)
	for _, e := range x.edges {
		e.begin()
	}
	fail := func(what string, err error) {
		if err != nil {
			result.Failures = append(result.Failures, what+": "+err.Error())
		}
	}

	start := time.Now()
	l := startLoad(x.edges, x.control, keys, x.form.perSecond, r.Uint64())
	<-time.After(x.form.calm)
	if x.first == nil {
		x.first = x.peaks(t)
	}
	for i := range plan {
		f := &plan[i]
		switch mark := func() { result.Acknowledged += x.acknowledged(t, f.kills) }; {
		case f.told:
			begin := f.begin
			f.begin = func() { mark(); begin() }
		case f.kills != nil:
			mark()
		}
	}
	earlier := x.decided(t)
	l.faulty.Store(true)
	play(plan)
	l.finish()
	ended := time.Now()
	result.Decisions = x.decided(t).since(earlier)

	spans := x.truth.spans(keys)
	for _, s := range spans {
		result.Counted += s.most
		result.Unsure += s.most - s.least
	}
	var err error
	result.Converged, err = x.converge(t, keys, spans, ended, start.Add(keeps))
	fail("after the faults", err)
	before, during := parted(l.samples)
	x.before = append(x.before, before...)
	_, machine := parted(l.machine)
	result.Before, result.During, result.Control = latenciesOf(x.before), latenciesOf(during), latenciesOf(machine)
	result.Failed = l.failed
	for _, err := range l.failures {
		fail("a call", err)
	}
	fail("latency", prompt(result.Before, result.During, result.Control))
	fail("decisions", result.Decisions.unwaited(result.Control))
	result.Peaks = x.peaks(t)
	fail("memory", bounded(x.first, result.Peaks))
	x.whole(t) // the next one's faults meet a healthy cluster
	return result
}

// keys are of a scenario alone, and of this run: an edge that is told of them
// remembers them. They stand in no order, so that both rules have hot ones.
func (x *chaos) keys(name string, r *rand.Rand) (keys []key) {
	for i := range x.form.wide {
		keys = append(keys, key{"account", fmt.Sprintf("%s-%d", name, i)})
	}
	for i := range x.form.tight {
		keys = append(keys, key{"user", fmt.Sprintf("%s-%d", name, i)})
	}
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// play lets a plan happen.
func play(plan []timed) {
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	for _, f := range plan {
		events = append(events, event{f.after, f.begin}, event{f.after + f.lasts, f.end})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	start := time.Now()
	for _, e := range events {
		<-time.After(time.Until(start.Add(e.at)))
		e.do()
	}
}

// acknowledged keeps calls from an edge until its region has taken all that it
// admitted, and is how much that is.
func (x *chaos) acknowledged(t *testing.T, e *edge) (n uint64) {
	t.Helper()
	e.quiet(func() {
		// What changed little is in no outbox before its turn has come.
		turn := time.Now().Add(export + export/4)
		proc.Until(t, settles, func() error {
			if wait := time.Until(turn); wait > 0 {
				return fmt.Errorf("%s has %v to go until all had their turn", e.name, wait)
			}
			return want(e.Admin, "spillgate_sync_outbox_deltas", 0)
		})
		n = e.mark()
	})
	return n
}

// decided is what the edges that answer have decided so far, by edge.
func (x *chaos) decided(t *testing.T) decided {
	t.Helper()
	var all decided
	for _, e := range x.edges {
		const series = "spillgate_decision_duration_seconds"
		got, err := proc.Metrics(e.Admin, series+`_count{transport="http"}`, fmt.Sprintf(`%s_bucket{transport="http",le="%v"}`, series, waited.Seconds()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, decisions{All: int(got[0]), Waited: int(got[0] - got[1])})
	}
	return all
}

type decided []decisions

// since is what was decided after an earlier look. An edge that was killed
// began again.
func (d decided) since(earlier decided) (sum decisions) {
	for i, now := range d {
		if now.All >= earlier[i].All && now.Waited >= earlier[i].Waited {
			now.All -= earlier[i].All
			now.Waited -= earlier[i].Waited
		}
		sum.All += now.All
		sum.Waited += now.Waited
	}
	return sum
}

// converge waits until all edges agree on the truth, and says how long that
// took. Beyond the bound it goes on until the keys leave their window, to tell
// what is late from what is lost.
func (x *chaos) converge(t *testing.T, keys []key, spans map[key]span, ended, until time.Time) (time.Duration, error) {
	t.Helper()
	var names []string
	for _, e := range x.edges {
		names = append(names, e.name)
	}
	var late error // what was wrong when the bound had passed
	for {
		asked := time.Now()
		believed, err := x.believed(keys)
		if err == nil {
			err = agreed(names, believed, keys, spans)
		}
		took := time.Since(ended)
		switch {
		case err == nil && late == nil:
			return took, nil
		case err == nil:
			return took, fmt.Errorf("agreement in %v, want it within %v, when %w", took.Round(time.Millisecond), converges, late)
		case asked.After(until):
			return took, fmt.Errorf("no agreement in %v: %w", took.Round(time.Millisecond), err)
		case asked.Sub(ended) > converges && late == nil:
			late = err
		}
		<-time.After(50 * time.Millisecond)
	}
}
