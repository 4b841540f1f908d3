package crdt

import (
	"cmp"
	"slices"
	"unsafe"
)

// Replica names one writer of counters. Node is a hash of who it is (an edge,
// or a whole region); Incarnation grows each time it starts with empty
// counters, so that one born again never hides under its old maximum.
type Replica struct {
	Node        uint64
	Incarnation uint64
}

// Compare orders replicas by node, then by incarnation.
func (r Replica) Compare(o Replica) int {
	if c := cmp.Compare(r.Node, o.Node); c != 0 {
		return c
	}
	return cmp.Compare(r.Incarnation, o.Incarnation)
}

// GCounter holds the vectors of all replicas of one key and keeps their sums
// by slice. The zero value is empty and ready for use. Its join is
// commutative, associative and idempotent, and nothing in it ever shrinks but
// by Retire.
type GCounter struct {
	entries []Entry // ascending by replica, no empty vector
	sums    Vector  // by slice, over all entries
	cells   int     // bytes of all vectors' cells
}

// Entry is the vector of one replica.
type Entry struct {
	Replica Replica
	Vector  Vector
}

// Join raises one cell of replica r and returns by how much it rose; a zero
// cell means that nothing changed.
func (g *GCounter) Join(r Replica, c Cell) (rise Cell) {
	var at Place
	return g.JoinAt(&at, r, c)
}

// JoinAt is Join for who joins much, replica by replica: those that come in about
// their order are found beside the one before.
func (g *GCounter) JoinAt(at *Place, r Replica, c Cell) (rise Cell) {
	if c.Zero() {
		return c
	}
	v := g.entry(at, r)
	if v.holds(&c) {
		return Cell{Slice: c.Slice}
	}
	before := v.Bytes() + g.sums.Bytes()
	rise = v.Join(c)
	g.sums.Add(rise)
	g.cells += v.Bytes() + g.sums.Bytes() - before
	return rise
}

// JoinCells joins several cells of one replica and says whether any rose.
func (g *GCounter) JoinCells(r Replica, cells []Cell) bool {
	changed, at := false, Place{}
	for _, c := range cells {
		if !g.JoinAt(&at, r, c).Zero() {
			changed = true
		}
	}
	return changed
}

// Merge joins every entry of o, which it leaves alone, and says whether
// anything rose.
func (g *GCounter) Merge(o *GCounter) bool {
	changed, at := false, Place{}
	for i := range o.entries {
		e := &o.entries[i]
		for j := range e.Vector.Len() {
			if !g.JoinAt(&at, e.Replica, e.Vector.At(j)).Zero() {
				changed = true
			}
		}
	}
	return changed
}

// Sums is the sum over all replicas by slice. It is the counter's own record:
// read it before the next change, and do not change it.
func (g *GCounter) Sums() *Vector { return &g.sums }

// Of is the vector of replica r, or nil. The same holds as for Sums.
func (g *GCounter) Of(r Replica) *Vector {
	var at Place
	return g.OfAt(&at, r)
}

// OfAt is Of for who asks for many; see JoinAt.
func (g *GCounter) OfAt(at *Place, r Replica) *Vector {
	if !g.find(at, r) {
		return nil
	}
	return &g.entries[at.at].Vector
}

// Entries are the replicas' vectors, ascending by replica. The same holds as
// for Sums.
func (g *GCounter) Entries() []Entry { return g.entries }

// Len is the number of replicas.
func (g *GCounter) Len() int { return len(g.entries) }

// Delta is the smallest counter that, merged into known, makes known no
// smaller than g: the cells in which g is larger.
func (g *GCounter) Delta(known *GCounter) *GCounter {
	d := &GCounter{}
	for i := range g.entries {
		e := &g.entries[i]
		have := known.Of(e.Replica)
		for j := range e.Vector.Len() {
			c := e.Vector.At(j)
			if have != nil && c.Join(have.Get(c.Slice)) == have.Get(c.Slice) {
				continue
			}
			d.Join(e.Replica, c)
		}
	}
	return d
}

// Retire drops the cells of slices before s, and the replicas that have none
// left, and returns the number of cells dropped.
func (g *GCounter) Retire(before Slice) int {
	dropped := 0
	for i := range g.entries {
		dropped += g.entries[i].Vector.Retire(before)
	}
	if dropped > 0 {
		g.entries = slices.DeleteFunc(g.entries, func(e Entry) bool { return e.Vector.Len() == 0 })
		g.sums.Retire(before)
		g.cells = g.measure()
	}
	return dropped
}

// Bytes is the memory that the counter holds besides itself.
func (g *GCounter) Bytes() int { return cap(g.entries)*int(unsafe.Sizeof(Entry{})) + g.cells }

func (g *GCounter) measure() int {
	bytes := g.sums.Bytes()
	for i := range g.entries {
		bytes += g.entries[i].Vector.Bytes()
	}
	return bytes
}

// Clone is a copy that shares no memory with g.
func (g *GCounter) Clone() *GCounter {
	c := &GCounter{entries: slices.Clone(g.entries), sums: g.sums.Clone()}
	for i := range c.entries {
		c.entries[i].Vector = c.entries[i].Vector.Clone()
	}
	c.cells = c.measure()
	return c
}

// Equal says that both hold the same counts.
func (g *GCounter) Equal(o *GCounter) bool {
	return slices.EqualFunc(g.entries, o.entries, func(a, b Entry) bool {
		if a.Replica != b.Replica || a.Vector.Len() != b.Vector.Len() {
			return false
		}
		for i := range a.Vector.Len() {
			if a.Vector.At(i) != b.Vector.At(i) {
				return false
			}
		}
		return true
	})
}

// Place is where the replica that was looked for last stands in a counter, or would.
// It is a hint: whatever it says, and however the counter changed since, what is
// found is right.
type Place struct{ at int }

func (g *GCounter) entry(at *Place, r Replica) *Vector {
	if !g.find(at, r) {
		g.entries = slices.Insert(g.entries, at.at, Entry{Replica: r})
	}
	return &g.entries[at.at].Vector
}

// find moves the place to replica r, or to where it belongs. It goes on from where it
// is in steps that double, and bisects the last one.
func (g *GCounter) find(at *Place, r Replica) bool {
	from, to := 0, len(g.entries) // r stands, or belongs, in between, both included
	if i := at.at; i < to {
		switch c := g.entries[i].Replica.Compare(r); {
		case c == 0:
			return true
		case c > 0:
			to = i
		default:
			from = i + 1
			for step := 1; from < to; step *= 2 {
				if i = min(from+step-1, to-1); g.entries[i].Replica.Compare(r) >= 0 {
					to = i
					break
				}
				from = i + 1
			}
		}
	}
	for from < to {
		if mid := int(uint(from+to) >> 1); g.entries[mid].Replica.Compare(r) < 0 {
			from = mid + 1
		} else {
			to = mid
		}
	}
	at.at = from
	return from < len(g.entries) && g.entries[from].Replica == r
}
