package regional_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// punish sends the end of a penalty, and no counts.
func (e *edge) punish(r *region, shape deltasync.Shape, until int64) deltasync.Down {
	r.t.Helper()
	return e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Until: until}}})
}

// untilOf is what an edge that only asks hears of the penalty.
func untilOf(r *region, shape deltasync.Shape) int64 {
	r.t.Helper()
	down := (&edge{name: "asks"}).send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Flags: deltasync.FlagTouch}}})
	return down.Totals[0].Until
}

// pushedUntils are the penalties in the pushes that wait.
func pushedUntils(r *region) (untils []int64) {
	r.t.Helper()
	for _, p := range r.Pushes(r.now) {
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(p.Payload); err != nil {
			r.t.Fatalf("decode push: %v", err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				untils = append(untils, k.Until)
			}
		}
	}
	return untils
}

func in(d time.Duration) int64 { return start.Add(d).UnixNano() }

// A later end is news, and pushed at once though the limit is far; the same one
// again, and an earlier one, are not.
func TestPenaltyJoinsByTheLater(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	e := &edge{name: "e1"}
	for _, step := range []struct {
		until, want int64
		pushes      []int64
	}{
		{in(time.Minute), in(time.Minute), []int64{in(time.Minute)}},
		{in(time.Minute), in(time.Minute), nil},
		{in(time.Second), in(time.Minute), nil},
		{0, in(time.Minute), nil},
		{in(time.Hour), in(time.Hour), []int64{in(time.Hour)}},
	} {
		if got := e.punish(r, minute, step.until).Totals[0].Until; got != step.want {
			t.Errorf("told %d: the reply says %d, want %d", step.until, got, step.want)
		}
		if hurry := r.Urgent(); hurry != (step.pushes != nil) {
			t.Errorf("told %d: Urgent = %v", step.until, hurry)
		}
		if got := pushedUntils(r); !slices.Equal(got, step.pushes) {
			t.Errorf("told %d: pushed %v, want %v", step.until, got, step.pushes)
		}
		r.Exports(r.now) // takes the hurry back
	}
}

// What is over, or further ahead than any penalty, is not kept: it would be told
// when the clock comes there.
func TestPenaltyBeyondBelief(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	e := &edge{name: "e1"}
	for _, until := range []int64{1, in(-1), in(0), in(regional.PenaltyAhead + 1), math.MaxInt64} {
		if got := e.punish(r, minute, until).Totals[0].Until; got != 0 {
			t.Errorf("told %d: the reply says %d, want none", until, got)
		}
	}
	if got := pushedUntils(r); got != nil {
		t.Errorf("pushed %v, want nothing", got)
	}
	now = start.Add(time.Hour)
	r.now = now
	if got := untilOf(r, minute); got != 0 {
		t.Errorf("an hour later: %d, want none", got)
	}
	// The longest, of another region; then the clock is set back.
	up := deltasync.Up{
		Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1, SentAt: now.UnixNano(),
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Until: now.Add(limit.MaxWindow).UnixNano()}}}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Handle(context.Background(), now, deltasync.RegionSubject("eu", 0, "us"), b)
	if got := untilOf(r, minute); got != now.Add(limit.MaxWindow).UnixNano() {
		t.Errorf("another region told the longest: %d", got)
	}
	now = start
	r.now = now
	if got := e.punish(r, minute, in(time.Minute)).Totals[0].Until; got != in(time.Minute) {
		t.Errorf("after the clock was set back: %d, want that of now, %d", got, in(time.Minute))
	}
}

// A counter with nothing but a penalty lives until that is over, and no longer.
func TestPenaltyOutlivesCounts(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now))
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 1))
	e.punish(r, minute, in(time.Hour))
	for _, step := range []struct {
		after time.Duration
		keys  int
	}{{30 * time.Minute, 1}, {time.Hour - 1, 1}, {time.Hour, 0}} {
		now = start.Add(step.after)
		r.now = now
		r.Tick(now)
		if got := r.Stats(now).Keys; got != step.keys {
			t.Errorf("%v on: %d keys, want %d", step.after, got, step.keys)
		}
	}
}

// Other regions hear at once, in frames and in replies, and keep it; what is
// regional stays at home.
func TestPenaltyCrossesRegions(t *testing.T) {
	eu, us := newRegion(t, "eu", newStore(&start), "us"), newRegion(t, "us", newStore(&start), "eu")
	exchange(t, eu, us) // the first beats
	exchange(t, us, eu)
	(&edge{name: "e1"}).punish(eu, minute, in(time.Minute))
	if !eu.Urgent() || exchange(t, eu, us) != 1 {
		t.Fatal("a penalty is not exported at once")
	}
	if got := pushedUntils(us); !slices.Equal(got, []int64{in(time.Minute)}) {
		t.Errorf("us pushes %v, want the end of the penalty", got)
	}
	if got := untilOf(us, minute); got != in(time.Minute) {
		t.Errorf("us says %d, want %d", got, in(time.Minute))
	}
	if exchange(t, us, eu) != 0 {
		t.Error("us exports what eu told it")
	}

	// us learns of a later one in the same frame's time: its reply says so.
	(&edge{name: "e2"}).punish(us, minute, in(time.Hour))
	pushedUntils(eu)
	(&edge{name: "e1"}).tell(eu, 9, charge(start, 1))
	exchange(t, eu, us)
	if got := pushedUntils(eu); !slices.Equal(got, []int64{in(time.Hour)}) {
		t.Errorf("eu pushes %v after the reply, want %d", got, in(time.Hour))
	}

	local := minute
	local.Generation, local.Regional = 8, true
	home := newRegion(t, "eu", newStore(&start), "us")
	home.Exports(start) // the first beat
	e := &edge{name: "e1"}
	e.punish(home, local, in(time.Minute))
	if got := pushedUntils(home); !slices.Equal(got, []int64{in(time.Minute)}) {
		t.Errorf("pushed %v to the region's own edges, want the end of the penalty", got)
	}
	if n := len(home.Exports(start)); n > 0 {
		t.Errorf("%d exports of a regional rate, want none", n)
	}
	up := deltasync.Up{
		Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1, SentAt: in(0),
		Sections: []deltasync.Section{{Shape: local, Deltas: []deltasync.Delta{{Key: 9, Until: in(time.Hour)}}}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	down := decode(t, home.Handle(context.Background(), start, deltasync.RegionSubject("eu", 0, "us"), b))
	if got := down.Totals[0].Until; got != 0 {
		t.Errorf("another region is told %d of a regional rate, want nothing", got)
	}
	if got := untilOf(home, local); got != in(time.Minute) {
		t.Errorf("after another region spoke of it: %d, want %d", got, in(time.Minute))
	}
}

// An export that got lost, and one that was refused, are told again; so is a
// refresh, changed or not.
func TestPenaltyIsToldAgain(t *testing.T) {
	eu := newRegion(t, "eu", newStore(&start), "us")
	e := &edge{name: "e1"}
	exported := func(what string) (regional.Outgoing, deltasync.Up) {
		t.Helper()
		o, up := only(t, eu)
		if keys := keysOf(up); len(keys) != 1 || up.Sections[0].Deltas[0].Until != in(time.Hour) {
			t.Fatalf("%s: %+v is exported, want the penalty", what, up.Sections)
		}
		return o, up
	}
	e.punish(eu, minute, in(time.Hour))
	o, up := exported("at first")
	if up.Sections[0].Deltas[0].Flags != deltasync.FlagUrgent {
		t.Errorf("exported with the flags %d, want it urgent", up.Sections[0].Deltas[0].Flags)
	}
	eu.Lost(eu.now, o)
	eu.now = eu.now.Add(time.Second)
	o, up = exported("after a loss")
	refuse(t, eu, o, up, deltasync.StatusOverloaded, 0)
	eu.now = eu.now.Add(time.Second)
	eu.Tick(eu.now)
	o, up = exported("after a refusal")
	refuse(t, eu, o, up, deltasync.StatusOK)
	e.send(eu, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Flags: deltasync.FlagRefresh, Until: in(time.Hour)}}})
	exported("on a refresh")
}

// The store keeps a penalty for the next aggregator, through an outage and a
// wipe, and tells one aggregator of another's.
func TestPenaltyIsStored(t *testing.T) {
	mem := newStore(&start)
	b := &broken{Store: mem}
	r := newRegion(t, "eu", b)
	ctx := context.Background()
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	next := func(what string, want int64) {
		t.Helper()
		if got := untilOf(newRegion(t, "eu", mem), minute); got != want {
			t.Errorf("%s: the next aggregator says %d, want %d", what, got, want)
		}
	}
	e := &edge{name: "e1"}
	e.punish(r, minute, in(time.Minute))
	next("stored", in(time.Minute))
	b.down = true
	if down := e.punish(r, minute, in(time.Hour)); down.Status != deltasync.StatusStoreDown || down.Totals[0].Until != in(time.Hour) {
		t.Errorf("without the store: %+v, want STORE_DOWN and the penalty in force", down)
	}
	b.down = false
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	next("after an outage", in(time.Hour))
	mem.Wipe()
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	next("after a wipe", in(time.Hour))

	// Who hears it from the store tells edges and, in case whoever wrote it has
	// not, other regions.
	second := newRegion(t, "eu", mem, "us")
	(&edge{name: "e2"}).tell(second, 9, charge(start, 1))
	if got := pushedUntils(second); !slices.Equal(got, []int64{in(time.Hour)}) {
		t.Errorf("pushed %v of what the store knew, want the penalty", got)
	}
	if _, up := only(t, second); up.Sections[0].Deltas[0].Until != in(time.Hour) {
		t.Errorf("exported %+v, want the penalty", up.Sections)
	}

	// A peer's reply is stored like everything else.
	r = newRegion(t, "eu", mem, "us")
	if err := r.Sync(ctx, start); err != nil { // a new epoch would have all written
		t.Fatal(err)
	}
	(&edge{name: "e3"}).tell(r, 9, charge(start, 1))
	o, up := only(t, r)
	if err := r.Receive(start, o, replyAs(t, "us", up.Seq, deltasync.Totals{Until: in(2 * time.Hour)})); err != nil {
		t.Fatal(err)
	}
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	next("after a peer's reply", in(2*time.Hour))
}

// A PoP that has nothing to show keeps a key out for a day at the most, and then half
// of the time, however often and by which of its edges it tells a later end; one with a
// key that has used half of its limit may do so anew, and so may another PoP.
func TestPenaltiesHaveTerms(t *testing.T) {
	alone.Mark(t)
	now := start
	r := newRegion(t, "eu", newStore(&now))
	tells := func(after, lasts time.Duration, n int) (until time.Duration) {
		t.Helper()
		now = start.Add(after)
		r.now = now
		(&edge{name: fmt.Sprint("m", n%3), seq: uint64(n)}).punish(r, minute, now.Add(lasts).UnixNano())
		r.Tick(now)
		if got := untilOf(r, minute); got != 0 {
			return time.Duration(got - start.UnixNano())
		}
		return 0
	}
	const day = 24 * time.Hour
	out, step, n := time.Duration(0), time.Minute, 0
	for at := time.Duration(0); at < 8*day; at += step {
		n++
		until := tells(at, time.Hour, n)
		if until > at {
			out += step
		}
		if at < day && until > day {
			t.Fatalf("at %v it is kept out until %v, want %v at most", at, until, day)
		}
	}
	if out < 3*day || out > 4*day+time.Hour {
		t.Errorf("kept out for %v of 8 days, want 4 days", out)
	}
	if st := r.Stats(now); st.Clamped == 0 {
		t.Error("nothing is counted as too much")
	}

	// One that is told once, as far ahead as may be.
	now = start
	r = newRegion(t, "eu", newStore(&now))
	if got := tells(0, 300*day, 1); got != day {
		t.Errorf("told 300 days it is kept out for %v, want a day", got)
	}
	if got := tells(30*time.Hour, day, 2); got != 0 {
		t.Errorf("while it rests: until %v, want nothing", got)
	}
	other := deltasync.Up{
		Kind: deltasync.KindEdge, Region: "eu", Pop: "q", Name: "e1", Node: deltasync.NodeID("eu", "q", "e1"), Incarnation: 1, Lanes: 1, Seq: 1, SentAt: now.UnixNano(),
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Until: now.Add(time.Minute).UnixNano()}}}},
	}
	b, err := other.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Handle(context.Background(), now, deltasync.EdgeSubject("eu", 0, "q", "e1"), b)
	if got := untilOf(r, minute); got != now.Add(time.Minute).UnixNano() {
		t.Errorf("another PoP is not heeded meanwhile: %d", got)
	}
	if got := tells(40*time.Hour, day, 3); got != 0 {
		t.Errorf("while it rests: until %v, want nothing", got)
	}
	(&edge{name: "e1", seq: 100}).tell(r, 9, charge(now, minute.Limit/2))
	if got := tells(40*time.Hour, time.Hour, 4); got != 41*time.Hour {
		t.Errorf("of a key that has used half of its limit: until %v, want 41 h", got)
	}
}
