package measure

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/world"
)

// What the conditions say befalls frames.
func TestFramesMeetTheirFates(t *testing.T) {
	o := options(t, "under-50")
	usual, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	if usual.Fates != (world.Fates{}) {
		t.Errorf("as usual: %+v, want nothing to befall frames", usual.Fates)
	}
	o.Conditions = scenarios.Conditions{Loss: 0.05, Duplicates: 0.04, Reordering: 0.03}
	f, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		n    uint64
		want float64
	}{"lost": {f.Fates.Lost, 0.05}, "twice": {f.Fates.Twice, 0.04}, "late": {f.Fates.Late, 0.03}} {
		if got := float64(c.n) / float64(f.Messages); got < 0.8*c.want || got > 1.2*c.want {
			t.Errorf("%s: %.3f of the frames, want about %.2f", what, got, c.want)
		}
	}
}

// Clocks are off by what the conditions say, and edges count by one time all the
// same, unless they are kept from correcting their clocks.
func TestClocksAreOff(t *testing.T) {
	for _, uncorrected := range []bool{false, true} {
		o := options(t, "under-50")
		o.Conditions = scenarios.Conditions{ClockOffset: 50 * time.Millisecond, Uncorrected: uncorrected}
		r, err := newRun(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.advance(0); err != nil {
			t.Fatal(err)
		}
		raw, counted := spread{}, spread{}
		for _, name := range r.edges {
			at := r.w.NowAt(name)
			raw.add(at.Sub(r.w.Now()))
			counted.add(at.Add(r.w.Node(name).Stats(at).ClockCorrection).Sub(r.w.Now()))
		}
		if raw.width() < 40*time.Millisecond || raw.width() > 100*time.Millisecond {
			t.Errorf("clocks are %v apart", raw.width())
		}
		switch {
		case !uncorrected && counted.width() > 20*time.Millisecond:
			t.Errorf("edges count by times that are %v apart", counted.width())
		case uncorrected && counted.width() < 40*time.Millisecond:
			t.Errorf("clocks that are not to be corrected are %v apart after it", counted.width())
		}
	}
}

type spread struct {
	least, most time.Duration
	any         bool
}

func (s *spread) add(x time.Duration) {
	if !s.any {
		s.least, s.most, s.any = x, x, true
	}
	s.least, s.most = min(s.least, x), max(s.most, x)
}

func (s *spread) width() time.Duration { return s.most - s.least }

// Each condition is felt, and runs repeat themselves under it.
func TestEachConditionIsFelt(t *testing.T) {
	t.Parallel()
	usual := options(t, "steady-2x")
	usual.Consistency = "adaptive"
	before, err := Run(usual)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]scenarios.Conditions{
		"interval":   {Interval: 250 * time.Millisecond},
		"one way":    {OneWay: 300 * time.Millisecond},
		"jitter":     {Jitter: -1},
		"processing": {Processing: 2 * time.Millisecond},
		"costs":      {Costs: 5},
		"rates":      {Rates: 3},
		"crashes":    {CrashEvery: 3 * time.Second},
		"churn":      {ChurnEvery: 3 * time.Second},
		"at once":    {Retry: scenarios.AtOnce},
		"after":      {Retry: scenarios.AfterWait},
		"surge":      {Surge: 2},
	} {
		o := usual
		o.Conditions = c
		first, err := Run(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := Run(o)
		if err != nil {
			t.Fatal(err)
		}
		if first.Trace == before.Trace || first != again {
			t.Errorf("%s: %+v, then %+v; as usual %+v", name, first, again, before)
		}
		switch retries := c.Retry != ""; {
		case retries && first.Requests < before.Requests*3/2, !retries && c.Costs == 0 && first.Requests != before.Requests:
			t.Errorf("%s: %d requests, as usual %d", name, first.Requests, before.Requests)
		case c.Costs > 0 && first.Requests > before.Requests*2/3:
			t.Errorf("%s: %d requests, as usual %d: costs are not counted", name, first.Requests, before.Requests)
		}
	}
}

func TestBadConditions(t *testing.T) {
	for name, c := range map[string]scenarios.Conditions{
		"interval": {Interval: time.Millisecond}, "one way": {OneWay: time.Second}, "uncorrected": {Uncorrected: true},
		"loss": {Loss: 1}, "rates": {Rates: 2}, "retry": {Retry: "soon"}, "both": {CrashEvery: time.Second, ChurnEvery: time.Second}, "surge": {Surge: 1},
	} {
		o := options(t, "under-50")
		o.Conditions = c
		if _, err := Run(o); err == nil {
			t.Errorf("%s: %+v is taken", name, c)
		}
	}
}
