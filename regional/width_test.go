package regional_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Whoever names a key first, with slices of another width, keeps others' counts out
// only as long as no more PoPs and regions tell the right one.
func TestWidthIsWhatMostTell(t *testing.T) {
	for _, width := range []time.Duration{time.Millisecond, 9 * 24 * time.Hour} {
		t.Run(width.String(), func(t *testing.T) { testWidth(t, width) })
	}
}

// squat names key 9 with slices of another width.
func squat(r *region, width time.Duration, names ...string) (last deltasync.Down) {
	shape := minute
	shape.Width = width
	for _, name := range names {
		e := &edge{name: name, pop: "m"}
		last = e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(shape, start), Charges: 1}}}}})
	}
	return last
}

func testWidth(t *testing.T, width time.Duration) {
	squat := func(r *region, names ...string) deltasync.Down { return squat(r, width, names...) }
	tells := func(r *region, pop string) deltasync.Status {
		return (&edge{name: "e", pop: pop}).tell(r, 9, charge(start, 60)).Status
	}
	const ok, refused = deltasync.StatusOK, deltasync.StatusForbidden

	r := newRegion(t, "eu", newStore(&start))
	squat(r, "m1", "m2", "m3")
	if got := tells(r, "p"); got != refused {
		t.Errorf("one PoP against one: %v, want %v", got, refused)
	}
	if got := tells(r, "p"); got != refused {
		t.Errorf("the same once more: %v, want %v", got, refused)
	}
	if got := tells(r, "q"); got != ok {
		t.Errorf("two PoPs against one: %v, want %v", got, ok)
	}
	if got := tells(r, "p"); got != ok {
		t.Errorf("the first, when its width is in force: %v, want %v", got, ok)
	}
	if got := squat(r, "m1", "m2", "m3", "m4").Status; got != refused {
		t.Errorf("the squatter after that: %v, want %v", got, refused)
	}
	if got := charges((&edge{name: "asker"}).tell(r, 9).Totals[0].Peers); got != 120 {
		t.Errorf("%d counted, want 120", got)
	}

	r = newRegion(t, "eu", newStore(&start))
	squat(r, "m1")
	us := deltasync.Up{Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: 1,
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 5)}}}}}}
	b, err := us.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := decode(t, r.Handle(t.Context(), start, deltasync.RegionSubject("eu", 0, "us"), b)).Status; got != refused {
		t.Errorf("a region against a PoP: %v, want %v", got, refused)
	}
	if got := tells(r, "p"); got != ok {
		t.Errorf("a region and a PoP against one: %v, want %v", got, ok)
	}

	r = newRegion(t, "eu", newStore(&start))
	squat(r, "m1")
	if got := tells(r, "p"); got != refused {
		t.Fatal(got)
	}
	r.now = start.Add(2 * time.Minute)
	if got := (&edge{name: "e", pop: "q", seq: 5}).tell(r, 9, charge(r.now, 1)).Status; got != refused {
		t.Errorf("two PoPs, one of which told it long ago: %v, want %v", got, refused)
	}
}

// What another region answers of a width that is in force no more is not heard: in
// slices of that one its counts might never leave the window.
func TestLateAnswerInAnotherWidth(t *testing.T) {
	us, eu := newRegion(t, "us", newStore(&start), "eu"), newRegion(t, "eu", newStore(&start), "us")
	squat(us, time.Millisecond, "m1")
	squat(eu, time.Millisecond, "m1")
	sent := us.Exports(start)
	if len(sent) != 1 {
		t.Fatalf("%d frames, want one", len(sent))
	}
	reply := eu.Handle(t.Context(), start, sent[0].Subject, sent[0].Payload)
	for _, pop := range []string{"p", "q"} {
		(&edge{name: "e", pop: pop}).tell(us, 9, charge(start, 60))
	}
	if err := us.Receive(start, sent[0], reply); err != nil {
		t.Fatal(err)
	}
	for _, v := range us.Vectors(9) {
		if v.Source != regional.FromEdge || len(v.Cells) != 1 || v.Cells[0] != charge(start, 60) {
			t.Errorf("it holds %+v, want what the edge counted in slices of %v alone", v, minute.Width)
		}
	}
	if n := len(us.Vectors(9)); n != 1 {
		t.Errorf("%d entries, want that of the edge whose width is in force", n)
	}
}

// Who told another width, or a penalty, takes memory for as long as that matters.
func TestWhoToldOtherwiseIsForgotten(t *testing.T) {
	for name, tell := range map[string]func(*region){
		"a width":   func(r *region) { squat(r, time.Millisecond, "m1", "m2") },
		"a penalty": func(r *region) { (&edge{name: "m1", pop: "m"}).punish(r, minute, in(time.Second)) },
	} {
		var held [2]int
		for i, told := range []bool{false, true} {
			r := newRegion(t, "eu", newStore(&start))
			e := &edge{name: "e"}
			e.tell(r, 9, charge(start, 1))
			before := r.Stats(start).Bytes
			if told {
				if tell(r); r.Stats(start).Bytes <= before {
					t.Errorf("%s takes no memory", name)
				}
			}
			r.now = start.Add(30 * time.Second)
			e.tell(r, 9, charge(start, 1), charge(r.now, 1))
			r.Tick(start.Add(61 * time.Second))
			r.Pushes(r.now)
			held[i] = r.Stats(r.now).Bytes
		}
		if held[1] != held[0] {
			t.Errorf("%s: %d bytes are held after a minute, want %d as if it had not been told", name, held[1], held[0])
		}
	}
}

// That a key began anew is said once a minute, whoever has how many keys do so.
func TestKeysThatBeginAnewAreLogged(t *testing.T) {
	var log bytes.Buffer
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1, StoreTimeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	for i, want := range []int{1, 1, 2} {
		r.now = start.Add(time.Duration(i) * 40 * time.Second)
		key, shape := deltasync.Key(10+i), minute
		shape.Width = time.Millisecond
		for _, pop := range []string{"m", "p", "q"} {
			e := &edge{name: fmt.Sprint("e", i), pop: pop}
			if pop == "m" {
				e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: key, Cells: []crdt.Cell{{Slice: sliceOf(shape, r.now), Charges: 1}}}}})
			} else {
				e.tell(r, key, charge(r.now, 1))
			}
		}
		if n := strings.Count(log.String(), "another width"); n != want {
			t.Errorf("%v after the first key it is logged %d times, want %d: %s", r.now.Sub(start), n, want, log.String())
		}
	}
	for _, says := range []string{"was=1ms", "width=1.5s", "key=000000000000000a", "subject=sg.v1.up.eu.0.e.q.e0"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("it says %s, want %s", log.String(), says)
		}
	}
}

// A key that begins anew stays kept out, and whoever had it kept out has to rest: it may
// be he who has it begin anew, as nobody counts what is denied.
func TestPenaltyOutlivesAWidth(t *testing.T) {
	now := start
	store := newStore(&now)
	r, narrow := newRegion(t, "eu", store), minute
	narrow.Width = time.Millisecond
	m := &edge{name: "m", pop: "m"}
	begins := func(after time.Duration, shape deltasync.Shape) {
		now = start.Add(after)
		r.now = now
		if got := m.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(shape, now), Charges: 1}}}}}).Status; got != deltasync.StatusOK {
			t.Fatalf("after %v slices of %v are answered with %v", after, shape.Width, got)
		}
		r.sync(nil)
	}
	(&edge{name: "e"}).punish(r, minute, in(time.Hour))
	begins(time.Minute, narrow)
	for who, asked := range map[string]*region{"it": r, "who has it from the store": newRegion(t, "eu", store)} {
		if got := untilOf(asked, narrow); got != in(time.Hour) {
			t.Errorf("%s tells a penalty until %d, want %d", who, got, in(time.Hour))
		}
	}

	now, r = start, newRegion(t, "eu", newStore(&now))
	m = &edge{name: "m", pop: "m"}
	m.punish(r, minute, in(20*24*time.Hour)) // a day is heeded, and then a day it rests
	begins(25*time.Hour, narrow)
	m.punish(r, narrow, in(30*time.Hour))
	if got := untilOf(r, narrow); got != 0 {
		t.Errorf("while it rests: until %d, want nothing", got)
	}
}

// An aggregator that knows the rules needs no majority for the width that they have, and
// lets none bring in another: one hostile PoP against one honest PoP lifted a limit.
func TestRulesTellTheWidth(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Limit: 100, Per: time.Minute}))
	rate := set.Rules()[0].Rates[0]
	const ok, refused = deltasync.StatusOK, deltasync.StatusForbidden
	tells := func(r *region, pop string, shape deltasync.Shape) deltasync.Status {
		e := &edge{name: "e", pop: pop}
		return e.send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(shape, r.now), Charges: 5}}}}}).Status
	}
	right := shapeOf(rate)
	for _, width := range []time.Duration{time.Millisecond, 366 * 24 * time.Hour} {
		lie := right
		lie.Width, lie.Slices = width, 1
		r := truthful(t, set, regional.Config{})
		if got := tells(r, "m", lie); got != refused {
			t.Errorf("%v under the name of a rule: %v, want %v", width, got, refused)
		}
		lie.Generation++ // one that no rule has, as of rules that are not here yet
		if got := tells(r, "m", lie); got != ok {
			t.Errorf("%v under another name: %v, want %v", width, got, ok)
		}
		if got := tells(r, "p", right); got != ok {
			t.Errorf("one PoP against one that told %v, by the rules: %v, want %v", width, got, ok)
		}
		for _, pop := range []string{"m", "n", "o"} {
			if got := tells(r, pop, lie); got != refused {
				t.Errorf("%v against what the rules have: %v, want %v", width, got, refused)
			}
		}
		if got := charges((&edge{name: "asker"}).send(r, deltasync.Section{Shape: right, Deltas: []deltasync.Delta{{Key: 9}}}).Totals[0].Peers); got != 5 {
			t.Errorf("%d counted, want the 5 of the honest PoP", got)
		}
	}
}

// A key that is named first under the generation of another rate that the rules have is
// begun anew once most PoPs tell its own: nothing tells an aggregator which it is of.
func TestKeyUnderTheNameOfAnotherRate(t *testing.T) {
	set := ruleSet(t, apiRule("api", limit.RateSpec{Name: "m", Limit: 100, Per: time.Minute}, limit.RateSpec{Name: "d", Limit: 1000, Per: 24 * time.Hour}))
	right, other := shapeOf(set.Rules()[0].Rates[0]), shapeOf(set.Rules()[0].Rates[1])
	r := truthful(t, set, regional.Config{})
	tells := func(pop string, shape deltasync.Shape, charges uint64) deltasync.Status {
		return (&edge{name: "e" + pop, pop: pop}).send(r, deltasync.Section{Shape: shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(shape, r.now), Charges: charges}}}}}).Status
	}
	tells("m", other, 1)
	for i, want := range []deltasync.Status{deltasync.StatusForbidden, deltasync.StatusOK, deltasync.StatusOK} {
		if got := tells(fmt.Sprint("p", i), right, 60); got != want {
			t.Errorf("honest PoP %d: %v, want %v", i+1, got, want)
		}
	}
	if got := tells("m", other, 2); got != deltasync.StatusForbidden {
		t.Errorf("the hostile one again: %v, want it forbidden", got)
	}
	if got := charges((&edge{name: "asker"}).send(r, deltasync.Section{Shape: right, Deltas: []deltasync.Delta{{Key: 9}}}).Totals[0].Peers); got != 120 {
		t.Errorf("%d counted, want the 120 of those who told it when most did", got)
	}
}

// Nobody has a global limit stay in its region, or a region's leave it, under the name of
// a rule that says otherwise.
func TestRulesTellTheScope(t *testing.T) {
	for _, scope := range []string{"global", "region"} {
		set := ruleSet(t, apiRule("api", limit.RateSpec{Limit: 100, Per: time.Minute, Scope: scope}))
		right := shapeOf(set.Rules()[0].Rates[0])
		lie := right
		lie.Regional = !right.Regional
		r := truthful(t, set, regional.Config{})
		for _, tt := range []struct {
			pop   string
			shape deltasync.Shape
			want  deltasync.Status
		}{{"m", lie, deltasync.StatusForbidden}, {"p", right, deltasync.StatusOK}, {"m", lie, deltasync.StatusForbidden}} {
			e := &edge{name: "e", pop: tt.pop}
			got := e.send(r, deltasync.Section{Shape: tt.shape, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{{Slice: sliceOf(right, r.now), Charges: 5}}}}}).Status
			if got != tt.want {
				t.Errorf("scope %s, regional %v: %v, want %v", scope, tt.shape.Regional, got, tt.want)
			}
		}
	}
}
