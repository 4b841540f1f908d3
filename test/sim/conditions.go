package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// conditionFlags are the names of what conditions adds.
var conditionFlags = []string{
	"interval", "one-way", "jitter", "clock-offset", "clock-correction", "loss", "duplicates", "reordering", "processing",
	"costs", "rates", "crash-every", "churn-every", "retry", "surge", "budget", "strict-wait", "on-partition",
}

// conditions adds the flags that say under which conditions a scenario is run.
func conditions(flags *flag.FlagSet, c *scenarios.Conditions) {
	flags.DurationVar(&c.Interval, "interval", 0, "of a scenario: how often parts tell each other (100ms)")
	flags.DurationVar(&c.OneWay, "one-way", 0, "of a scenario: the way between two regions (80ms)")
	flags.Func("jitter", "of a scenario: mean of what ways take on top, as a part of them (10%)", func(s string) error {
		err := part(&c.Jitter)(s)
		if c.Jitter == 0 {
			c.Jitter = -1 // 0 is as usual
		}
		return err
	})
	flags.DurationVar(&c.ClockOffset, "clock-offset", 0, "of a scenario: how far clocks are off at the most, such as 50ms")
	flags.BoolFunc("clock-correction", "of a scenario: =false leaves them so", func(s string) error {
		corrected, err := strconv.ParseBool(s)
		c.Uncorrected = !corrected
		return err
	})
	flags.Func("loss", "of a scenario: part of the frames that are lost, such as 5%", part(&c.Loss))
	flags.Func("duplicates", "of a scenario: part of the frames that arrive twice", part(&c.Duplicates))
	flags.Func("reordering", "of a scenario: part of the frames that take three times the way", part(&c.Reordering))
	flags.DurationVar(&c.Processing, "processing", 0, "of a scenario: of a frame by an aggregator, one after the other, such as 1ms")
	flags.IntVar(&c.Costs, "costs", 0, "of a scenario: requests cost from 1 to this")
	flags.IntVar(&c.Rates, "rates", 0, "of a scenario: 3, with three of the limit in four windows, and six in ten")
	flags.DurationVar(&c.CrashEvery, "crash-every", 0, "of a scenario: how often an edge crashes, and starts anew")
	flags.DurationVar(&c.ChurnEvery, "churn-every", 0, "of a scenario: how often an edge leaves, to join again as much later")
	flags.Func("retry", "of a scenario: who is denied asks again, up to three times: at-once | after (its Retry-After)", func(s string) error {
		c.Retry = scenarios.Retry(s)
		return nil
	})
	flags.Float64Var(&c.Surge, "surge", 0, "of a scenario: of its limit, where it is adaptive (10)")
	flags.Int64Var(&c.Budget, "budget", 0, "of a scenario: of an edge, bytes a second, replies included")
	flags.DurationVar(&c.StrictWait, "strict-wait", 0, "of a scenario: for how long requests wait for rights, where it is strict, such as 200ms")
	flags.StringVar(&c.OnPartition, "on-partition", "", "of a scenario: what its limit does at edges that are cut off, where it is adaptive: open | closed (shares are kept)")
}

// part reads "5%", or 0.05.
func part(to *float64) func(string) error {
	return func(s string) error {
		number, percent := strings.CutSuffix(s, "%")
		x, err := strconv.ParseFloat(number, 64)
		if percent {
			x /= 100
		}
		if err != nil || !(x >= 0 && x <= 1) {
			return fmt.Errorf("%q: want a part, such as 5%%", s)
		}
		*to = x
		return nil
	}
}
