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
	has := map[Source]*crdt.GCounter{FromEdge: {}, FromRegion: {}}
	for _, source := range []Source{FromEdge, FromRegion} {
		var at crdt.Place // stores name about all in order
		for _, v := range it.Vectors {
			if v.Source != source {
				continue
			}
			for _, cell := range v.Cells {
				has[source].JoinAt(&at, v.Replica, cell)
			}
		}
	}
	var gone []missing
	for source, stored := range has {
		entries, at := c.of(source).Entries(), crdt.Place{}
		for i := range entries {
			e := &entries[i]
			there := stored.OfAt(&at, e.Replica)
			for j := range e.Vector.Len() {
				cell := e.Vector.At(j)
				if cell.Slice < from || there != nil && there.Get(cell.Slice).Join(cell) == there.Get(cell.Slice) {
					continue
				}
				gone = append(gone, missing{source, e.Replica, cell.Slice})
				break
			}
		}
	}
	if len(gone) > mostGone {
		c.lacksAll()
	} else {
		for _, m := range gone {
			c.lacks(m.source, m.replica, m.from)
		}
	}
	return len(gone) > 0
}

// mostGone is how much that the store shed of a key is noted one by one: each is looked for
// among the others. Of more all is written again.
const mostGone = 64

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
