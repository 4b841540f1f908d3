package measure

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

func options(t *testing.T, name string) Options {
	t.Helper()
	s, err := scenarios.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Scenario: s, Limit: 40, Window: time.Second, Regions: 5, Edges: 2, Seed: 1}
}

// The exact logs, by hand: two a second.
func TestLogsByHand(t *testing.T) {
	u := newUser("u", Options{Limit: 2, Window: time.Second})
	ms := time.Millisecond
	u.saw(0, true)
	u.saw(100*ms, false)  // free: wrong
	u.saw(200*ms, false)  // the place was refused already
	u.saw(300*ms, true)   // the ideal has two by now
	u.saw(400*ms, true)   // one above the limit
	u.saw(1050*ms, false) // the log that is filled has three still
	u.saw(1350*ms, true)
	if u.wrong != 1 || u.most != 3 || u.admitted.total != 4 || u.ideal.total != 4 {
		t.Errorf("wrong %d, most %d, admitted %d, ideal %d; want 1, 3, 4, 4", u.wrong, u.most, u.admitted.total, u.ideal.total)
	}
}

// Each scenario runs, asks about as much as it says, and runs again as it ran.
func TestEachScenarioRepeats(t *testing.T) {
	list, err := scenarios.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		o := options(t, s.Name)
		first, err := Run(o)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		again, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if first != again {
			t.Errorf("%s: %+v, then %+v", s.Name, first, again)
		}
		if first.Requests < 150 || first.Util < 0.5 || first.Util > 3 || first.Messages == 0 {
			t.Errorf("%s: %+v", s.Name, first)
		}
		t.Logf("%-13s over %5.1f %%, util %5.1f %%, wrongly denied %4.1f %%, %d requests, %d messages of %d bytes",
			s.Name, 100*first.Over, 100*first.Util, 100*first.Wrong, first.Requests, first.Messages, first.Bytes)
	}
}

// Below half of its limit nobody is denied, and nothing is above it.
func TestHalfTheLimitPasses(t *testing.T) {
	f, err := Run(options(t, "under-50"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Over > 0 || f.Util < 1 {
		t.Errorf("half the limit: %+v", f)
	}
}
