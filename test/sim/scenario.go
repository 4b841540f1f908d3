package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/spillgate/spillgate/test/sim/measure"
	"github.com/spillgate/spillgate/test/sim/scenarios"
	"github.com/spillgate/spillgate/test/sim/trial"
)

// measured is what is asked of a scenario.
type measured struct {
	rate           scenarios.Limit
	regions, edges int
	consistency    string
	algorithm      string // "": sub_windows
	conditions     scenarios.Conditions
}

// idle refuses conditions that the limit would not heed, as it is of another consistency.
func (m *measured) idle() error {
	for _, c := range []struct {
		flag  string
		given bool
		of    string
	}{
		{"strict-wait", m.conditions.StrictWait != 0, "strict"},
		{"surge", m.conditions.Surge != 0, "adaptive"},
		{"on-partition", m.conditions.OnPartition != "", "adaptive"},
	} {
		if c.given && m.consistency != c.of {
			return fmt.Errorf("-%s: it does nothing where the limit is %s; want -consistency %s with it", c.flag, m.consistency, c.of)
		}
	}
	return nil
}

// figures are what a scenario's seeds came to, as parts of one.
type figures struct {
	Scenario    string `json:"scenario"`
	Limit       string `json:"limit"`
	Consistency string `json:"consistency"`
	Algorithm   string `json:"algorithm"`
	Seeds       uint64 `json:"seeds"`
	Over        spread `json:"over"`    // the most admitted in any window, above the limit
	Util        spread `json:"util"`    // admitted, of what an exact log admits
	WD          spread `json:"wd"`      // free places refused, of what an exact log admits
	Excess      spread `json:"excess"`  // cost admitted above the limit, of all that was asked for
	Refused     spread `json:"refused"` // cost wrongly denied, likewise
	Messages    spread `json:"messages"`
	Bytes       spread `json:"bytes"`
	Requests    spread `json:"requests"`
	Waited      spread `json:"waited"`      // requests that waited for rights and passed, of all
	WaitMedian  spread `json:"wait_median"` // for so many seconds
	WaitWorst   spread `json:"wait_worst"`
}

// spread is the worst and the mean of the seeds; worst is the largest, of util
// the smallest.
type spread struct {
	Worst float64 `json:"worst"`
	Mean  float64 `json:"mean"`
}

func list(stdout io.Writer) error {
	all, err := scenarios.Load()
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "scenarios, for -scenario:")
	for _, s := range all {
		fmt.Fprintf(stdout, "  %-13s %s\n", s.Name, s.About)
	}
	fmt.Fprintln(stdout, "conditions, for any of them:")
	described := flag.NewFlagSet("", flag.ContinueOnError)
	conditions(described, &scenarios.Conditions{})
	for _, name := range conditionFlags {
		fmt.Fprintf(stdout, "  -%-17s %s\n", name, strings.TrimPrefix(described.Lookup(name).Usage, "of a scenario: "))
	}
	fmt.Fprintln(stdout, "kinds of faults, for -without and -only:")
	for _, f := range trial.Faults {
		fmt.Fprintf(stdout, "  %s\n", f)
	}
	return nil
}

// scenario measures one.
func scenario(o options, stdout io.Writer) error {
	s, err := scenarios.Named(o.scenario)
	switch {
	case err != nil:
		return err
	case measure.Knows(o.measured.consistency) != nil:
		return fmt.Errorf("-consistency %q: %w; want loose, naive, adaptive or strict", o.measured.consistency, measure.Knows(o.measured.consistency))
	case o.measured.regions < 2 || o.measured.regions > 50 || o.measured.edges < 1 || o.measured.edges > 50:
		return fmt.Errorf("-regions %d -edges %d: want 2 to 50 regions of 1 to 50 edges", o.measured.regions, o.measured.edges)
	}
	if err := o.measured.idle(); err != nil {
		return err
	}
	seeds := max(1, o.seeds)
	f := figures{Scenario: s.Name, Limit: o.measured.rate.String(), Consistency: o.measured.consistency, Algorithm: cmp.Or(o.measured.algorithm, "sub_windows"), Seeds: seeds}
	for seed := range seeds {
		r, err := measure.Run(measure.Options{
			Scenario: s, Limit: o.measured.rate.Limit, Window: o.measured.rate.Window,
			Regions: o.measured.regions, Edges: o.measured.edges, Seed: o.Seed + seed, Consistency: o.measured.consistency, Algorithm: o.measured.algorithm, Conditions: o.measured.conditions,
		})
		if err != nil {
			return fmt.Errorf("seed %d: %w", o.Seed+seed, err)
		}
		add := func(s *spread, x float64, worse bool) {
			if s.Mean += x / float64(seeds); worse || seed == 0 {
				s.Worst = x
			}
		}
		add(&f.Over, r.Over, r.Over > f.Over.Worst)
		add(&f.Util, r.Util, r.Util < f.Util.Worst)
		add(&f.WD, r.Wrong, r.Wrong > f.WD.Worst)
		for to, n := range map[*spread]float64{&f.Excess: r.Excess, &f.Refused: r.Refused, &f.Messages: float64(r.Messages), &f.Bytes: float64(r.Bytes), &f.Requests: float64(r.Requests),
			&f.Waited: r.Waited, &f.WaitMedian: r.WaitMedian.Seconds(), &f.WaitWorst: r.WaitWorst.Seconds()} {
			add(to, n, n > to.Worst)
		}
	}
	if o.output == "json" {
		return json.NewEncoder(stdout).Encode(f)
	}
	_, err = fmt.Fprintf(stdout, "%s at %s, %s, %s, %d regions of %d edges, %d seeds\n  over    %6.1f %% worst, %.1f mean\n  util    %6.1f %% worst, %.1f mean\n  wd      %6.1f %% worst, %.1f mean\n  of a million asked for %.0f above the limit, %.0f wrongly denied\n  %.0f requests, %.0f messages, %.0f bytes a seed\n",
		s.Name, f.Limit, f.Algorithm, f.Consistency, o.measured.regions, o.measured.edges, seeds,
		100*f.Over.Worst, 100*f.Over.Mean, 100*f.Util.Worst, 100*f.Util.Mean, 100*f.WD.Worst, 100*f.WD.Mean, 1e6*f.Excess.Mean, 1e6*f.Refused.Mean, f.Requests.Mean, f.Messages.Mean, f.Bytes.Mean)
	if err == nil && o.measured.conditions.StrictWait > 0 {
		_, err = fmt.Fprintf(stdout, "  %.1f %% of them waited for rights and passed, for %.0f ms in the median, %.0f ms at the most\n",
			100*f.Waited.Mean, 1e3*f.WaitMedian.Mean, 1e3*f.WaitWorst.Worst)
	}
	return err
}
