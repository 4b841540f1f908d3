package regional_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// greedy is a PoP whose edges invent what they tell, and hot their keys: at their limit,
// so that they matter as much as any.
const greedy = "m"

var hot = func() deltasync.Shape {
	s := minute
	s.Generation, s.Limit = 77, 1
	return s
}()

// floods has a greedy edge name n keys from one on.
func floods(r *region, from deltasync.Key, n int) {
	r.t.Helper()
	e := &edge{name: fmt.Sprint("f", from), pop: greedy}
	for ; n > 0; n -= 500 {
		sec := deltasync.Section{Shape: hot}
		for range min(n, 500) {
			sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: from, Cells: []crdt.Cell{charge(r.now, 5)}})
			from++
		}
		e.send(r, sec)
	}
}

// stuck is a store in which writes of keys up to one take until they are let go on.
type stuck struct {
	regional.Store
	upTo    deltasync.Key
	writing chan struct{} // one for each that has begun
	end     chan struct{} // nil: none waits
}

func (s *stuck) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if s.end != nil && batch[0].Key <= s.upTo {
		s.writing <- struct{}{}
		<-s.end
	}
	return s.Store.Merge(ctx, batch)
}

// A PoP invents lives of some keys until a lane holds no more, and has all of these being
// written at once: they can make no room. There is room for what others tell.
func TestOnePoPDoesNotFillALane(t *testing.T) {
	const budget, keys, lives = 1 << 19, 20, 500
	store := &stuck{Store: newStore(&start), upTo: keys, writing: make(chan struct{}, 1)}
	r := small(t, regional.Config{Boot: still, MaxBytes: budget}, store)
	frame := func(name string, life uint32, seq, charges uint64) deltasync.Down {
		sec := deltasync.Section{Shape: minute, Life: life}
		for key := deltasync.Key(1); key <= keys; key++ {
			sec.Deltas = append(sec.Deltas, deltasync.Delta{Key: key, Cells: []crdt.Cell{charge(start, charges)}})
		}
		return (&edge{name: name, pop: greedy, seq: seq}).send(r, sec)
	}
	(&edge{name: "e", pop: "p"}).used(r, 50, 1e6, 20)
	for life := range uint32(lives) {
		frame("m", life, uint64(life), 1)
	}
	if st := r.Stats(start); st.Bytes < budget/8*7 || st.Bytes > budget {
		t.Fatalf("the lane takes %d bytes of %d, want about all of it taken", st.Bytes, budget)
	}
	store.end = make(chan struct{})
	var writes sync.WaitGroup
	for life := range uint32(4) { // over again, by lives that are known
		done := make(chan struct{})
		writes.Go(func() { // until store.end is closed
			defer close(done)
			frame("m", life, uint64(lives+life), 3)
		})
		select {
		case <-store.writing:
		case <-done:
			t.Fatal("what is told again is not written")
		}
	}
	for i := range 50 {
		e := &edge{name: fmt.Sprint("h", i), pop: "p"}
		if down := e.tell(r, deltasync.Key(2e6+i), charge(start, 50)); len(down.Refused) > 0 {
			t.Fatalf("the %d. key of another PoP is refused: %v", i+1, down.Status)
		}
	}
	if st := r.Stats(start); st.Bytes > budget {
		t.Errorf("the lane takes %d bytes of %d", st.Bytes, budget)
	}
	close(store.end)
	writes.Wait()
}

// A flood of one PoP's keys has no key of another forgotten, but its own: what bounds a
// PoP is remembered with the key.
func TestFloodPutsOutNobodyElses(t *testing.T) {
	alone.Mark(t)
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 20}, newStore(&start))
	(&edge{name: "e1", pop: "p"}).tell(r, 9, charge(start, 3)) // little of its limit
	floods(r, 1000, 20)
	for from := deltasync.Key(10_000); from < 40_000; from += 500 {
		floods(r, from, 500)
		r.now = r.now.Add(20 * time.Millisecond)
	}
	if len(r.Vectors(9)) == 0 {
		t.Error("a flood of another PoP's keys has the key forgotten")
	}
	if len(r.Vectors(1000)) > 0 {
		t.Error("a key of the flood's PoP is held still: there was no flood")
	}
	if st := r.Stats(r.now); st.Evicted == 0 || st.Full > 0 {
		t.Errorf("%+v, want keys to make room for all that came", st)
	}
}

// Who has the lane alone has to leave others their part as they come, as far as they need
// it, and has the rest.
func TestPoPsShareALane(t *testing.T) {
	alone.Mark(t)
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 20}, newStore(&start))
	of := func(pop string) float64 {
		paid, _ := r.Paid()
		return float64(paid[deltasync.PopOf(deltasync.NodeID("eu", pop, "x"))]) / (1 << 20)
	}
	fill := func(pop string, from deltasync.Key, keys int) {
		e := &edge{name: "e", pop: pop, seq: uint64(from)}
		for ; keys > 0; keys -= 100 {
			e.used(r, 5, from, 100)
			from += 100
			r.now = r.now.Add(20 * time.Millisecond)
		}
	}
	fill("a", 1e6, 4000)
	if part := of("a"); part < .85 || part > 15./16 {
		t.Errorf("the first has %.3f of the lane, want some 15 of 16 parts", part)
	}
	fill("b", 2e6, 200)
	few := of("b")
	fill("a", 3e6, 4000)
	if a, b := of("a"), of("b"); b < few*.9 || a < .75 {
		t.Errorf("beside one that needs %.3f, and has %.3f, the first has %.3f, want the rest", few, b, a)
	}
	for from := deltasync.Key(4e6); from < 5e6; from += 5e4 {
		fill("a", from, 400)
		fill("b", from+2e4, 400)
	}
	if a, b := of("a"), of("b"); a < .4 || b < .4 || a+b > 30./31 {
		t.Errorf("of two that need all they have %.3f and %.3f, want 15 parts of 31 each", a, b)
	}
}

// What PoPs have is the sum over counters, whoever comes and goes.
func TestPoPsPayForWhatIsHeld(t *testing.T) {
	alone.Mark(t)
	now := start
	store := memstore.New(memstore.Config{Now: func() time.Time { return now }, Seed: 1})
	r := small(t, regional.Config{Boot: still, MaxBytes: 1 << 18}, store)
	random := rand.New(rand.NewPCG(1, 2))
	seqs := map[string]uint64{}
	checked, shared := 0, 0
	for range 3000 {
		name, pop := fmt.Sprint("e", random.IntN(3)), fmt.Sprint("p", random.IntN(4))
		seqs[pop+name]++
		e := &edge{name: name, pop: pop, seq: seqs[pop+name]}
		key := deltasync.Key(1 + random.IntN(1000))
		switch random.IntN(10) {
		case 0:
			e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{Key: key, Until: now.Add(time.Minute).UnixNano()}}})
		case 1:
			wide := minute
			wide.Width, wide.Generation = 10*time.Second, 8
			e.send(r, deltasync.Section{Shape: wide, Deltas: []deltasync.Delta{{Key: key, Cells: []crdt.Cell{{Slice: crdt.Slice(now.UnixNano() / 1e10), Charges: 1}}}}})
		default:
			e.live(r, uint32(random.IntN(5)), key%50+1, charge(now, 1+uint64(random.IntN(300))))
			e.tell(r, key, charge(now, 1+uint64(random.IntN(300))))
		}
		if now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond); random.IntN(30) == 0 {
			r.now = now
			r.Tick(now)
		}
		r.now = now
		paid, due := r.Paid()
		if !maps.Equal(paid, due) {
			t.Fatalf("PoPs are said to have %v, and have %v", paid, due)
		}
		checked += len(paid)
		if len(paid) > 2 {
			shared++
		}
	}
	if st := r.Stats(now); st.Evicted == 0 || shared < 1000 {
		t.Errorf("%d keys made room, %d times three shared the lane: too few", st.Evicted, shared)
	}
}
