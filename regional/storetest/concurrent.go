package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

const (
	writers = 4
	rounds  = 40
	keys    = 12
)

// plan is what writer w merges, batch by batch: counts that grow, sent again,
// overlapping with those of other writers.
func plan(s *subject, seed, w uint64) [][]regional.Item {
	r := rand.New(rand.NewPCG(seed, w))
	out := make([][]regional.Item, rounds)
	for i := range out {
		for range 1 + r.IntN(8) {
			it := item(deltasync.Key(r.IntN(keys)))
			for range 1 + r.IntN(3) {
				v := edge(r.Uint64N(3))
				if r.IntN(3) == 0 {
					v = region(r.Uint64N(2))
				}
				for back := pieces - 1; back >= 0; back-- {
					if r.IntN(8) > 0 {
						continue
					}
					c := charge(s.at(back), 1+r.Uint64N(1<<(1+r.UintN(63))))
					if r.IntN(3) == 0 {
						c.Refunds = r.Uint64N(1 << (1 + r.UintN(63)))
					}
					v.Cells = append(v.Cells, c)
				}
				it.Vectors = append(it.Vectors, v)
			}
			out[i] = append(out[i], it)
		}
	}
	return out
}

// model is the dumb twin of a store: for each key the two G-counters.
type model map[deltasync.Key]map[regional.Source]*crdt.GCounter

func (m model) merge(it regional.Item) {
	if m[it.Key] == nil {
		m[it.Key] = map[regional.Source]*crdt.GCounter{regional.FromEdge: {}, regional.FromRegion: {}}
	}
	for _, v := range it.Vectors {
		m[it.Key][v.Source].JoinCells(v.Replica, v.Cells)
	}
}

func (m model) vectors(key deltasync.Key) (out []regional.Vector) {
	for source, g := range m[key] {
		for _, e := range g.Entries() {
			out = append(out, regional.Vector{Source: source, Replica: e.Replica, Cells: e.Vector.Cells(nil)})
		}
	}
	return out
}

// exceeds returns a cell of an answer that is above what was merged.
func (m model) exceeds(a regional.Item) error {
	for _, v := range a.Vectors {
		have := m[a.Key][v.Source].Of(v.Replica)
		for _, c := range v.Cells {
			if have == nil || have.Get(c.Slice).Join(c) != have.Get(c.Slice) {
				return fmt.Errorf("key %d, source %d, replica %v: %v is more than was ever merged", a.Key, v.Source, v.Replica, c)
			}
		}
	}
	return nil
}

// testConcurrent has writers merge at once, each keeping what it sent and was
// told, as an aggregator does. In the end store and model agree, and so does
// each writer after one more exchange, in which it relies on its versions.
func testConcurrent(s *subject) {
	for seed := range uint64(3) {
		s.Wipe()
		s.start = sync.Once{} // slices of now
		s.alive(item(0), s.at(pieces-1))
		want := model{}
		plans := make([][][]regional.Item, writers)
		for w := range plans {
			plans[w] = plan(s, seed, uint64(w))
			for _, batch := range plans[w] {
				for _, it := range batch {
					want.merge(it)
				}
			}
		}

		views := make([]model, writers)
		versions := make([]map[deltasync.Key]uint64, writers)
		exchange := func(w int, batch []regional.Item) error {
			for i := range batch {
				batch[i].Version = versions[w][batch[i].Key]
			}
			out, err := s.Store.Merge(s.Context(), batch)
			if err := aligned(batch, out, err); err != nil {
				return err
			}
			for i := range out {
				if err := want.exceeds(out[i]); err != nil {
					return err
				}
				views[w].merge(batch[i])
				views[w].merge(out[i])
				versions[w][out[i].Key] = out[i].Version
			}
			return nil
		}
		errs := make([]error, writers)
		var all sync.WaitGroup
		for w := range writers {
			views[w], versions[w] = model{}, map[deltasync.Key]uint64{}
			// Ends with its plan; waited for below.
			all.Go(func() {
				for _, batch := range plans[w] {
					if errs[w] = exchange(w, batch); errs[w] != nil {
						return
					}
				}
			})
		}
		all.Wait()
		for w, err := range errs {
			if err != nil {
				s.Fatalf("seed %d, writer %d: %v", seed, w, err)
			}
		}

		for key := range deltasync.Key(keys) {
			s.holds(key, want.vectors(key)...)
			for w := range writers {
				if err := exchange(w, []regional.Item{item(key)}); err != nil {
					s.Fatalf("seed %d, writer %d, last exchange: %v", seed, w, err)
				}
				if err := differ(views[w].vectors(key), want.vectors(key)); err != nil {
					s.wrong("seed %d, writer %d, key %d: some write escaped its versions: it believes: %v", seed, w, key, err)
				}
			}
		}
	}
}
