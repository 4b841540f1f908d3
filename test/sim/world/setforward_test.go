package world

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/test/clocks"
)

// An edge whose region answers counts by its clock, whatever the machine's is set to: nobody
// is free a moment before it is time, and a penalty lasts no longer.
func TestMachineOfAnEdgeThatIsAnswered(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub windows": {Limit: 10, Per: 10 * time.Second},
		"log":         {Algorithm: "sliding_log", Limit: 10, Per: 10 * time.Second},
		"first hit":   {Algorithm: "fixed_window", Align: "first_hit", Limit: 10, Per: 10 * time.Second},
		"slots":       {Algorithm: "concurrency", Limit: 10, Lease: 10 * time.Second},
		"at the edge": {Limit: 10, Per: 10 * time.Second, Scope: "edge"},
		"penalty":     {Limit: 10, Per: 10 * time.Second},
	} {
		for _, set := range []time.Duration{0, -30 * time.Second, 30 * time.Second, time.Hour, -time.Hour} {
			t.Run(fmt.Sprint(name, ", ", set), func(t *testing.T) {
				m := clocks.Begin()
				p := &pair{t: t, now: time.Unix(0, m.True(0))}
				p.restart(regional.Config{}, memstore.Config{})
				docs := rules(spec)
				if name == "penalty" {
					docs[0].Rules[0].Penalty.For = 10 * time.Second
				}
				n := p.nodeOf("e", docs...)
				admitted, last, longest := 0, time.Duration(0), time.Duration(0)
				for d := time.Duration(0); d < 40*time.Second; d += 10 * time.Millisecond {
					if d == 5*time.Second+50*time.Millisecond {
						m.Set = set
					}
					p.now = time.Unix(0, m.True(d))
					now := m.After(d)
					if d%(100*time.Millisecond) == 0 {
						for _, o := range n.Flush(now) {
							if reply := p.agg.Handle(context.Background(), p.now, o.Subject, o.Payload); reply == nil || n.Receive(now, o.Lane, reply) != nil {
								n.Lost(now, o.Lane, o.Seq)
							}
						}
						n.Tick(now)
					}
					if d > 3*time.Second && hit(n, now, "u").Allowed {
						if admitted++; d < 12700*time.Millisecond && admitted > 10 {
							t.Fatalf("%v in %d are admitted of 10 in 10 s", d, admitted)
						}
						longest, last = max(longest, d-last), d
					}
				}
				if longest > 11500*time.Millisecond || admitted < 30 {
					t.Errorf("%d are admitted in 37 s, none for up to %v", admitted, longest)
				}
			})
		}
	}
}

// TestPenaltyOfAnEdgeThatWasSetForwardAlone: what it gave while no region answered is told once
// its clock is right, and so keeps out for as long as its rule says, here and elsewhere.
func TestPenaltyOfAnEdgeThatWasSetForwardAlone(t *testing.T) {
	const offends, back = 73 * time.Second, 75 * time.Second
	for name, c := range map[string]struct {
		until time.Duration                           // it is answered
		set   func(d, by time.Duration) time.Duration // what its machine shows besides
	}{
		"never answered":  {0, func(d, by time.Duration) time.Duration { return from(offends-time.Second, d, by) }},
		"answered before": {time.Second, func(d, by time.Duration) time.Duration { return from(offends-time.Second, d, by) }},
		"since its start": {0, func(_, by time.Duration) time.Duration { return by }},
		"and back a little, and forward": {time.Second, func(d, by time.Duration) time.Duration {
			return from(62*time.Second, d, by) - from(66*time.Second, d, 5*time.Minute) + from(70*time.Second, d, 2*time.Second)
		}},
	} {
		for _, by := range []time.Duration{0, 30 * time.Minute, 10 * time.Hour} {
			t.Run(fmt.Sprint(name, ", ", by), func(t *testing.T) {
				m := clocks.Begin()
				p := &pair{t: t, now: time.Unix(0, m.True(0))}
				p.restart(regional.Config{}, memstore.Config{})
				docs := rules(limit.RateSpec{Limit: 10, Per: 10 * time.Second})
				docs[0].Rules[0].Penalty.For = 10 * time.Second
				m.Set = c.set(0, by)
				n, other := p.nodeOf("e", docs...), p.nodeOf("o", docs...)
				told, first := false, [2]time.Duration{}
				for d := time.Duration(0); d < 3*time.Minute && min(first[0], first[1]) == 0; d += 100 * time.Millisecond {
					m.Set = c.set(d, by)
					p.now = time.Unix(0, m.True(d))
					now := m.After(d)
					if d == offends {
						for range 20 {
							hit(n, now, "u")
						}
					}
					if d < c.until || d > back {
						for _, o := range n.Flush(now) {
							if reply := p.agg.Handle(context.Background(), p.now, o.Subject, o.Payload); reply == nil || n.Receive(now, o.Lane, reply) != nil {
								n.Lost(now, o.Lane, o.Seq)
							}
						}
					}
					n.Tick(now)
					p.pump(other, 0)
					if d < back || d%(2*time.Second) != 0 {
						continue
					}
					here, there := hit(n, now, "u").Allowed, hit(other, p.now, "u").Allowed
					if here && first[0] == 0 {
						first[0] = d - back
					}
					switch {
					case !there:
						told = true
					case told && first[1] == 0:
						first[1] = d - back
					}
				}
				if !told || first[0] == 0 || first[1] == 0 || max(first[0], first[1]) > 13*time.Second {
					t.Errorf("the first are admitted %v after the region is back, told %v; want after some 10 s", first, told)
				}
			})
		}
	}
}

// from is by how much from an instant on, and nothing before.
func from(at, d, by time.Duration) time.Duration {
	if d < at {
		return 0
	}
	return by
}

// What an edge gave whose clock is ahead from its start, before its region's first answer, is
// told with the next frame, by the right clock.
func TestPenaltyBeforeTheFirstAnswer(t *testing.T) {
	m := clocks.Begin()
	p := &pair{t: t, now: time.Unix(0, m.True(0))}
	p.restart(regional.Config{}, memstore.Config{})
	docs := rules(limit.RateSpec{Limit: 10, Per: 10 * time.Second})
	docs[0].Rules[0].Penalty.For = 10 * time.Second
	m.Set = time.Hour
	n, other := p.nodeOf("e", docs...), p.nodeOf("o", docs...)
	for range 20 {
		hit(n, m.After(0), "u")
	}
	told, over := time.Duration(0), time.Duration(0)
	for d := time.Duration(0); d < time.Minute && over == 0; d += 50 * time.Millisecond {
		p.now = time.Unix(0, m.True(d))
		now := m.After(d)
		for _, o := range n.Flush(now) {
			if reply := p.agg.Handle(context.Background(), p.now, o.Subject, o.Payload); reply == nil || n.Receive(now, o.Lane, reply) != nil {
				n.Lost(now, o.Lane, o.Seq)
			}
		}
		n.Tick(now)
		p.pump(other, 0)
		switch allowed := hit(other, p.now, "u").Allowed; {
		case !allowed && told == 0:
			told = d
		case allowed && told != 0:
			over = d
		}
	}
	if told == 0 || told > time.Second || over < 9*time.Second || over > 13*time.Second {
		t.Errorf("the other edge denies from %v to %v, want it to for some 10 s, and soon", told, over)
	}
}
