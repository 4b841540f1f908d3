package limit

import (
	"math/bits"
	"slices"
	"strings"
)

// widest is how many places of a tree a path may lead to before patterns are found by
// rows: a client chooses the path, and of names and stars in turn each segment could
// lead to twice as many places as the one before. So may a part of the patterns where
// they are very many, as rows are read to their end.
func widest(patterns int) int { return max(32, patterns/256) }

// pathRows is patterns with many stars, a bit for each in rows for what may stand at a
// place: what a path takes is the bits that are in all of its rows, 64 patterns at a
// time, and takes as long whatever the path.
type pathRows struct {
	found  []*index // by the lowest rank inside
	levels []pathLevel
	ends   [][]uint64 // by how many segments there are: who takes so many, the last for all beyond
}

// pathLevel is what patterns want of a segment.
type pathLevel struct {
	open  []uint64           // nothing: they take whatever follows
	star  []uint64           // nothing, or that it is not empty
	names map[string][]chunk // who wants just this one
}

// chunk is a part of a row that has few.
type chunk struct {
	at   int
	bits uint64
}

// placed is a pattern with the rules that stand there.
type placed struct {
	pattern
	found *index
}

// rowsOf makes rows of patterns, unless a tree finds them as fast.
func rowsOf(tree *pathNode) *pathRows {
	if width := tree.width(); width <= widest(0) || width <= widest(tree.count()) {
		return nil
	}
	all := tree.list(nil, nil)
	slices.SortStableFunc(all, func(a, b placed) int { return int(a.found.min - b.found.min) })
	depth := 0
	for _, p := range all {
		depth = max(depth, len(p.segments))
	}
	row := func() []uint64 { return make([]uint64, (len(all)+63)/64) }
	rows := &pathRows{levels: make([]pathLevel, depth), ends: make([][]uint64, depth+2)}
	for i := range rows.ends {
		rows.ends[i] = row()
	}
	for i := range rows.levels {
		rows.levels[i] = pathLevel{open: row(), star: row(), names: map[string][]chunk{}}
	}
	for i, p := range all {
		rows.found = append(rows.found, p.found)
		at, bit := i/64, uint64(1)<<(i%64)
		for n := range rows.ends {
			if n == len(p.segments) || n > len(p.segments) && p.rest {
				rows.ends[n][at] |= bit
			}
		}
		for k := range rows.levels {
			switch level := &rows.levels[k]; {
			case k >= len(p.segments):
				level.open[at] |= bit
				level.star[at] |= bit
			case p.segments[k] == "*":
				level.star[at] |= bit
			default:
				level.put(p.segments[k], chunk{at, bit})
			}
		}
	}
	return rows
}

// put adds a bit, which comes after those that are there.
func (l *pathLevel) put(name string, w chunk) {
	have := l.names[name]
	if n := len(have); n > 0 && have[n-1].at == w.at {
		have[n-1].bits |= w.bits
		return
	}
	l.names[name] = append(have, w)
}

// pathHits are the patterns that take a path, in turn.
type pathHits struct {
	at    int
	left  uint64 // of those at this place
	ends  []uint64
	wants [maxSegments]pathWant
	n     int
}

// pathWant is who takes a segment: who is in the row, or in some chunks of it.
type pathWant struct {
	row  []uint64
	some []chunk
}

// of begins with the patterns that take the path with these segments.
func (h *pathHits) of(rows *pathRows, path string) {
	n, more := 0, true
	for ; more && n < len(rows.levels); n++ {
		var seg string
		seg, path, more = strings.Cut(path, "/")
		level := &rows.levels[n]
		h.wants[n] = pathWant{row: level.star, some: level.names[seg]}
		if seg == "" {
			h.wants[n].row = level.open
		}
	}
	h.n = n
	if more {
		n++
	}
	h.at, h.ends = -1, rows.ends[n]
}

// next is the place of the next pattern, or -1.
func (h *pathHits) next() int {
	for h.left == 0 {
		if h.at++; h.at >= len(h.ends) {
			return -1
		}
		h.left = h.ends[h.at]
		for i := 0; i < h.n && h.left != 0; i++ {
			h.left &= h.wants[i].bits(h.at)
		}
	}
	i := bits.TrailingZeros64(h.left)
	h.left &= h.left - 1
	return 64*h.at + i
}

// bits are those at a place. Places are asked for by rising order.
func (w *pathWant) bits(at int) uint64 {
	for len(w.some) > 0 && w.some[0].at < at {
		w.some = w.some[1:]
	}
	if len(w.some) > 0 && w.some[0].at == at {
		return w.row[at] | w.some[0].bits
	}
	return w.row[at]
}

func (rows *pathRows) has(path string) bool {
	var h pathHits
	h.of(rows, path)
	return h.next() >= 0
}

func (rows *pathRows) lowest(q *query, path string, before int32) int32 {
	var h pathHits
	h.of(rows, path)
	for i := h.next(); i >= 0 && rows.found[i].min < before; i = h.next() {
		before = rows.found[i].lowest(q, before)
	}
	return before
}
