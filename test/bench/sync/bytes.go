package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// The regions whose bytes are counted: as busy as a PoP is, with a few keys that
// many ask for and many that few do.
const (
	regionsOf = 3
	edgesOf   = 4
	perEdge   = 2000 // requests a second
	keysOf    = 20_000
	skew      = 1.1
	lanesOf   = 8
	hotFrom   = 20 // slices of others in a reply
)

// traffic is what went over the wire.
type traffic struct {
	frames, keys     int // of edges, and keys in them
	up, down         int // bytes of these frames, and of the replies
	heads            int // of up: the frames without keys
	hotKeys, hotDown int // keys of replies that were looked at and are hot, and their bytes
	all              uint64

	// Of the keys: those that are told again against loss, their
	// slices, and those that are only asked about.
	again, againCells, asked int
	parts                    parts

	hot map[deltasync.Key]bool // others had counts in most slices, as some reply said
}

// They are those of adaptive limits, the default, and of loose ones beside them.
func measureBytes(o options, f *findings) error {
	return errors.Join(f.traffic.measure(o, "adaptive"), f.loose.measure(o, "loose"))
}

func (of *traffic) measure(o options, consistency string) error {
	t := traffic{hot: map[deltasync.Key]bool{}}
	var failed error
	counting := false
	cfg := world.Config{
		Start: time.Unix(1_790_000_000, 0).UTC(), Lanes: lanesOf,
		Rules: []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{
			Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 600, Per: time.Minute, Consistency: consistency}},
		}}}},
		Watch: world.Watch{OnDown: func(_ *world.Server, up, down []byte) {
			if failed == nil {
				failed = t.add(up, down)
			}
			if !counting {
				t = traffic{hot: t.hot}
			}
		}},
	}
	for r := range regionsOf {
		region := world.Region{Name: fmt.Sprint("region-", r)}
		for e := range edgesOf {
			region.Edges = append(region.Edges, fmt.Sprintf("edge-%d-%d", r, e))
		}
		cfg.Regions = append(cfg.Regions, region)
	}
	w, err := world.New(cfg)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	keys := rand.NewZipf(rnd, skew, 1, keysOf-1)
	ask := func(lasts time.Duration) {
		for until := w.Now().Add(lasts); ; {
			next := w.Now().Add(time.Duration(rnd.ExpFloat64() / (perEdge * regionsOf * edgesOf) * float64(time.Second)))
			if next.After(until) {
				w.Advance(until)
				return
			}
			w.Advance(next)
			n := w.Node(w.Edges()[rnd.IntN(len(w.Edges()))])
			req := n.Rules().Only().NewRequest()
			req.Set("user", fmt.Sprint("user-", keys.Uint64()))
			n.Check(w.Now(), req)
			req.Release()
			w.Touch()
		}
	}
	ask(time.Minute) // a window
	_, before := w.Sent()
	counting = true
	ask(o.lasts)
	_, after := w.Sent()
	t.all = after - before
	if failed == nil && (t.keys == 0 || t.hotKeys == 0) {
		failed = fmt.Errorf("nothing was counted: %+v", t)
	}
	*of = t
	return failed
}

// parts is where the bytes of keys went, of frames that were looked at: each is
// what a frame is shorter without it.
type parts struct{ looked, heard, flags, demand, cells, names int }

// add takes a frame apart.
func (p *parts) add(u *deltasync.Up) error {
	var err error
	size := func() int {
		b, wrong := u.AppendBinary(nil)
		err = errors.Join(err, wrong)
		return len(b)
	}
	each := func(change func(*deltasync.Delta)) {
		for i := range u.Sections {
			for j := range u.Sections[i].Deltas {
				change(&u.Sections[i].Deltas[j])
			}
		}
	}
	each(func(*deltasync.Delta) { p.looked++ })
	at := size()
	for _, part := range []struct {
		bytes  *int
		remove func()
	}{
		{&p.heard, func() { each(func(d *deltasync.Delta) { d.Heard = 0 }) }},
		{&p.flags, func() { each(func(d *deltasync.Delta) { d.Flags = 0 }) }},
		{&p.demand, func() { each(func(d *deltasync.Delta) { d.Demand = nil }) }},
		{&p.cells, func() { each(func(d *deltasync.Delta) { d.Cells = nil }) }},
		{&p.names, func() {
			for i := range u.Sections {
				u.Sections[i].Deltas = nil
			}
		}},
	} {
		part.remove()
		left := size()
		*part.bytes += at - left
		at = left
	}
	return err
}

// count notes what a key is told for.
func (t *traffic) count(d *deltasync.Delta) {
	switch {
	case !d.Tells():
		t.asked++
	case d.Flags&deltasync.FlagRefresh != 0:
		t.again++
		t.againCells += len(d.Cells)
	}
}

// add counts a frame of an edge and its reply.
func (t *traffic) add(up, down []byte) error {
	var u deltasync.Up
	var d deltasync.Down
	if err := errors.Join(u.UnmarshalBinary(up), d.UnmarshalBinary(down)); err != nil {
		return err
	}
	if u.Kind != deltasync.KindEdge {
		return nil
	}
	t.frames++
	t.up += len(up)
	t.down += len(down)
	var keys []deltasync.Key
	for i := range u.Sections {
		for j := range u.Sections[i].Deltas {
			keys = append(keys, u.Sections[i].Deltas[j].Key)
			t.count(&u.Sections[i].Deltas[j])
		}
	}
	t.keys += len(keys)
	if t.frames%16 == 0 {
		if err := t.parts.add(&u); err != nil {
			return err
		}
	}
	for i := range u.Sections {
		u.Sections[i].Deltas = nil
	}
	head, err := u.AppendBinary(nil)
	if err != nil {
		return err
	}
	t.heads += len(head)
	totals := d.Totals
	for i := range totals {
		if len(totals[i].Others)+len(totals[i].Peers) >= 2*hotFrom {
			t.hot[keys[i]] = true
		}
	}
	if t.frames%16 != 0 { // a part of them is looked at more closely
		return nil
	}
	d.Totals = nil
	empty, err := d.AppendBinary(nil)
	if err != nil {
		return err
	}
	for i := range totals {
		if !t.hot[keys[i]] {
			continue
		}
		d.Totals = totals[i : i+1]
		one, err := d.AppendBinary(nil)
		if err != nil {
			return err
		}
		t.hotKeys++
		t.hotDown += len(one) - len(empty)
	}
	return nil
}
