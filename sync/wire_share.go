package deltasync

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// floats are numbers of a column, one a key. A key without them has nil.
type floats struct {
	n  int
	at func(i int) *float32
}

// floats appends the column, unless it is all zero.
func (w *writer) floats(num protowire.Number, name string, f floats) error {
	some := false
	for i := range f.n {
		v := f.at(i)
		if v == nil {
			continue
		}
		if err := checkFloat(*v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		some = some || *v != 0
	}
	if !some {
		return nil
	}
	at := w.open(num)
	for i := range f.n {
		v := float32(0)
		if p := f.at(i); p != nil {
			v = *p
		}
		w.b = protowire.AppendFixed32(w.b, math.Float32bits(v))
	}
	w.close(at)
	return nil
}

// maxFloat is above every demand that can be counted in a window.
const maxFloat = 1 << 64

func checkFloat(v float32) error {
	if !(v >= 0 && v <= maxFloat) { // NaN too
		return fmt.Errorf("%v, want 0 to 2^64", v)
	}
	return nil
}

// readFloats hands out the numbers that are not zero; an absent column has none.
func readFloats(c *column, name string, n int, set func(i int, v float32)) error {
	switch {
	case !c.set:
		return nil
	case len(c.b) != 4*n:
		return fmt.Errorf("%s: %d bytes for %d keys", name, len(c.b), n)
	}
	for i := range n {
		v := math.Float32frombits(binary.LittleEndian.Uint32(c.b[4*i:]))
		if err := checkFloat(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if v != 0 {
			set(i, v)
		}
	}
	return nil
}

// demandField is a column of Demand, and where it stands.
type demandField struct {
	num  protowire.Number
	name string
	of   func(*Demand) *float32
}

var demandFields = [...]demandField{
	{sectionDemandFast, "demand_fast", func(d *Demand) *float32 { return &d.Fast }},
	{sectionDemandMid, "demand_mid", func(d *Demand) *float32 { return &d.Mid }},
	{sectionDemandSlow, "demand_slow", func(d *Demand) *float32 { return &d.Slow }},
	{sectionDemandWindow, "demand_window", func(d *Demand) *float32 { return &d.Window }},
	{sectionDemandKept, "demand_kept", func(d *Demand) *float32 { return &d.Kept }},
	{sectionDemandSince, "demand_since", func(d *Demand) *float32 { return &d.Since }},
	{sectionKeptSpent, "demand_kept_spent", func(d *Demand) *float32 { return &d.KeptSpent }},
}

// demandsBefore are the columns of demands whose numbers are less than that of heard.
const demandsBefore = len(demandFields) - 3

// demandSize is what a demand takes, and demandHead what its columns take beside.
const (
	demandSize = 4 * len(demandFields)
	demandHead = columnHead * len(demandFields)
)

// demands writes the columns whose numbers are less than that of heard, or the others.
func (w *writer) demands(deltas []Delta, fields []demandField) error {
	some := false
	for i := range deltas {
		some = some || deltas[i].Demand != nil
	}
	if !some {
		return nil
	}
	for _, f := range fields {
		if err := w.floats(f.num, f.name, floats{len(deltas), func(i int) *float32 {
			if deltas[i].Demand == nil {
				return nil
			}
			return f.of(deltas[i].Demand)
		}}); err != nil {
			return err
		}
	}
	return nil
}

// demandColumns is demands as they stand on the wire.
type demandColumns [len(demandFields)]column

// take takes the message's field if it is one of them.
func (c *demandColumns) take(m *message) {
	for k, f := range demandFields {
		if f.num == m.num {
			m.column(f.name, &c[k])
		}
	}
}

func (c *demandColumns) read(deltas []Delta) error {
	var room []Demand
	for k, f := range demandFields {
		if err := readFloats(&c[k], f.name, len(deltas), func(i int, v float32) {
			if deltas[i].Demand == nil {
				if room == nil {
					room = make([]Demand, len(deltas))
				}
				deltas[i].Demand = &room[i]
			}
			*f.of(deltas[i].Demand) = v
		}); err != nil {
			return err
		}
	}
	return nil
}

// shareField is a column of Share, and where it stands: of numbers or of costs.
type shareField struct {
	num  protowire.Number
	name string
	of   func(*Share) *float32
	cost func(*Share) *uint64
}

// before and behind are the columns of shares by their place in Totals: those whose
// numbers are less than that of until, and those whose numbers are above all others.
var (
	before = []shareField{
		{totalsOmega, "omega", func(s *Share) *float32 { return &s.Omega }, nil},
		{totalsDemandSum, "demand_sum", func(s *Share) *float32 { return &s.Sum }, nil},
		{totalsDemandWindow, "demand_window", func(s *Share) *float32 { return &s.Window }, nil},
	}
	behind = []shareField{
		{totalsUnseen, "unseen", nil, func(s *Share) *uint64 { return &s.Unseen }},
		{totalsDemand, "demand", func(s *Share) *float32 { return &s.Demand }, nil},
		{totalsKept, "kept", nil, func(s *Share) *uint64 { return &s.Kept }},
		{totalsDoubt, "doubt", nil, func(s *Share) *uint64 { return &s.Doubt }},
		{totalsSpent, "spent", nil, func(s *Share) *uint64 { return &s.Spent }},
	}
	shareFields = append(slices.Clone(before), behind...)
)

// sharesOf is the shares of n totals, nil where one has none; and nil where none has.
func sharesOf(n int, at func(i int) *Totals) []*Share {
	var all []*Share
	for i := range n {
		if s := at(i).Share; s != nil {
			if all == nil {
				all = make([]*Share, n)
			}
			all[i] = s
		}
	}
	return all
}

// shares appends columns of shares, each unless it is all zero.
func (w *writer) shares(all []*Share, fields []shareField) error {
	if all == nil {
		return nil
	}
	for _, f := range fields {
		if f.cost != nil {
			w.costs(f.num, all, f.cost)
			continue
		}
		if err := w.floats(f.num, f.name, floats{len(all), func(i int) *float32 {
			if all[i] == nil {
				return nil
			}
			return f.of(all[i])
		}}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) costs(num protowire.Number, all []*Share, of func(*Share) *uint64) {
	if !slices.ContainsFunc(all, func(s *Share) bool { return s != nil && *of(s) != 0 }) {
		return
	}
	at := w.open(num)
	for _, s := range all {
		v := uint64(0)
		if s != nil {
			v = *of(s)
		}
		w.b = protowire.AppendVarint(w.b, v)
	}
	w.close(at)
}

// shareHead is what the columns of shares take beside their elements.
const shareHead = columnHead * 8

// shareSize is what a share takes in them, or the zeros of a key without one.
func shareSize(s *Share) int {
	if s == nil {
		s = &Share{}
	}
	return 4*4 + protowire.SizeVarint(s.Unseen) + protowire.SizeVarint(s.Kept) + protowire.SizeVarint(s.Doubt) + protowire.SizeVarint(s.Spent)
}

// shareColumns is shares as they stand on the wire.
type shareColumns [8]column

// take takes the message's field if it is one of them.
func (c *shareColumns) take(m *message) {
	for k, f := range shareFields {
		switch {
		case f.num != m.num:
		case f.cost != nil:
			m.varints(f.name, &c[k])
		default:
			m.column(f.name, &c[k])
		}
	}
}

func (c *shareColumns) read(n int, at func(i int) *Totals) error {
	var room []Share
	share := func(i int) *Share {
		t := at(i)
		if t.Share == nil {
			if room == nil {
				room = make([]Share, n)
			}
			t.Share = &room[i]
		}
		return t.Share
	}
	for k, f := range shareFields {
		if f.cost == nil {
			if err := readFloats(&c[k], f.name, n, func(i int, v float32) { *f.of(share(i)) = v }); err != nil {
				return err
			}
			continue
		}
		if !c[k].set {
			continue
		}
		if c[k].len() != n {
			return fmt.Errorf("%s: %d of them for %d keys", f.name, c[k].len(), n)
		}
		for i := range n {
			v, ok := c[k].next()
			if !ok {
				return fmt.Errorf("%s: %w", f.name, errCut)
			}
			if v != 0 {
				*f.cost(share(i)) = v
			}
		}
	}
	return nil
}
