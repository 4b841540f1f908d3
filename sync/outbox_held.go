package deltasync

// Held is the number of deltas that wait or are under way.
func (o *Outbox) Held() int { return o.Pending() + o.inFlight }

// taken is how many of MaxDeltas places are taken.
func (o *Outbox) taken() int {
	taken := o.flying
	for i := range o.queues {
		taken += o.queues[i].waits
	}
	return taken
}

// HeldCounts is Held without the deltas that only ask: nothing is lost with
// those. It looks at every delta: it is for a sender that is about to stop.
func (o *Outbox) HeldCounts() int {
	held := 0
	for _, q := range o.queues {
		for e := q.first; e != nil; e = e.next {
			if e.tells() {
				held++
			}
		}
	}
	count := func(_ *Section, d *Delta) {
		if d.Tells() {
			held++
		}
	}
	if o.begun != nil {
		o.begun.each(count)
	}
	for _, f := range o.flights {
		f.each(count)
	}
	return held
}

// Pending is the number of deltas that wait.
func (o *Outbox) Pending() int {
	if o.begun == nil {
		return o.entries.taken
	}
	return o.entries.taken + o.begun.deltas
}

// InFlight is the number of frames under way.
func (o *Outbox) InFlight() int { return len(o.flights) }

// First says whether a delta with FlagFirst waits.
func (o *Outbox) First() bool { return o.queues[foremost].waits > 0 }

// Urgent says whether an urgent delta waits.
func (o *Outbox) Urgent() bool { return o.First() || o.queues[hurried].waits > 0 }
