package edge

// A shard counts how many of its records each namespace has, so that one
// namespace that floods it makes room for itself before others have to: who has
// more than an equal part of the records loses some first. What some leave of
// their part is lent to the others.

// spaceShift is where a record's flags tell its namespace; see limit.Rate.Space.
const spaceShift = 8

const _ = 1<<spaceShift - 2*untold // there are more flags than have room beside the namespace

func (r *record) space() uint8 { return uint8(r.flags >> spaceShift) }

// enter counts a new record.
func (s *shard) enter(r *record, space uint8) {
	r.flags |= flags(space) << spaceShift
	for int(space) >= len(s.spaces) { // most nodes have few, and there are many shards
		s.spaces = append(s.spaces, 0)
	}
	if s.spaces[space]++; s.spaces[space] == 1 {
		s.namespaces++
	}
}

// leave takes a record off the count.
func (s *shard) leave(r *record) {
	if int(r.space()) >= len(s.spaces) || s.spaces[r.space()] == 0 {
		return // it never entered
	}
	if s.spaces[r.space()]--; s.spaces[r.space()] == 0 {
		s.namespaces--
	}
}

// greedy says that the record's namespace has more than its part.
func (s *shard) greedy(r *record) bool {
	return s.namespaces < 2 || int(s.spaces[r.space()])*s.namespaces > s.used
}
