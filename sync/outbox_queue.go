package deltasync

// What waits goes by rank, and within one in the order in which it came.
const (
	foremost = iota // with FlagFirst
	hurried         // urgent
	steady          // with FlagRegular
	ranks    = steady + 2
)

func rankOf(f Flags) int {
	switch {
	case f&FlagFirst != 0:
		return foremost
	case f&FlagUrgent != 0:
		return hurried
	case f&FlagRegular != 0:
		return steady
	}
	return ranks - 1
}

// kept is how many bytes of a frame a rank leaves to those behind, as long as it
// is their turn to come.
func (o *Outbox) kept(rank int) int {
	if rank == ranks-1 {
		return 0
	}
	return o.cfg.MaxFrame >> (2 + rank)
}

// queue is a list of entries in the order in which they came.
type queue struct {
	first, last *entry
	waits       int // places that they take
}

func (q *queue) push(e *entry) {
	if e.prev = q.last; e.prev != nil {
		e.prev.next = e
	} else {
		q.first = e
	}
	q.last = e
	q.waits += int(e.places)
}

func (q *queue) remove(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.last = e.prev
	}
	e.prev, e.next = nil, nil
	q.waits -= int(e.places)
}
