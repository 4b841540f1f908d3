package regional

import "github.com/spillgate/spillgate/crdt"

// shed notes what the store had once and has no more, by an answer that names all
// that it has of a key and is joined: a full Redis sheds what expires soonest,
// whatever that counts, and its epoch does not change by it. Only what still counts
// is looked at: of what is older, the store's clock decides.
func (l *lane) shed(c *counter, it *Item, now int64) (any bool) {
	from := reach(c.shape, now)
	if chargesOf(c, from) == chargesIn(it, from) {
		return false // nothing, or as good as nothing: refunds of charges that are there
	}
	for _, source := range []Source{FromEdge, FromRegion} {
		entries := c.of(source).Entries()
		for i := range entries {
			e := &entries[i]
			var has crdt.Vector // a replica may stand there twice
			for _, v := range it.Vectors {
				if v.Source != source || v.Replica != e.Replica {
					continue
				}
				for _, cell := range v.Cells {
					has.Join(cell)
				}
			}
			for j := range e.Vector.Len() {
				cell := e.Vector.At(j)
				if cell.Slice >= from && has.Get(cell.Slice).Join(cell) != has.Get(cell.Slice) {
					c.lacks(source, e.Replica, cell.Slice)
					any = true
					break
				}
			}
		}
	}
	return any
}

// complete says that an answer names all that the store has of the key.
func (i *Item) complete() bool { return i.Version == 0 || i.knows() }

func chargesOf(c *counter, from crdt.Slice) (sum uint64) {
	for _, v := range []*crdt.Vector{c.edges.Sums(), c.regions.Sums()} {
		for i := v.Len() - 1; i >= 0 && v.At(i).Slice >= from; i-- {
			sum = crdt.SatAdd(sum, v.At(i).Charges)
		}
	}
	return sum
}

func chargesIn(it *Item, from crdt.Slice) (sum uint64) {
	for _, v := range it.Vectors {
		for _, cell := range v.Cells {
			if cell.Slice >= from && (v.Source == FromEdge || v.Source == FromRegion) {
				sum = crdt.SatAdd(sum, cell.Charges)
			}
		}
	}
	return sum
}
