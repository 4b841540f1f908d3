package regional_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// Clients go to several PoPs: their keys are nobody's alone, and make room for new ones of
// any of these, in a lane that is full. A PoP that adds an entry to each of another's keys
// takes away none of that.
func TestKeysOfSeveralPoPsMakeRoom(t *testing.T) {
	alone.Mark(t)
	for name, meddles := range map[string]bool{"two tell all": false, "one meddles": true} {
		t.Run(name, func(t *testing.T) {
			r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 20}, newStore(&start))
			a, b := &edge{name: "e", pop: "a"}, &edge{name: "e", pop: "b"}
			(&edge{name: "e", pop: "few"}).used(r, 5, 100, 10)
			for i := range 200 {
				first := deltasync.Key(1e6 + i*100)
				refused := len(a.used(r, 5, first, 100).Refused)
				if !meddles || i < 40 {
					refused += len(b.used(r, 5, first, 100).Refused)
				}
				if refused > 0 {
					t.Fatalf("frame %d: %d counts are refused", i, refused)
				}
				r.now = r.now.Add(20 * time.Millisecond)
			}
			if st := r.Stats(r.now); st.Evicted < 10_000 {
				t.Errorf("%d keys made room, there was no flood", st.Evicted)
			}
		})
	}
}

// Keys at 80 % of their limit are held beside cold ones that another region tells, which
// are nobody's, though their PoP has more than its part.
func TestNobodysKeysMakeRoom(t *testing.T) {
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 20, Peers: []string{"us"}}, newStore(&start))
	(&edge{name: "e", pop: "b"}).used(r, 5, 10, 5)
	a, seq := &edge{name: "e", pop: "a"}, uint64(0)
	tells := func(first deltasync.Key) {
		t.Helper()
		seq++
		sec := many(r.now, first, 100)
		for i := range sec.Deltas {
			sec.Deltas[i].Cells = []crdt.Cell{charge(r.now, 3)}
		}
		up := deltasync.Up{Kind: deltasync.KindRegion, Region: "us", Name: "a1", Node: deltasync.NodeID("us", "", ""), Lanes: 1, Seq: seq, SentAt: r.now.UnixNano(), Sections: []deltasync.Section{sec}}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		decode(t, r.Handle(context.Background(), r.now, deltasync.RegionSubject("eu", 0, "us"), b))
		r.now = r.now.Add(20 * time.Millisecond)
	}
	for i := range 60 {
		tells(deltasync.Key(1e6 + i*100))
	}
	const hot = 1000
	for i := range hot / 50 {
		a.used(r, 80, deltasync.Key(5e6+i*50), 50)
		tells(deltasync.Key(2e6 + i*100))
	}
	if held := holds(r, 5e6, hot); held < hot {
		t.Errorf("%d of %d keys at 80 %% are held", held, hot)
	}
}

// Whoever asks for how much of a key need not have counted anything, and may be invented.
// Nobody's keys are forgotten for it, it takes a quarter of the room and no more, and the
// edges of another PoP are told their shares as ever.
func TestAskersTakeTheirPart(t *testing.T) {
	alone.Mark(t)
	const budget, keys, asked = 1 << 20, 300, 100
	r := small(t, regional.Config{Boot: still, MaxBytes: budget}, newStore(&start))
	p, q := &edge{name: "e", pop: "p"}, &edge{name: "e", pop: "q"}
	p.used(r, 5, 1000, asked)
	p.used(r, 5, 2000, keys)
	q.used(r, 5, 5000, keys)
	before := r.Stats(r.now).Bytes
	for i := range 300 {
		sec := deltasync.Section{Shape: minute}
		for k := range deltasync.Key(asked) {
			sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: 1000 + k, Flags: deltasync.FlagTouch, Demand: &deltasync.Demand{Fast: 1, Mid: 1, Slow: 1, Window: 1}})
		}
		(&edge{name: fmt.Sprint("m", i), pop: greedy}).send(r, sec)
		r.now = r.now.Add(5 * time.Millisecond)
	}
	if p, q := holds(r, 2000, keys), holds(r, 5000, keys); p+q < 2*keys {
		t.Errorf("of two PoPs' %d keys %d and %d are held", keys, p, q)
	}
	took := r.Stats(r.now).Bytes - before
	if took < budget/5 || took > budget/4+budget/20 {
		t.Errorf("askers take %d bytes of %d, want about a quarter", took, budget)
	}
	if told := p.asks(r, 2000, keys); told < 50 {
		t.Errorf("another PoP's edge is told its share of %d keys of %d, want those that fit into half of a half of the quarter", told, keys)
	}
	if told := (&edge{name: "late", pop: greedy}).asks(r, 2300, 10); told > 0 {
		t.Errorf("the greedy PoP's next edge is told its share of %d keys", told)
	}
	for range 100 { // edges that ask for nothing more are forgotten, and their contests
		r.now = r.now.Add(time.Second)
		r.Exports(r.now)
	}
	if told := (&edge{name: "late", pop: greedy}).asks(r, 5000, 10); told < 10 {
		t.Errorf("when all that is over its edge is told its share of %d keys of 10", told)
	}
}

// asks has an edge ask for so many keys from one on, and counts those of which it is told
// its share.
func (e *edge) asks(r *region, from deltasync.Key, n int) (told int) {
	r.t.Helper()
	for k := range deltasync.Key(n) {
		down := e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{
			{Key: from + k, Flags: deltasync.FlagTouch, Demand: &deltasync.Demand{Fast: 1, Mid: 1, Slow: 1, Window: 1}}}})
		for _, t := range down.Totals {
			if t.Share != nil {
				told++
			}
		}
	}
	return told
}

// answersCounted counts the vectors in a store's answers.
type answersCounted struct {
	regional.Store
	vectors int
}

func (s *answersCounted) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	out, err := s.Store.Merge(ctx, batch)
	for i := range out {
		s.vectors += len(out[i].Vectors)
	}
	return out, err
}

// What the store has of a key, by lives of a PoP that has no room for them, is looked at
// again now and then, and not with each count.
func TestWhatFindsNoRoomIsReadNowAndThen(t *testing.T) {
	alone.Mark(t)
	const lives = 6000
	store := &answersCounted{Store: newStore(&start)}
	first := newRegion(t, "eu", store)
	for i := range lives {
		(&edge{name: fmt.Sprint("m", i/1000), pop: greedy, seq: uint64(i)}).live(first, uint32(i%1000), 9, charge(start, 1))
	}
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 19}, store)
	p := &edge{name: "e", pop: "p"}
	p.used(r, 5, 1000, 20)
	p.tell(r, 9, charge(start, 1))
	if n := len(r.Vectors(9)); n < 2 || n > lives {
		t.Fatalf("%d entries of the key are held, want some of %d", n, lives+1)
	}
	store.vectors = 0
	for i := range 300 {
		r.now = r.now.Add(10 * time.Millisecond)
		p.tell(r, 9, charge(start, uint64(2+i)))
	}
	if store.vectors == 0 || store.vectors > 4*lives {
		t.Errorf("within three seconds, and 300 counts, %d vectors are read, want %d once a second", store.vectors, lives)
	}
}

// Of a key with many entries the store has shed all are written again, as of one with few.
func TestManyEntriesAreWrittenAgain(t *testing.T) {
	const edges = 200
	swap := &swapped{memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 1})}
	r := small(t, regional.Config{}, swap)
	for i := range edges {
		(&edge{name: fmt.Sprint("e", i)}).tell(r, 9, charge(start, 1))
	}
	swap.Store = memstore.New(memstore.Config{Now: func() time.Time { return start }, Seed: 1}) // of the same epoch
	(&edge{name: "e0", seq: 1}).tell(r, 9, charge(start, 2))
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, swap.Store, 9); got != edges+1 {
		t.Errorf("the store has %d, want all %d", got, edges+1)
	}
}

// A key begins anew with slices of another width while edges ask for it: what they asked
// for ends with what was counted.
func TestKeyThatBeginsAnewHasNoAskers(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	e, demand := &edge{name: "e"}, &deltasync.Demand{Fast: 1, Mid: 1, Slow: 1, Window: 1}
	other := minute
	other.Width = 7 * time.Second
	e.send(r, deltasync.Section{Shape: other, Deltas: []deltasync.Delta{{Key: 9, Until: start.Add(time.Minute).UnixNano(), Demand: demand}}})
	e.tell(r, 9, charge(start, 1))
	if v := r.Vectors(9); len(v) != 1 || charges(v[0].Cells) != 1 {
		t.Fatalf("%v is held, want what was told last", v)
	}
	r.Exports(r.now.Add(time.Second)) // looks at all contests
	e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: 9, Cells: []crdt.Cell{charge(start, 2)}, Demand: demand}}})
	r.Exports(r.now.Add(2 * time.Second))
}
