package scenarios

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Conditions are those under which a scenario is run. What is zero is as usual.
type Conditions struct {
	Interval    time.Duration `yaml:"interval"`     // T, how often parts tell each other: 100 ms
	OneWay      time.Duration `yaml:"one_way"`      // between two regions: 80 ms
	Jitter      float64       `yaml:"jitter"`       // mean, as a part of the delay: 0.1; below 0: none
	ClockOffset time.Duration `yaml:"clock_offset"` // each clock is off by up to so much, either way
	Uncorrected bool          `yaml:"uncorrected"`  // and stays so
	Loss        float64       `yaml:"loss"`         // part of the frames that are lost
	Duplicates  float64       `yaml:"duplicates"`   // that arrive twice
	Reordering  float64       `yaml:"reordering"`   // that take three times the delay
	Processing  time.Duration `yaml:"processing"`   // of a frame by an aggregator, one after the other
	Costs       int           `yaml:"costs"`        // of a request, evenly from 1 to this; so fewer requests come
	Rates       int           `yaml:"rates"`        // of the rule: 1, or 3, of longer windows too
	CrashEvery  time.Duration `yaml:"crash_every"`  // an edge crashes, and starts at once
	ChurnEvery  time.Duration `yaml:"churn_every"`  // an edge leaves, and joins again as much later
	Retry       Retry         `yaml:"retry"`        // of who is denied, up to three times
	Surge       float64       `yaml:"surge"`        // F of the rate, where it is adaptive: 10
	Budget      int64         `yaml:"budget"`       // of an edge, bytes a second, replies included
	StrictWait  time.Duration `yaml:"strict_wait"`  // for which requests wait for rights, where the limit is strict
	OnPartition string        `yaml:"on_partition"` // of the rate, where it is adaptive: its share
}

// Retry is when a client that was denied asks again.
type Retry string

// The ways to retry.
const (
	NoRetry    Retry = ""
	AtOnce     Retry = "at-once"
	AfterWait  Retry = "after" // the Retry-After that it was told
	MostTries        = 3       // on top of the first
	mostOffset       = 500 * time.Millisecond
)

// Usual is the conditions with what is zero filled in.
func (c Conditions) Usual() Conditions {
	if c.Interval == 0 {
		c.Interval = 100 * time.Millisecond
	}
	if c.OneWay == 0 {
		c.OneWay = 80 * time.Millisecond
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = 0.1
	case c.Jitter < 0:
		c.Jitter = 0
	}
	c.Costs, c.Rates = max(1, c.Costs), max(1, c.Rates)
	return c
}

// Check refuses what would not be what it says.
func (c Conditions) Check() error {
	part := func(x float64) bool { return x >= 0 && x <= 0.5 }
	switch {
	case c.Interval != 0 && (c.Interval < 20*time.Millisecond || c.Interval > time.Second):
		return fmt.Errorf("interval %v: want 20ms to 1s", c.Interval)
	case c.OneWay < 0 || c.OneWay > 450*time.Millisecond:
		return fmt.Errorf("one way %v: want 450ms at the most, for frames there and back are given up after a second", c.OneWay)
	case !(c.Jitter <= 1):
		return fmt.Errorf("jitter %v: want a part of the delay, 1 at the most", c.Jitter)
	case c.ClockOffset < 0 || c.ClockOffset > mostOffset:
		return fmt.Errorf("clock offset %v: want 0 to %v", c.ClockOffset, mostOffset)
	case c.Uncorrected && c.ClockOffset == 0:
		return errors.New("no correction of clocks that are right: want a clock offset too")
	case !part(c.Loss) || !part(c.Duplicates) || !part(c.Reordering):
		return fmt.Errorf("loss %v, duplicates %v, reordering %v: want parts of the frames, a half at the most", c.Loss, c.Duplicates, c.Reordering)
	case c.Processing < 0 || c.Processing > 100*time.Millisecond:
		return fmt.Errorf("processing %v: want 0 to 100ms", c.Processing)
	case c.Costs < 0 || c.Costs > 1000:
		return fmt.Errorf("costs to %d: want 1000 at the most", c.Costs)
	case c.Rates != 0 && c.Rates != 1 && c.Rates != 3:
		return fmt.Errorf("%d rates: want 1 or 3", c.Rates)
	case c.CrashEvery < 0 || c.ChurnEvery < 0 || c.CrashEvery > 0 && c.CrashEvery < time.Second || c.ChurnEvery > 0 && c.ChurnEvery < time.Second:
		return errors.New("crashes and departures: one a second at the most")
	case c.CrashEvery > 0 && c.ChurnEvery > 0:
		return errors.New("crashes or departures: one of them")
	case c.Retry != NoRetry && c.Retry != AtOnce && c.Retry != AfterWait:
		return fmt.Errorf("retry %q: want %s or %s", c.Retry, AtOnce, AfterWait)
	case c.Budget < 0:
		return fmt.Errorf("budget %d: want bytes a second", c.Budget)
	case c.StrictWait != 0 && (c.StrictWait < limit.LeastStrictWait || c.StrictWait > limit.MostStrictWait):
		return fmt.Errorf("strict wait %v: want %v to %v", c.StrictWait, limit.LeastStrictWait, limit.MostStrictWait)
	case c.OnPartition != "" && c.OnPartition != "open" && c.OnPartition != "closed":
		return fmt.Errorf("on_partition %q: want open or closed, or none for shares", c.OnPartition)
	case c.Surge != 0 && !(c.Surge >= 2):
		return fmt.Errorf("surge %v: want 2 or more", c.Surge)
	}
	return nil
}
