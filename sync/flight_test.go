package deltasync

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/test/alone"
)

// Frames are answered and lost in any order, and limits rise meanwhile: a count
// is never told smaller than it was told before, nor under an older limit, and
// all of it arrives.
func TestNothingIsToldSmaller(t *testing.T) {
	alone.Mark(t)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		o := NewOutbox(OutboxConfig{MaxInFlight: 1 + r.IntN(4), MaxFrame: 1024})
		var counts, told, arrived [40]crdt.Vector
		var flying []*Up
		limit, limits := minute.Limit, [40]uint64{} // in force, and as told last
		refreshes := [40]bool{}                     // told as a refresh, and not answered yet
		end := func(i int, done bool) {
			u := flying[i]
			flying = slices.Delete(flying, i, i+1)
			if !done {
				o.Lost(u.Seq)
				return
			}
			for _, s := range o.Done(u.Seq).Sections {
				for _, d := range s.Deltas {
					for _, c := range d.Cells {
						arrived[d.Key-1].Join(c)
					}
					if d.Flags&FlagRefresh != 0 {
						refreshes[d.Key-1] = false
					}
				}
			}
		}
		next := func() {
			u := o.Next(Up{Kind: KindEdge})
			if u == nil {
				return
			}
			flying = append(flying, u)
			for _, s := range u.Sections {
				for _, d := range s.Deltas {
					if was := &limits[d.Key-1]; s.Shape.Limit < *was {
						t.Fatalf("seed %d: key %d is told under limit %d after %d", seed, d.Key, s.Shape.Limit, *was)
					} else {
						*was = s.Shape.Limit
					}
					for _, c := range d.Cells {
						if was := told[d.Key-1].Get(c.Slice); c.Charges < was.Charges {
							t.Fatalf("seed %d: key %d is told %+v after %+v", seed, d.Key, c, was)
						}
						told[d.Key-1].Join(c)
					}
				}
			}
		}
		for range 300 {
			switch n := r.IntN(10); {
			case n < 5:
				k := r.IntN(len(counts))
				counts[k].Add(crdt.Cell{Slice: crdt.Slice(r.IntN(3)), Charges: 1})
				d := Delta{Key: Key(k + 1), Cells: counts[k].Cells(nil)}
				if r.IntN(4) == 0 {
					d.Flags, refreshes[k] = FlagRefresh, true
				} else if r.IntN(2) == 0 { // a part of it
					d.Cells = d.Cells[len(d.Cells)-1:]
				}
				if r.IntN(3) == 0 {
					d.Flags |= FlagUrgent
				}
				if r.IntN(40) == 0 {
					limit++
				}
				shape := minute
				if shape.Limit = limit; !o.Put(shape, 1, d) {
					t.Fatalf("seed %d: no room", seed)
				}
			case n < 7:
				next()
			case len(flying) > 0:
				end(r.IntN(len(flying)), n < 9)
			}
		}
		for o.Pending() > 0 || len(flying) > 0 {
			if next(); len(flying) > 0 {
				end(0, true)
			}
		}
		for k := range told {
			for _, c := range told[k].Cells(nil) {
				if arrived[k].Get(c.Slice) != c {
					t.Fatalf("seed %d: key %d told %+v, %+v arrived", seed, k+1, c, arrived[k].Get(c.Slice))
				}
			}
			if refreshes[k] {
				t.Fatalf("seed %d: a refresh of key %d got lost", seed, k+1)
			}
		}
	}
}

// What a newer frame does not tell of a key, a penalty or a level, the older one
// tells again when it was lost; what it does tell, not.
func TestPenaltiesAndLevelsAreToldAgain(t *testing.T) {
	bucket := minute
	bucket.Refill, bucket.RefillPer = 1, time.Second
	cells := []crdt.Cell{{Slice: 5, Charges: 1}}
	more := []crdt.Cell{{Slice: 5, Charges: 2}}
	for name, test := range map[string]struct {
		older, newer Delta
		want         bool
	}{
		"a penalty":               {Delta{Until: 999}, Delta{Cells: more}, true},
		"a penalty with cells":    {Delta{Cells: cells, Until: 999}, Delta{Cells: more}, true},
		"a penalty that was told": {Delta{Cells: cells, Until: 999}, Delta{Cells: more, Until: 999}, false},
		"a level":                 {Delta{Carry: crdt.Carry{Boundary: 3, Level: 7}}, Delta{Cells: more}, true},
		"a level that was told":   {Delta{Carry: crdt.Carry{Boundary: 3, Level: 7}}, Delta{Cells: more, Carry: crdt.Carry{Boundary: 4, Level: 1}}, false},
		"cells":                   {Delta{Cells: cells}, Delta{Cells: more}, false},
	} {
		for _, answered := range []bool{false, true} { // the newer one before the older was lost
			o := NewOutbox(OutboxConfig{})
			test.older.Key, test.newer.Key = 7, 7
			put := func(d Delta) *Up {
				if !o.Put(bucket, 1, d) {
					t.Fatalf("%s: no room", name)
				}
				return o.Next(Up{Kind: KindEdge})
			}
			older, newer := put(test.older), put(test.newer)
			if answered {
				o.Done(newer.Seq)
			}
			o.Lost(older.Seq)
			if !answered {
				o.Done(newer.Seq)
			}
			again := o.Next(Up{Kind: KindEdge})
			if (again != nil) != test.want {
				t.Errorf("%s, the newer answered first %v: told again %v, want %v", name, answered, again != nil, test.want)
				continue
			}
			if again != nil {
				if d := again.Sections[0].Deltas[0]; d.Until != test.older.Until || d.Carry != test.older.Carry || len(d.Cells) > 0 {
					t.Errorf("%s: told again %+v, want what is left of %+v", name, d, test.older)
				}
			}
		}
	}
}
