package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/spillgate/spillgate/test/sim/capacity"
)

// paper is what is asked of the capacity paper. What is 0 is as in the table of
// 3, 20 and 50 regions.
type paper struct {
	wanted      bool
	rps         float64
	keys        int
	window      time.Duration
	slices      int
	lanes       int
	aggregators int
	targets     string
}

// paperFlags are those that only -capacity has.
var paperFlags = []string{"rps", "keys", "window", "slices", "lanes", "aggregators", "targets"}

func (p *paper) flags(f *flag.FlagSet) {
	f.BoolVar(&p.wanted, "capacity", false, "print what a fleet sends, merges and holds: 3, 20 and 50 regions, or -regions")
	f.Float64Var(&p.rps, "rps", 0, "of -capacity: requests a second of each edge")
	f.IntVar(&p.keys, "keys", 0, "of -capacity: active keys of the fleet")
	f.DurationVar(&p.window, "window", 0, "of -capacity: of every key's limit (1m0s); its number stands in -limit (60000/1m0s)")
	f.IntVar(&p.slices, "slices", 0, "of -capacity: in a window (40)")
	f.IntVar(&p.lanes, "lanes", 0, "of -capacity: in a region (8)")
	f.IntVar(&p.aggregators, "aggregators", 0, "of -capacity: of a region (2)")
	f.StringVar(&p.targets, "targets", "", "of -capacity: mesh | homes (two a key); as aggregators do it, homes above 8 regions")
}

// plans are the fleets that are asked for; set says which flags were given.
func (o *options) plans(set map[string]bool) []capacity.Plan {
	sizes := []int{3, 20, 50}
	if set["regions"] {
		sizes = []int{o.measured.regions}
	}
	var out []capacity.Plan
	for _, regions := range sizes {
		p := capacity.Default(regions)
		if set["limit"] {
			p.Limit, p.Window = float64(o.measured.rate.Limit), o.measured.rate.Window
		}
		if set["edges"] {
			p.Edges = o.measured.edges
		}
		for name, take := range map[string]func(){
			"rps":         func() { p.RPS = o.paper.rps },
			"keys":        func() { p.Keys = o.paper.keys },
			"window":      func() { p.Window = o.paper.window },
			"slices":      func() { p.Slices = o.paper.slices },
			"lanes":       func() { p.Lanes = o.paper.lanes },
			"aggregators": func() { p.Aggregators = o.paper.aggregators },
			"targets":     func() { p.Targets = o.paper.targets },
		} {
			if set[name] {
				take()
			}
		}
		out = append(out, p)
	}
	return out
}

// printCapacity prints what the fleets come to.
func printCapacity(o options, stdout io.Writer) error {
	var all []capacity.Envelope
	for _, p := range o.fleets {
		e, err := capacity.Of(p, capacity.Measured())
		if err != nil {
			return fmt.Errorf("capacity: %w", err)
		}
		all = append(all, e)
	}
	if o.output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"envelopes": all, "costs": capacity.Measured(), "sources": capacity.Sources})
	}
	return capacity.Print(stdout, all)
}
