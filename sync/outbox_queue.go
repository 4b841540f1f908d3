package deltasync

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
