package regional_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// names are so many regions.
func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("r", i))
	}
	return out
}

// others are all but one of them.
func others(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}

// newHome is a region of several, by the mode that it tells them in.
func newHome(t *testing.T, now *time.Time, targets regional.Targets, name string, all []string) *region {
	t.Helper()
	store := newStore(now)
	a, err := regional.New(regional.Config{Boot: still, Region: name, Name: "a1", Peers: others(all, name), Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Targets: targets}, store)
	if err != nil {
		t.Fatal(err)
	}
	return &region{Aggregator: a, t: t, name: name, now: *now, store: store}
}

// All regions agree on where a key has its homes, each has as many as any other, and
// when one comes or goes no other key moves.
func TestHomesOfKeys(t *testing.T) {
	now := start
	all := names(20)
	regions := map[string]*region{}
	for _, name := range all {
		regions[name] = newHome(t, &now, "", name, all)
	}
	fewer := newHome(t, &now, "", "r3", others(all, "r7"))
	rnd := rand.New(rand.NewPCG(1, 2))
	const keys = 2000
	has := map[string]int{}
	for range keys {
		key := deltasync.Key(rnd.Uint64())
		want := regions["r0"].Homes(key)
		if len(want) != 2 {
			t.Fatalf("the homes of %016x are %v, want two", uint64(key), want)
		}
		for _, name := range want {
			has[name]++
		}
		for _, name := range all {
			if got := regions[name].Homes(key); !slices.Equal(got, want) {
				t.Fatalf("to %s the homes of %016x are %v, to r0 %v", name, uint64(key), got, want)
			}
		}
		if got := fewer.Homes(key); !slices.Contains(want, "r7") && !slices.Equal(got, want) {
			t.Fatalf("without r7 the homes of %016x are %v, they were %v", uint64(key), got, want)
		}
	}
	for _, name := range all {
		if n, mean := has[name], 2*keys/len(all); n < mean*3/4 || n > mean*5/4 {
			t.Errorf("%s is home to %d of %d keys, want about %d", name, n, keys, mean)
		}
	}
}

func TestAutoIsHomesAboveEightRegions(t *testing.T) {
	now := start
	for _, tc := range []struct {
		targets regional.Targets
		regions int
		homes   bool
	}{
		{"", 8, false}, {"", 9, true}, {regional.TargetsAuto, 8, false}, {regional.TargetsAuto, 9, true},
		{regional.TargetsMesh, 60, false}, {regional.TargetsHomes, 3, true},
	} {
		r := newHome(t, &now, tc.targets, "r0", names(tc.regions))
		if got := r.Stats(now).Homes; got != tc.homes {
			t.Errorf("%q with %d regions: homes %v, want %v", tc.targets, tc.regions, got, tc.homes)
		}
		if want := map[bool]int{true: 2, false: tc.regions}[tc.homes]; len(r.Homes(9)) != want {
			t.Errorf("%q with %d regions: a key goes to %v, want %d", tc.targets, tc.regions, r.Homes(9), want)
		}
	}
	if _, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a", Targets: "all"}, newStore(&now)); err == nil {
		t.Error("the targets \"all\" are taken")
	}
}

// four is four regions and a key whose homes are the first two: what they tell goes
// where they want it to.
type four struct {
	t                     *testing.T
	now                   time.Time
	first, second, ap, us *region
	key                   deltasync.Key
}

func newFour(t *testing.T) *four {
	t.Helper()
	f := &four{t: t, now: start, key: 9}
	all := names(4)
	homes := newHome(t, &f.now, regional.TargetsHomes, "r0", all).Homes(f.key)
	rest := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(homes, s) })
	for i, r := range []**region{&f.first, &f.second, &f.ap, &f.us} {
		*r = newHome(t, &f.now, regional.TargetsHomes, slices.Concat(homes, rest)[i], all)
	}
	return f
}

// pass lets all regions tell what they have to tell, and a little time pass. It
// returns how often one told the key to another, by their names.
func (f *four) pass() map[string]int {
	f.t.Helper()
	all := []*region{f.first, f.second, f.ap, f.us}
	told := map[string]int{}
	for _, r := range all {
		r.now = f.now
		r.Pushes(f.now)
		for _, o := range r.Exports(f.now) {
			var up deltasync.Up
			if err := up.UnmarshalBinary(o.Payload); err != nil {
				f.t.Fatal(err)
			}
			for _, s := range up.Sections {
				for _, d := range s.Deltas {
					if d.Key == f.key && d.Tells() {
						told[r.name+" "+o.Peer]++
					}
				}
			}
			at := slices.IndexFunc(all, func(other *region) bool { return other.name == o.Peer })
			if err := r.Receive(f.now, o, all[at].Handle(f.t.Context(), f.now, o.Subject, o.Payload)); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.now = f.now.Add(200 * time.Millisecond)
	for _, r := range all {
		r.now = f.now
	}
	return told
}

// total is what an edge that counted nothing hears.
func (f *four) total(r *region) uint64 {
	f.t.Helper()
	r.now = f.now
	t := (&edge{name: "asks"}).tell(r, f.key).Totals[0]
	return charges(t.Others) + charges(t.Peers)
}

// What a region counts goes to the key's homes and to nobody else; the others hear
// of it when their edges ask, of a key that they never heard of too.
func TestCountsGoToTheHomesAlone(t *testing.T) {
	f := newFour(t)
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 5))
	told := f.pass()
	if len(told) != 2 || told[f.ap.name+" "+f.first.name] != 1 || told[f.ap.name+" "+f.second.name] != 1 {
		t.Fatalf("ap told %v, want %s and %s", told, f.first.name, f.second.name)
	}
	for _, r := range []*region{f.first, f.second, f.ap} {
		if got := f.total(r); got != 5 {
			t.Errorf("%s knows of %d, want 5", r.name, got)
		}
	}
	f.total(f.us)
	f.pass()
	if got := f.total(f.us); got != 5 {
		t.Errorf("us has asked and knows of %d, want 5", got)
	}
	(&edge{name: "e"}).tell(f.us, f.key, charge(start, 3))
	f.pass()
	f.pass()
	for _, r := range []*region{f.first, f.second, f.us} {
		if got := f.total(r); got != 8 {
			t.Errorf("%s knows of %d, want 8", r.name, got)
		}
	}
	f.now = f.now.Add(3 * time.Second) // ap asked a moment ago
	f.total(f.ap)
	f.pass()
	if got := f.total(f.ap); got != 8 {
		t.Errorf("ap has asked and knows of %d, want 8", got)
	}
}

// A home tells what regions told it, and not what another home did: the counts of
// the one that asks are in that. Nobody hears more than there is, however often.
func TestHomesTellNothingTwice(t *testing.T) {
	f := newFour(t)
	spent := uint64(0)
	for i, r := range []*region{f.first, f.second, f.ap, f.us} {
		(&edge{name: "e"}).tell(r, f.key, charge(start, uint64(1+i)))
		spent += uint64(1 + i)
	}
	for range 10 {
		f.pass()
		f.now = f.now.Add(3 * time.Second)
		for _, r := range []*region{f.first, f.second, f.ap, f.us} {
			r.now = f.now
			if got := f.total(r); got > spent {
				t.Fatalf("%s knows of %d, there are %d", r.name, got, spent)
			}
		}
	}
	for _, r := range []*region{f.first, f.second, f.ap, f.us} {
		if got := f.total(r); got != spent {
			t.Errorf("%s knows of %d, want %d", r.name, got, spent)
		}
	}
	// Not even one that has lost all it counted and told: what is left to others is
	// no more than they did.
	lost := f.us
	f.us = newHome(t, &f.now, regional.TargetsHomes, lost.name, names(4))
	(&edge{name: "new"}).tell(f.us, f.key, charge(f.now, 1))
	f.pass()
	if down := (&edge{name: "asks"}).tell(f.us, f.key); charges(down.Totals[0].Others) != spent-4 {
		t.Errorf("us, which lost what it counted, hears of %d of others, want %d", charges(down.Totals[0].Others), spent-4)
	}
}

// A home that lost everything hears of it from the other one, counts of the region
// that asks it next included: it does not tell that one of them.
func TestHomesTellNothingOfWhatTheyHeardFromHomes(t *testing.T) {
	f := newFour(t)
	(&edge{name: "e"}).tell(f.ap, f.key, charge(start, 5))
	f.pass()
	f.first = newHome(t, &f.now, regional.TargetsHomes, f.first.name, names(4))
	f.total(f.first)
	f.now = f.now.Add(time.Second)
	f.first.now = f.now
	f.first.tellAll(f.second)
	if got := f.total(f.first); got != 5 {
		t.Fatalf("%s, which lost all, knows of %d, want the 5 that %s has", f.first.name, got, f.second.name)
	}
	f.now = f.now.Add(3 * time.Second)
	f.total(f.ap)
	f.pass()
	if got := f.total(f.ap); got != 5 {
		t.Errorf("ap, which counted 5, knows of %d", got)
	}
}

// replyWith answers the only frame of a region to another, in the name of that.
func (r *region) replyWith(peer string, totals deltasync.Totals) {
	r.t.Helper()
	for _, o := range r.Exports(r.now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			r.t.Fatal(err)
		}
		if o.Peer != peer || len(up.Sections) == 0 {
			r.Lost(r.now, o)
			continue
		}
		if up.Features&deltasync.FeatureOthers == 0 {
			r.t.Errorf("%s does not ask %s for what others did", r.name, peer)
		}
		if err := r.Receive(r.now, o, replyAs(r.t, peer, o.Seq, totals)); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	r.t.Fatalf("%s tells %s nothing", r.name, peer)
}

// Of what regions told (X) and what homes told of all together (O) the larger counts,
// slice by slice, of charges and of refunds: never both. It outlives the aggregator,
// apart from what regions told, and leaves with its window.
func TestTheLargerOfXAndOCounts(t *testing.T) {
	f := newFour(t)
	e := &edge{name: "e"}
	e.tell(f.us, f.key, charge(start, 1))
	old := start.Add(-minute.Width)
	f.us.replyWith(f.first.name, deltasync.Totals{
		Peers:  []crdt.Cell{{Slice: slice(old), Charges: 2}},
		Others: []crdt.Cell{{Slice: slice(old), Charges: 8}, {Slice: slice(start), Charges: 10, Refunds: 4}},
	})
	f.us.now = f.us.now.Add(time.Second)
	e.tell(f.us, f.key, charge(start, 2))
	f.us.replyWith(f.second.name, deltasync.Totals{Peers: []crdt.Cell{{Slice: slice(start), Charges: 25}, {Slice: slice(start) + 1, Charges: 1}}})
	// By regions: 2 in the old slice, 25 in this one, 1 in the next. By the first home
	// 2 + 8 in the old one, 10 less 4 in this one.
	want := []crdt.Cell{{Slice: slice(old), Charges: 10}, {Slice: slice(start), Charges: 25, Refunds: 4}, {Slice: slice(start) + 1, Charges: 1}}
	check := func(r *region, who string) {
		t.Helper()
		if got := e.tell(r, f.key).Totals[0].Others; !slices.Equal(got, want) {
			t.Errorf("%s others did %+v, want %+v", who, got, want)
		}
	}
	check(f.us, "to its edges")
	f.us.sync(nil)
	told := map[regional.Source]int{}
	answer, err := f.us.store.Load(context.Background(), []regional.Item{{Key: f.key, Width: minute.Width, Slices: minute.Slices}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range answer[0].Vectors {
		told[v.Source]++
	}
	if told[regional.FromHomes] != 1 || told[regional.FromRegion] != 2 {
		t.Errorf("the store has %v vectors by source, want 1 of homes and 2 of regions", told)
	}
	next, err := regional.New(regional.Config{Boot: still, Region: f.us.name, Name: "a1", Peers: others(names(4), f.us.name), Lanes: 1, Incarnation: 2, Targets: regional.TargetsMesh}, f.us.store)
	if err != nil {
		t.Fatal(err)
	}
	f.us.Aggregator = next
	check(f.us, "after a restart, in a mesh,")
	f.now = start.Add(4 * time.Minute)
	f.us.now = f.now
	f.us.Tick(f.now)
	if st := f.us.Stats(f.now); st.Keys != 0 {
		t.Errorf("%d keys when the window is over", st.Keys)
	}
}

// A region that crosses a threshold of a key's limit tells all regions what it
// counted, at once, and goes on to do so: with each hundredth of the limit, and
// otherwise now and then.
func TestCrossingsAreToldToAll(t *testing.T) {
	f := newFour(t)
	large := minute
	large.Limit = 1000
	tell := func(r *region, cells ...crdt.Cell) uint64 {
		d := deltasync.Delta{Key: f.key, Cells: cells, Flags: touchIfEmpty(cells)}
		return charges((&edge{name: "e"}).send(r, deltasync.Section{Shape: large, Deltas: []deltasync.Delta{d}}).Totals[0].Others)
	}
	hurries := func(want bool, at string) {
		t.Helper()
		if f.ap.Urgent() != want {
			t.Errorf("at %s something is urgent: %v, want %v", at, !want, want)
		}
	}
	far := func(want int, at string) {
		t.Helper()
		if told := f.pass(); told[f.ap.name+" "+f.us.name] != want {
			t.Errorf("at %s ap told %v, want %d of us", at, told, want)
		}
	}
	tell(f.ap, charge(start.Add(-minute.Width), 200))
	f.pass()
	tell(f.ap, charge(start, 200))
	hurries(false, "40 %")
	far(0, "40 %")
	tell(f.ap, charge(start, 350))
	hurries(true, "55 %")
	far(1, "55 %")
	if got := tell(f.us); got != 550 {
		t.Errorf("us knows of %d, want 550: what was told to the homes alone too", got)
	}
	tell(f.ap, charge(start, 355))
	hurries(false, "55.5 %")
	far(0, "55.5 %")
	f.now = f.now.Add(time.Second)
	far(1, "55.5 %, a second later")
	tell(f.ap, charge(start, 365))
	far(1, "56.5 %")
	tell(f.ap, charge(start, 750))
	hurries(true, "95 %")
	far(1, "95 %")
	if got := tell(f.us); got != 950 {
		t.Errorf("us knows of %d, want 950", got)
	}
	// Far from its limit again it is told to the homes alone.
	f.now = start.Add(80 * time.Second)
	f.ap.now = f.now
	f.ap.Tick(f.now)
	tell(f.ap, charge(f.now, 20))
	far(0, "2 %")
}

// Penalties are told to all regions at once.
func TestPenaltiesAreToldToAll(t *testing.T) {
	f := newFour(t)
	until := start.Add(time.Minute).UnixNano()
	(&edge{name: "e"}).send(f.ap, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: f.key, Cells: []crdt.Cell{charge(start, 1)}, Until: until}}})
	f.pass()
	for _, r := range []*region{f.first, f.second, f.us} {
		if got := (&edge{name: "e"}).tell(r, f.key).Totals[0].Until; got != until {
			t.Errorf("%s hears of a penalty until %d, want %d", r.name, got, until)
		}
	}
}

// The level of a bucket is worked out from what homes told of others, too.
func TestBucketsCountWhatHomesTold(t *testing.T) {
	f := newFour(t)
	tell := func(r *region, n uint64) {
		(&edge{name: "e"}).send(r, deltasync.Section{Shape: bucket, Deltas: []deltasync.Delta{{Key: f.key, Cells: []crdt.Cell{{Slice: sliceOf(bucket, start), Charges: n}}}}})
	}
	tell(f.ap, 48)
	f.pass()
	tell(f.us, 15)
	if len(f.us.Pushes(f.now)) > 0 {
		t.Fatal("at 15 % us pushes the key")
	}
	f.pass()
	if len(f.us.Pushes(f.now)) == 0 {
		t.Error("with what ap poured in us is above half, and pushes nothing")
	}
}
