package accuracy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/spillgate/spillgate/test/sim/measure"
	"github.com/spillgate/spillgate/test/sim/scenarios"
)

//go:embed rows.yaml
var text []byte

// section is a part of the table.
type section struct {
	Title string `yaml:"title"`
	About string `yaml:"about"`
	Rows  []row  `yaml:"rows"`

	Strategies []string `yaml:"strategies"` // none: all

	// In place of rows: the first of each of these, under each of these conditions,
	// and how many times as far from perfect they may be.
	ID     string                 `yaml:"id"`
	Of     []string               `yaml:"of"`
	Under  []scenarios.Conditions `yaml:"under"`
	Within float64                `yaml:"within"`
}

// row is one scenario at one limit, and its targets. What is nil has none.
type row struct {
	ID         string               `yaml:"id"`
	Scenario   string               `yaml:"scenario"`
	Limit      scenarios.Limit      `yaml:"limit"`
	Regions    int                  `yaml:"regions"`
	Edges      int                  `yaml:"edges"`
	Conditions scenarios.Conditions `yaml:"conditions"`

	Over   *float64 `yaml:"over"`
	More   *float64 `yaml:"more"`
	Util   *float64 `yaml:"util"`
	WD     *float64 `yaml:"wd"`
	Above  *float64 `yaml:"above"`
	Denied *float64 `yaml:"denied"`
	Naive  float64  `yaml:"naive"`
	Strict *float64 `yaml:"strict"`

	of       string // the row that this is one of, under other conditions
	scenario scenarios.Scenario
}

// load is all sections with their rows.
func load(text []byte) ([]section, error) {
	var file struct {
		Sections []section `yaml:"sections"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file); err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	first := map[string]row{}
	for i := range file.Sections {
		s := &file.Sections[i]
		for j := range s.Rows {
			r := &s.Rows[j]
			if err := r.check(); err != nil {
				return nil, fmt.Errorf("rows: %q, row %d: %w", s.Title, j+1, err)
			}
			if _, ok := first[r.ID]; !ok {
				first[r.ID] = *r
			}
		}
		for _, c := range s.Under {
			for _, id := range s.Of {
				r, ok := first[id]
				if err := c.Check(); err != nil || !ok || s.Within < 1 {
					return nil, fmt.Errorf("rows: %q: %s: want a row above, good conditions (%w), and within of 1 or more", s.Title, id, err)
				}
				s.Rows = append(s.Rows, r.within(s.ID, s.Within, c))
			}
		}
	}
	return file.Sections, nil
}

func (r *row) check() (err error) {
	if r.scenario, err = scenarios.Named(r.Scenario); err != nil {
		return err
	}
	if r.Limit.Limit == 0 {
		return errors.New("limit is missing, such as 100/1s")
	}
	if r.Regions == 0 && r.Edges == 0 {
		r.Regions, r.Edges = 5, 2
	}
	return r.Conditions.Check()
}

// within is the row under other conditions, which may be so many times as far from
// what is perfect.
func (r row) within(id string, times float64, c scenarios.Conditions) row {
	wider := func(target *float64, perfect float64) *float64 {
		if target == nil {
			return nil
		}
		x := perfect + (*target-perfect)*times
		return &x
	}
	r.ID, r.of, r.Conditions, r.Naive, r.Strict = id, r.ID, c, 0, nil
	r.Over, r.Util, r.WD = wider(r.Over, 0), wider(r.Util, 100), wider(r.WD, 0)
	return r
}

// strategies are those that the section has, of all.
func (s *section) strategies() []string {
	return slices.DeleteFunc(strategies(), func(name string) bool { return len(s.Strategies) > 0 && !slices.Contains(s.Strategies, name) })
}

// options are what is measured for a row.
func (r *row) options(o Options, strategy string, seed uint64) measure.Options {
	return measure.Options{
		Scenario: r.scenario, Conditions: r.Conditions, Limit: r.Limit.Limit, Window: r.Limit.Window,
		Regions: r.Regions, Edges: r.Edges, Consistency: strategy, Algorithm: o.Algorithm, Seed: seed,
	}
}

// numbers are those of the rows, each once: what -rows knows.
func numbers(all []section) (out []string) {
	for _, s := range all {
		for _, r := range s.Rows {
			if !slices.Contains(out, r.ID) {
				out = append(out, r.ID)
			}
		}
	}
	return out
}

// wanted keeps the rows that are asked for; all where none is. A18 is none of a
// scenario.
func wanted(all []section, only []string) (out []section, a18 bool, err error) {
	if len(only) == 0 {
		return all, true, nil
	}
	found := map[string]bool{"A18": true}
	for _, s := range all {
		s.Rows = slices.DeleteFunc(slices.Clone(s.Rows), func(r row) bool {
			found[r.ID] = true
			return !slices.Contains(only, r.ID)
		})
		if len(s.Rows) > 0 {
			out = append(out, s)
		}
	}
	for _, id := range only {
		if !found[id] || id == "" {
			return nil, false, fmt.Errorf("no row is called %q; there are %s, and A18 of -accuracy", id, strings.Join(numbers(all), ", "))
		}
	}
	return out, slices.Contains(only, "A18"), nil
}
