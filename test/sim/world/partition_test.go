package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A region of five is cut off from the others while twice the limit is asked for
// everywhere, or one of its two edges from everybody: what is admitted there and on the
// other side, a second, is what on_partition says. After the heal all is as before.
func TestOnPartition(t *testing.T) {
	t.Parallel()
	type span struct{ least, most uint64 }
	for _, c := range []struct {
		consistency, what string
		region            [2]span // in the region that is cut off, and in the four others
		edge              [2]span // at the edge that is cut off, and at the nine others
	}{
		{"adaptive", "share", [2]span{{14, 28}, {65, 105}}, [2]span{{6, 16}, {70, 112}}},
		{"adaptive", "open", [2]span{{38, 40}, {75, 112}}, [2]span{{19, 20}, {70, 112}}},
		{"adaptive", "closed", [2]span{{0, 0}, {65, 105}}, [2]span{{0, 0}, {70, 112}}},
		{"loose", "open", [2]span{{38, 40}, {90, 140}}, [2]span{{19, 20}, {70, 145}}},
		{"loose", "closed", [2]span{{0, 0}, {90, 140}}, [2]span{{0, 0}, {70, 145}}},
	} {
		t.Run(c.consistency+" "+c.what, func(t *testing.T) {
			spec := limit.RateSpec{Limit: 100, Per: time.Second, Consistency: c.consistency, OnPartition: c.what}
			for _, cut := range []struct {
				name string
				cut  func(*World, bool)
				want [2]span
			}{
				{"r0", func(w *World, cut bool) { w.Cut("r0", cut) }, c.region},
				{"r0-0", func(w *World, cut bool) { w.CutPath("r0-0", "r0", cut); w.CutPath("r0", "r0-0", cut) }, c.edge},
			} {
				w := wide(t, 5, 2, spec)
				demand := func(seconds int) (inside, outside uint64) {
					from := w.Now()
					for i := range 200 * seconds {
						w.Advance(from.Add(time.Duration(i) * 5 * time.Millisecond))
						name := w.Edges()[i*7%10]
						switch {
						case !ask(w, name, 1).Allowed:
						case name == cut.name || name[:2] == cut.name:
							inside++
						default:
							outside++
						}
					}
					return inside, outside
				}
				demand(4)
				cut.cut(w, true)
				demand(3)
				inside, outside := demand(4)
				if in, out := inside/4, outside/4; in < cut.want[0].least || in > cut.want[0].most || out < cut.want[1].least || out > cut.want[1].most {
					t.Errorf("%s cut off: %d a second admitted there and %d elsewhere, want %+v", cut.name, in, out, cut.want)
				}
				cut.cut(w, false)
				demand(3)
				if inside, outside = demand(4); inside == 0 || (inside+outside)/4 > 130 || (inside+outside)/4 < 80 {
					t.Errorf("%s healed: %d a second admitted there and %d elsewhere", cut.name, inside/4, outside/4)
				}
			}
		})
	}
}

// All ten edges start while none hears of its region, and are asked for twice the limit:
// as many as they are told there are, they admit about the limit together; else each
// admits all of it.
func TestStartsCutOff(t *testing.T) {
	for expects, want := range map[bool][2]uint64{true: {70, 105}, false: {190, 200}} {
		spec := limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"}
		w := wideOf(t, 5, 2, func(cfg *Config) { cfg.Expects = expects }, spec)
		cut := func(cut bool) {
			for _, name := range w.Edges() {
				region := w.Site(name).Region
				w.CutPath(name, region, cut)
				w.CutPath(region, name, cut)
			}
		}
		cut(true)
		second := func() (admitted uint64) {
			from := w.Now()
			for i := range 200 {
				w.Advance(from.Add(time.Duration(i) * 5 * time.Millisecond))
				if ask(w, w.Edges()[i*7%10], 1).Allowed {
					admitted++
				}
			}
			return admitted
		}
		for i := range 4 {
			if got := second(); got < want[0] || got > want[1] {
				t.Errorf("told of the others %v: %d of 100 admitted in second %d, want %d to %d", expects, got, i, want[0], want[1])
			}
		}
		cut(false)
		for range 4 {
			second()
		}
		if got := second(); got < 75 || got > 115 {
			t.Errorf("told of the others %v: %d of 100 admitted after the cut", expects, got)
		}
	}
}
