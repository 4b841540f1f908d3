package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// edgeCost is what an edge and its aggregator pay for a key that changed, by how
// many slices of it others have counts in.
type edgeCost struct {
	slices                 int
	flush, handle, receive float64 // ns of processor
}

// elsewhere are the numbers of slices, judged the one that targets are held
// against.
var elsewhere = []int{0, judged, 40}

const judged = 5

// pair is an edge and its aggregator.
type pair struct {
	*edge.Node
	hub  *regional.Aggregator
	now  time.Time
	reqs []*limit.Request
	// flush, handle and receive are what each took of a processor so far.
	flush, handle, receive time.Duration
	told                   int
}

func newPair(keys, slices int) (*pair, error) {
	p := &pair{now: time.Unix(1_790_000_000, 0).UTC()}
	var err error
	if p.Node, err = edge.New(edge.Config{Region: "eu", Pop: "fra", Name: "bench", Secret: []byte("a secret for benchmarks"), Lanes: 1}); err != nil {
		return nil, err
	}
	set, problems := limit.Compile(limit.Document{Namespace: "bench", Rules: []limit.RuleSpec{{
		Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1e9, Per: time.Hour}},
	}}})
	if len(problems) > 0 {
		return nil, problems[0]
	}
	if err := p.SetRules(set); err != nil {
		return nil, err
	}
	store := memstore.New(memstore.Config{Now: func() time.Time { return p.now }})
	if p.hub, err = regional.New(regional.Config{Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1}, store); err != nil {
		return nil, err
	}
	for i := range keys {
		req := p.Rules().Only().NewRequest()
		req.Set("user", fmt.Sprintf("user-%08d", i))
		p.reqs = append(p.reqs, req)
	}
	if err := p.round(); err != nil { // the aggregator hears of the keys, and we of their names
		return nil, err
	}
	return p, p.other(slices)
}

// other has another edge tell counts of all keys, in the latest slices.
func (p *pair) other(slices int) error {
	if slices == 0 {
		return nil
	}
	var shape deltasync.Shape
	var deltas []deltasync.Delta
	for _, req := range p.reqs {
		b := p.Inspect(p.now, req)[0]
		shape = deltasync.Shape{Generation: b.Rate.Generation, Width: b.Rate.Width, Slices: b.Rate.Span, Limit: b.Rate.Limit}
		d := deltasync.Delta{Key: b.Key}
		for i := range slices {
			d.Cells = append(d.Cells, crdt.Cell{Slice: b.Rate.SliceAt(p.now.UnixNano()) - crdt.Slice(slices-1-i), Charges: 7})
		}
		deltas = append(deltas, d)
	}
	for seq := uint64(1); len(deltas) > 0; seq++ {
		n := min(200, len(deltas))
		if _, err := tell(p.hub, p.now, "e2", seq, shape, deltas[:n]); err != nil {
			return err
		}
		deltas = deltas[n:]
	}
	return nil
}

// round charges every key once, and exchanges what changed, as many keys at a
// time as a frame has when its reply is to fit.
func (p *pair) round() error {
	for reqs := p.reqs; len(reqs) > 0; {
		n := min(perFrame, len(reqs))
		p.now = p.now.Add(time.Second) // what changed by little is told once a second
		for _, req := range reqs[:n] {
			if !p.Check(p.now, req).Allowed {
				return fmt.Errorf("a key is at its limit")
			}
		}
		if err := p.exchange(); err != nil {
			return err
		}
		reqs = reqs[n:]
	}
	return nil
}

func (p *pair) exchange() error {
	for {
		at := processor()
		out := p.Flush(p.now)
		p.flush += processor() - at
		if len(out) == 0 {
			return nil
		}
		for _, o := range out {
			at := processor()
			reply := p.hub.Handle(context.Background(), p.now, o.Subject, o.Payload)
			p.handle += processor() - at
			at = processor()
			err := p.Receive(p.now, o.Lane, reply)
			p.receive += processor() - at
			if err != nil {
				return err
			}
			var u deltasync.Up
			if err := u.UnmarshalBinary(o.Payload); err != nil {
				return err
			}
			for i := range u.Sections {
				p.told += len(u.Sections[i].Deltas)
			}
		}
	}
}

func measureEdge(o options, f *findings) error {
	pairs := make([]*pair, len(elsewhere))
	samples := make([][3][]float64, len(elsewhere))
	for i, slices := range elsewhere {
		var err error
		if pairs[i], err = newPair(o.keys, slices); err != nil {
			return err
		}
		if err := pairs[i].round(); err != nil { // it hears of the other edge
			return err
		}
	}
	for range o.rounds {
		for i, p := range pairs {
			p.flush, p.handle, p.receive, p.told = 0, 0, 0, 0
			if err := p.round(); err != nil {
				return err
			}
			if p.told != o.keys {
				return fmt.Errorf("told of %d keys, want each of %d once", p.told, o.keys)
			}
			for k, d := range []time.Duration{p.flush, p.handle, p.receive} {
				samples[i][k] = append(samples[i][k], float64(d)/float64(p.told))
			}
		}
	}
	for i, s := range samples {
		f.edge = append(f.edge, edgeCost{elsewhere[i], median(s[0]), median(s[1]), median(s[2])})
	}
	return nil
}

// tell has an aggregator take a frame of an edge, and is how many bytes its
// reply has.
func tell(hub *regional.Aggregator, now time.Time, name string, seq uint64, shape deltasync.Shape, deltas []deltasync.Delta) (reply int, err error) {
	subject, payload, err := frame(now, name, seq, shape, deltas)
	if err != nil {
		return 0, err
	}
	answer := hub.Handle(context.Background(), now, subject, payload)
	var d deltasync.Down
	if err := d.UnmarshalBinary(answer); err != nil {
		return 0, fmt.Errorf("the aggregator's reply: %w", err)
	}
	if d.Status != deltasync.StatusOK {
		return 0, fmt.Errorf("the aggregator answers %s", d.Status)
	}
	return len(answer), nil
}

// frame is a frame of an edge.
func frame(now time.Time, name string, seq uint64, shape deltasync.Shape, deltas []deltasync.Delta) (subject string, payload []byte, err error) {
	up := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "eu", Pop: "fra", Name: name, Node: deltasync.NodeID("eu", "fra", name),
		Incarnation: 1, Lanes: 1, Seq: seq, SentAt: now.UnixNano(), Sections: []deltasync.Section{{Shape: shape, Deltas: deltas}},
	}
	payload, err = up.AppendBinary(nil)
	return deltasync.EdgeSubject("eu", 0, "fra", name), payload, err
}
