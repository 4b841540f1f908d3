// Package scenarios says what is asked of a simulated cluster to see how
// accurate it is: demand by region and time, and faults, as data.
package scenarios

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed scenarios.yaml
var text []byte

// Scenario is one of them.
type Scenario struct {
	Name   string   `yaml:"name"`
	About  string   `yaml:"about"`
	Lasts  Span     `yaml:"lasts"`
	Keys   int      `yaml:"keys"` // 0: one
	Zipf   float64  `yaml:"zipf"` // exponent of their popularity; 1.1
	Home   float64  `yaml:"home"` // part of a key's requests that come where it is at home; 0: evenly
	Demand []Demand `yaml:"demand"`
	Faults []Fault  `yaml:"faults"`
}

// Span is a time: so many windows, but Least at the least, or so many seconds.
type Span struct {
	Windows float64       `yaml:"windows"`
	Seconds float64       `yaml:"seconds"`
	Least   time.Duration `yaml:"least"`
}

// Of is how long the span is for a window.
func (s Span) Of(window time.Duration) time.Duration {
	return max(s.Least, time.Duration(s.Windows*float64(window)), time.Duration(s.Seconds*float64(time.Second)))
}

// Demand is a stream of requests.
type Demand struct {
	Rate   float64 `yaml:"rate"`  // times limit over window
	Burst  float64 `yaml:"burst"` // times the limit, Every so often
	Where  Where   `yaml:"where"`
	Every  Span    `yaml:"every"`
	Within Span    `yaml:"within"` // of a burst
	From   Span    `yaml:"from"`
	Until  Span    `yaml:"until"` // zero: the end
}

// Where is which edges a demand is at.
type Where string

// The places; see scenarios.yaml.
const (
	All    Where = "all"
	One    Where = "one"
	Others Where = "others"
	Moving Where = "moving"
	Half   Where = "half"
	Home   Where = "home"
	Random Where = "random"
)

var places = []Where{All, One, Others, Moving, Half, Home, Random}

// Fault befalls a region, which is named by its place, from 1.
type Fault struct {
	Cut     int  `yaml:"cut"`     // it is cut off from the others
	Restart int  `yaml:"restart"` // its aggregator is down, and its store wiped
	From    Span `yaml:"from"`
	For     Span `yaml:"for"`
}

// Load is all scenarios, in their order.
func Load() ([]Scenario, error) { return parse(text) }

// Named is the scenario of a name.
func Named(name string) (Scenario, error) {
	list, err := Load()
	if err != nil {
		return Scenario{}, err
	}
	i := slices.IndexFunc(list, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, fmt.Errorf("no scenario is called %q; -list names them", name)
	}
	return list[i], nil
}

func parse(text []byte) ([]Scenario, error) {
	var file struct {
		Scenarios []Scenario `yaml:"scenarios"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file); err != nil {
		return nil, fmt.Errorf("scenarios: %w", err)
	}
	for i := range file.Scenarios {
		if err := file.Scenarios[i].check(); err != nil {
			return nil, fmt.Errorf("scenario %q: %w", file.Scenarios[i].Name, err)
		}
	}
	return file.Scenarios, nil
}

// check refuses what would silently be something else.
func (s *Scenario) check() error {
	switch {
	case s.Name == "" || s.About == "":
		return errors.New("it wants a name, and words about it")
	case s.Lasts == Span{}:
		return errors.New("lasts is missing")
	case len(s.Demand) == 0:
		return errors.New("nothing is asked")
	case s.Keys < 2 && (s.Zipf != 0 || s.Home != 0):
		return errors.New("zipf and home are of several keys")
	case s.Zipf < 0 || s.Home < 0 || s.Home > 1:
		return errors.New("zipf wants to be above 0, home a part")
	}
	for i := range s.Demand {
		d := &s.Demand[i]
		if d.Where == "" {
			d.Where = All
		}
		switch changes := d.Where == Moving || d.Where == Half || d.Burst > 0; {
		case !slices.Contains(places, d.Where):
			return fmt.Errorf("demand %d: where: %q is none of %v", i+1, d.Where, places)
		case (d.Rate > 0) == (d.Burst > 0):
			return fmt.Errorf("demand %d: want a rate or a burst, one of them", i+1)
		case changes != (d.Every != Span{}):
			return fmt.Errorf("demand %d: every goes with moving, half and bursts", i+1)
		case d.Burst > 0 && d.Within == Span{}:
			return fmt.Errorf("demand %d: a burst wants to know within what time it comes", i+1)
		case (d.Where == Random || d.Where == Home) && d.Burst == 0:
			return fmt.Errorf("demand %d: %s is for bursts", i+1, d.Where)
		}
	}
	for i, f := range s.Faults {
		if (f.Cut > 0) == (f.Restart > 0) || f.For == (Span{}) {
			return fmt.Errorf("fault %d: want a cut or a restart, of a region, for some time", i+1)
		}
	}
	return nil
}
