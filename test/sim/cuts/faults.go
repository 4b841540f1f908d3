package cuts

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/test/sim/world"
)

// happen has something happen.
func (l *life) happen() {
	switch l.rnd.IntN(14) {
	case 0, 1, 2:
		l.cutRegion()
	case 3:
		l.cutPair()
	case 4:
		l.healRegions()
	case 5, 6:
		l.restart()
	case 7:
		l.store()
	case 8:
		l.edge()
	case 9:
		l.among()
	case 10:
		l.flap()
	case 11:
		l.roll()
	default:
		l.move()
	}
}

// ways names a cut by what is cut off of it: 1 what it hears, 2 what is heard of it.
var ways = []string{"healed", "deaf", "mute", "cut off"}

// cutRegion has one region hear nobody, be heard by nobody, or both, or heals it.
func (l *life) cutRegion() {
	r, way := l.any(), l.rnd.IntN(4)
	l.note("%s is %s", r, ways[way])
	for _, other := range l.regions {
		if other != r {
			l.w.CutPath(other, r, way&1 != 0)
			l.w.CutPath(r, other, way&2 != 0)
		}
	}
}

// cutPair is cutRegion of two from each other.
func (l *life) cutPair() {
	r, other, way := l.any(), l.any(), l.rnd.IntN(4)
	if r != other {
		l.note("%s is %s for %s", r, ways[way], other)
		l.w.CutPath(other, r, way&1 != 0)
		l.w.CutPath(r, other, way&2 != 0)
	}
}

// flap has a region be cut off from all or another, and heard again, some times; beside a cut
// that stays, or not.
func (l *life) flap() {
	if l.rnd.IntN(2) == 0 {
		l.cutPair()
	}
	r, others, way := l.any(), l.regions, 1+l.rnd.IntN(3)
	if l.rnd.IntN(2) == 0 {
		others = []string{l.any()}
	}
	off, on := l.while(200*time.Millisecond, 5*time.Second), l.while(200*time.Millisecond, 3*time.Second)
	l.note("%s is %s for %v, for %v, heard for %v, and so on", r, ways[way], others, off, on)
	for range 2 + l.rnd.IntN(4) {
		for _, cut := range []bool{true, false} {
			for _, other := range others {
				if other != r {
					l.w.CutPath(other, r, cut && way&1 != 0)
					l.w.CutPath(r, other, cut && way&2 != 0)
				}
			}
			lasts := on
			if cut {
				lasts = off
			}
			l.pass(lasts)
		}
	}
}

// while is a time between two.
func (l *life) while(least, most time.Duration) time.Duration {
	return least + time.Duration(l.rnd.Int64N(int64(most-least)))
}

// roll replaces the aggregators of a region, or of all, in good order.
func (l *life) roll() {
	regions := l.regions
	if l.rnd.IntN(2) == 0 {
		regions = []string{l.any()}
	}
	l.note("the aggregators of %v are replaced, one after the other", regions)
	for i := range l.servers {
		for _, r := range regions {
			l.replace(l.w.Servers(r)[i])
		}
		l.pass(l.while(300*time.Millisecond, 3*time.Second))
	}
}

func (l *life) healRegions() {
	l.note("no region is cut off")
	for _, r := range l.regions {
		for _, other := range l.regions {
			if r != other {
				l.w.CutPath(r, other, false)
			}
		}
	}
}

// restart starts aggregators of a region anew, killed or by taking their leave.
func (l *life) restart() {
	r := l.any()
	for _, v := range l.w.Servers(r) {
		switch l.rnd.IntN(3) {
		case 0:
			l.note("%s is killed, and started", v.Name)
			l.w.Stop(v)
			l.start(v)
		case 1:
			l.replace(v)
		}
	}
}

func (l *life) start(v *world.Server) {
	if err := l.w.Start(v); err != nil {
		panic(err) // it ran before, by the same configuration
	}
}

// replace has an aggregator that runs take its leave, and start anew.
func (l *life) replace(v *world.Server) {
	if v.Aggregator() == nil || l.w.Leaves(v) {
		return
	}
	l.note("%s takes its leave, and is started", v.Name)
	l.w.Leave(v)
	if err := l.w.Return(v); err != nil {
		panic(err) // likewise
	}
}

// store has that of a region be away, deaf, fail over or be wiped, or be back.
func (l *life) store() {
	r := l.any()
	s := l.w.Store(r)
	switch l.rnd.IntN(4) {
	case 0:
		l.note("the store of %s is away", r)
		s.Set(world.StoreDown)
	case 1:
		l.note("the store of %s fails over", r)
		if err := s.FailOver(2 * time.Second); err != nil {
			panic(err)
		}
	default:
		l.note("the store of %s is there", r)
		s.Set(world.StoreUp)
	}
}

// edge cuts an edge off from its region, one way or both, or kills it.
func (l *life) edge() {
	r := l.any()
	e, way := fmt.Sprintf("%s-%d", r, l.rnd.IntN(2)), l.rnd.IntN(4)
	if way == 0 {
		l.note("%s is killed, and started", e)
		if err := l.w.Crash(e); err != nil {
			panic(err)
		}
		return
	}
	l.note("%s is %s", e, ways[way])
	l.w.CutPath(r, e, way&1 != 0)
	l.w.CutPath(e, r, way&2 != 0)
	l.alone[e] = start.Add(time.Hour)
	l.undo = append(l.undo, func() {
		l.w.CutPath(r, e, false)
		l.w.CutPath(e, r, false)
		l.alone[e] = l.w.Now().Add(time.Second)
	})
}

// among keeps the aggregators of a region from hearing each other, or heals that, and
// edges.
func (l *life) among() {
	if r := l.any(); l.servers > 1 && l.rnd.IntN(2) == 0 {
		v := l.w.Servers(r)
		l.note("%s does not hear %s", v[1].Name, v[0].Name)
		l.w.Split(v[0], v[1], true)
		l.undo = append(l.undo, func() { l.w.Split(v[0], v[1], false) })
		return
	}
	l.mend()
}

// mend heals what ails edges, and aggregators among each other.
func (l *life) mend() {
	l.note("no edge is cut off")
	for _, undo := range l.undo {
		undo()
	}
	l.undo = nil
}

// heal ends all faults, and demands that within a window and a few seconds the limit is
// used, by who asks for it.
func (l *life) heal() {
	l.mend()
	l.healRegions()
	for _, r := range l.regions {
		l.w.Store(r).Set(world.StoreUp)
		l.asks[r] = 60
	}
	rich := l.regions[0]
	l.asks[rich] = 150
	l.pass(5 * time.Second)
	l.regionsAre("5 s", "ok", "self", "catching_up")
	l.pass(11 * time.Second)
	l.regionsAre("16 s", "ok", "self")
	used := 0 // it goes up and down within a window, with when most came in the one before
	for range 10 {
		l.pass(per / 10)
		used += len(l.admitted) / 10
	}
	if used < most*95/100 {
		l.fail("from 16 s after all was healed on %d of %d are admitted in %v, of more that are asked for", used, most, per)
	}
	got := 0
	for _, a := range l.admitted {
		if a.region == rich {
			got++
		}
	}
	want := most * 150 / (150 + 60*(len(l.regions)-1))
	if got < want*3/4 || got > want*13/10 {
		l.fail("16 s after all was healed %s has %d of %d, and its part of what is asked for is %d", rich, got, most, want)
	}
}

// regionsAre demands that all aggregators say one of these of all regions.
func (l *life) regionsAre(after string, states ...string) {
	for _, r := range l.regions {
		for _, v := range l.w.Servers(r) {
			if v.Aggregator() == nil {
				continue
			}
			for _, s := range v.Aggregator().Regions(l.w.NowAtServer(v)) {
				if !slices.Contains(states, s.State) {
					l.fail("%s after all was healed %s takes %s to be %s", after, v.Name, s.Region, s.State)
				}
			}
		}
	}
}

func (l *life) fail(format string, args ...any) {
	if l.out.Err == nil {
		l.out.Err = fmt.Errorf(format, args...)
		l.note("%v", l.out.Err)
	}
}
