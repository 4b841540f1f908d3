package capacity_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/capacity"
	"github.com/spillgate/spillgate/test/sim/world"
)

// seen is what a World sent, a second.
type seen struct {
	messages, bytes float64 // all that was
	up, upBytes     float64 // frames of edges
	entries         float64 // in them
	downBytes       float64 // of replies to them
	exports         float64 // frames between regions
	exportBytes     float64
	exportKeys      float64
	replyBytes      float64 // of replies to these
	merges          float64 // slices in all frames
}

// run asks a World as a plan says, and watches it for a while once it has
// settled.
func run(t *testing.T, p capacity.Plan, lasts time.Duration) seen {
	t.Helper()
	var s seen
	counting := false
	cfg := world.Config{
		Start: time.Unix(1_790_000_000, 0).UTC(), Lanes: p.Lanes, Interval: p.Interval, Urgent: p.Urgent,
		EdgeDelay: p.EdgeRTT / 2, RegionDelay: p.RegionRTT / 2, Aggregators: 1, Targets: regional.Targets(p.Targets),
		Rules: []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{
			Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: uint64(p.Limit), Per: p.Window, Slices: p.Slices, Consistency: "loose"}},
		}}}},
		Watch: world.Watch{OnDown: func(_ *world.Server, up, down []byte) {
			if !counting {
				return
			}
			var u deltasync.Up
			if err := u.UnmarshalBinary(up); err != nil {
				t.Fatal(err)
			}
			keys := 0
			for i := range u.Sections {
				keys += len(u.Sections[i].Deltas)
				for j := range u.Sections[i].Deltas {
					s.merges += float64(len(u.Sections[i].Deltas[j].Cells))
				}
			}
			if u.Kind == deltasync.KindRegion {
				s.exports++
				s.exportKeys += float64(keys)
				s.exportBytes += float64(len(up))
				s.replyBytes += float64(len(down))
				return
			}
			s.up++
			s.entries += float64(keys)
			s.upBytes += float64(len(up))
			s.downBytes += float64(len(down))
		}},
	}
	for r := range p.Regions {
		region := world.Region{Name: fmt.Sprint("region-", r)}
		for e := range p.Edges {
			region.Edges = append(region.Edges, fmt.Sprintf("edge-%d-%d", r, e))
		}
		cfg.Regions = append(cfg.Regions, region)
	}
	w, err := world.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	keys := rand.NewZipf(rnd, p.Skew, 1, uint64(p.Keys-1))
	ask := func(until time.Time) {
		for rate := p.RPS * float64(len(w.Edges())); ; {
			next := w.Now().Add(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
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
	ask(w.Now().Add(p.Window * 3 / 2))
	messages, bytes := w.Sent()
	counting = true
	ask(w.Now().Add(lasts))
	m, b := w.Sent()
	s.messages, s.bytes = float64(m-messages), float64(b-bytes)
	for _, f := range []*float64{&s.messages, &s.bytes, &s.up, &s.upBytes, &s.entries, &s.downBytes, &s.exports, &s.exportBytes, &s.exportKeys, &s.replyBytes, &s.merges} {
		*f /= lasts.Seconds()
	}
	return s
}

// figure is one that both have.
type figure struct {
	name        string
	paper, seen float64
}

// off is by how much the paper is wrong; what hardly happens is not compared.
func (f *figure) off() float64 {
	least := 1.0
	if strings.HasPrefix(f.name, "bytes") {
		least = 100 // a push or a frame
	}
	if f.paper < least && f.seen < least {
		return 0
	}
	return f.paper/max(1e-9, f.seen) - 1
}

// figures are what the paper says of what a World was seen to do.
func figures(t *testing.T, p capacity.Plan, c capacity.Costs, s seen) []figure {
	t.Helper()
	e, err := capacity.Of(p, c)
	if err != nil {
		t.Fatal(err)
	}
	regions := float64(p.Regions)
	edges := regions * float64(p.Edges)
	return []figure{
		{"messages", edges*(2*e.Edge.Frames+e.Edge.Pushes) + 2*regions*e.Region.Frames, s.messages},
		{"bytes", edges*(e.Edge.Up+e.Edge.Down) + regions*e.Region.Egress, s.bytes},
		{"frames of edges", edges * e.Edge.Frames, s.up},
		{"entries of edges", edges * e.Edge.Entries, s.entries},
		{"bytes up", edges * e.Edge.Up, s.upBytes},
		{"bytes down", edges * (e.Edge.Down - e.Edge.PushBytes), s.downBytes},
		{"frames of exports", regions * e.Region.Frames, s.exports},
		{"keys exported", regions * e.Region.Exports, s.exportKeys},
		{"pushes heard", edges * e.Edge.Pushes, s.messages - 2*s.up - 2*s.exports},
		{"bytes of pushes", edges * e.Edge.PushBytes, s.bytes - s.upBytes - s.downBytes - s.exportBytes - s.replyBytes},
		{"merges", regions * e.Region.Merges, s.merges},
		{"bytes between regions", regions * e.Region.Egress, s.exportBytes + s.replyBytes},
	}
}

// TestWorld holds the paper against what real edges and aggregators send on a
// simulated quiet network.
func TestWorld(t *testing.T) {
	worlds := map[string]seen{}
	for name, p := range plans() {
		t.Run(name, func(t *testing.T) {
			s := run(t, p, 40*time.Second)
			worlds[name] = s
			all := figures(t, p, capacity.Measured(), s)
			for _, f := range all {
				t.Logf("%-22s paper %9.1f, seen %9.1f a second: %+.0f %%", f.name, f.paper, f.seen, 100*f.off())
			}
			for _, what := range wrong(all) {
				t.Error(what)
			}
		})
	}
	t.Run("tells what is 30 % off", func(t *testing.T) { tells(t, worlds) })
}

// wrong are the figures that are further off than is allowed.
func wrong(figures []figure) (out []string) {
	for _, f := range figures {
		if math.Abs(f.off()) > 0.15 {
			out = append(out, fmt.Sprintf("%s: the paper says %.1f, it is %.1f", f.name, f.paper, f.seen))
		}
	}
	return out
}

// tells shows that the comparisons would tell what is 30 % off.
func tells(t *testing.T, worlds map[string]seen) {
	t.Helper()
	for name, spoil := range map[string]func(p *capacity.Plan, c *capacity.Costs, by float64){
		"head of frames":  func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.UpHead *= by },
		"section":         func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.Section *= by },
		"a key":           func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.Key *= by },
		"a slice":         func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.Cell *= by },
		"head of replies": func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.DownHead *= by },
		"a key's reply":   func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.ReplyKey *= by },
		"head of pushes":  func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.PushHead *= by },
		"a pushed key":    func(_ *capacity.Plan, c *capacity.Costs, by float64) { c.PushKey *= by },
		"requests":        func(p *capacity.Plan, _ *capacity.Costs, by float64) { p.RPS *= by },
		"skew":            func(p *capacity.Plan, _ *capacity.Costs, by float64) { p.Skew *= by },
		// Only keys that are new or told again have all their slices told: by is too
		// little to be seen in a figure, and twice that is.
		"slices": func(p *capacity.Plan, _ *capacity.Costs, by float64) { p.Slices = int(float64(p.Slices) * by * by) },
	} {
		for _, by := range []float64{0.7, 1.3} {
			var bad []string
			for world, p := range plans() {
				c := capacity.Measured()
				spoil(&p, &c, by)
				bad = append(bad, wrong(figures(t, p, c, worlds[world]))...)
				bad = append(bad, wrong(wire(t, c))...)
			}
			if len(bad) == 0 {
				t.Errorf("%s times %v: no figure tells", name, by)
			}
		}
	}
}

func plans() map[string]capacity.Plan {
	small := capacity.Default(2)
	small.Apart = 0 // all start at once
	small.Edges, small.RPS, small.Keys, small.Lanes = 2, 60, 400, 1
	small.Window, small.Limit = 20*time.Second, 20_000
	busy := small
	busy.Regions, busy.Edges, busy.RPS, busy.Lanes, busy.Limit = 3, 4, 40, 2, 3000
	short := small
	short.Window, short.Limit = 10*time.Second, 5000
	full := busy
	full.RPS, full.Limit = 20, 400
	dense := small
	dense.Edges, dense.RPS, dense.Keys, dense.Limit = 3, 900, 4000, 200_000
	pair := small // of homes, for five regions
	pair.Regions, pair.Edges, pair.RPS, pair.Targets = 5, 2, 40, capacity.Homes
	pairBusy := busy
	pairBusy.Regions, pairBusy.Edges, pairBusy.RPS, pairBusy.Targets = 4, 3, 40, capacity.Homes
	pairFull := pairBusy
	pairFull.RPS, pairFull.Limit = 20, 400
	return map[string]capacity.Plan{"dense": dense, "full": full, "cold": small, "pressing": busy, "short window": short,
		"homes, cold": pair, "homes, pressing": pairBusy, "homes, full": pairFull}
}
