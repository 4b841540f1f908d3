package edge

import "time"

// settle stops the faults and demands that all agree: after twenty seconds of
// a good network, in which busy keys go on, and three of rest.
func (w *advWorld) settle() {
	w.faulty = false
	w.good(20*time.Second, w.busy)
	for _, r := range w.regions { // knows nothing but what its region tells
		w.join(r, "reader", false)
	}
	w.good(3*time.Second, false)
	for _, n := range w.nodes {
		for _, user := range w.users {
			w.verifyExact(n, user)
		}
	}
}

// good lets time pass with everything working.
func (w *advWorld) good(d time.Duration, busy bool) {
	for round, end := 0, w.now.Add(d); w.now.Before(end); round++ {
		for _, n := range w.nodes {
			if busy && w.rnd.IntN(20) == 0 {
				w.request(n, w.users[w.rnd.IntN(len(w.users))])
			}
			if !busy && round%50 == 0 {
				w.ask(n)
			}
			w.flush(n)
			n.Tick(w.now)
		}
		for _, r := range w.regions {
			w.export(r)
			w.sync(r)
			r.agg.Tick(w.now)
		}
		w.now = w.now.Add(20 * time.Millisecond)
		w.deliver()
	}
}

// ask peeks at every key, so that the edge hears of it.
func (w *advWorld) ask(n *advNode) {
	for _, user := range w.users {
		req := n.Rules().Only().NewRequest()
		req.Set("user", user)
		req.Peek = true
		n.Check(w.now, req)
		req.Release()
	}
}

// verifyExact demands that an edge which has the key live believes the truth.
func (w *advWorld) verifyExact(n *advNode, user string) {
	key := w.keys[user]
	r := n.shard(key).find(key)
	if r == nil || w.evicts && n.cfg.Name != "reader" {
		return
	}
	reach := r.block.rate.Reach(w.now.UnixNano())
	believed, truth := uint64(0), uint64(0)
	for _, c := range counted(r) {
		if c.Slice >= reach {
			believed += c.Charges
		}
	}
	for slice, hits := range w.truth[user] {
		if slice >= reach {
			truth += hits
		}
	}
	if believed != truth {
		w.failf("after the faults %s/%s believes %d of %s, truth %d", n.region.name, n.cfg.Name, believed, user, truth)
	}
}
