package edge

import "github.com/spillgate/spillgate/crdt"

// heard is others' cells by slice, in scratch of its own.
func (s *shard) heard(b *block) []crdt.Cell {
	s.apart = b.others.Cells(s.apart[:0])
	if b.memory.spilt.Len() == 0 {
		return s.apart
	}
	for i := range s.apart { // of what others charged, or an earlier life of ours, refunds stand with us, and of ours with them
		c := &s.apart[i]
		*c = c.Plus(b.memory.spilt.Get(c.Slice))
	}
	return s.apart
}

// sums is own and others' cells by slice, in the shard's scratch.
func (s *shard) sums(b *block) []crdt.Cell {
	s.scratch = mergeCells(s.scratch[:0], &b.own, &b.others)
	return s.scratch
}

// mergeCells appends the sums by slice of two vectors.
func mergeCells(dst []crdt.Cell, a, b *crdt.Vector) []crdt.Cell {
	i, j := 0, 0
	for i < a.Len() && j < b.Len() {
		ca, cb := a.At(i), b.At(j)
		switch {
		case ca.Slice < cb.Slice:
			dst = append(dst, ca)
			i++
		case ca.Slice > cb.Slice:
			dst = append(dst, cb)
			j++
		default:
			dst = append(dst, ca.Plus(cb))
			i++
			j++
		}
	}
	for ; i < a.Len(); i++ {
		dst = append(dst, a.At(i))
	}
	for ; j < b.Len(); j++ {
		dst = append(dst, b.At(j))
	}
	return dst
}
