package trial

import "time"

// A key that an edge was only asked about may be swept before its region answers. Then
// the answer is its view's to keep, which may forget anything at any time: that costs
// accuracy until the region has been asked again (design.md §2, edge.View). So it is no
// fault that an edge has nothing of such a key when it is asked next; but it asks then,
// and is answered.

// roundsAgain is how often an edge is asked again: its sweep may come by while the first
// question is under way, and then not while the second one is.
const (
	roundsAgain   = 2
	betweenRounds = 1300 * time.Millisecond // time for an answer; sweeps come by each 0.9 or 1 s
)

// askAgain asks edges again about what their views forgot, and about nothing else.
// Where keys compete for places at edges it is no use, and agree passes over them.
func (t *trial) askAgain() error {
	if !t.has[Forget] || t.has[Evict] {
		return nil
	}
	for range roundsAgain {
		asked := false
		for _, name := range t.w.Edges() {
			for _, u := range t.people {
				if t.lacks(name, u.name) {
					t.peekAt(name, u.name)
					asked = true
				}
			}
		}
		if !asked {
			break
		}
		if err := t.advance(t.w.Now().Add(betweenRounds)); err != nil {
			return err
		}
	}
	return nil
}

// lacks says that an edge has nothing of a counter of a user, as its view forgot it.
func (t *trial) lacks(edge, user string) bool {
	for _, c := range t.counters {
		if c.user != user || !t.uses(edge, c) || !t.w.Site(edge).Forgot(c.key) {
			continue
		}
		if _, _, live := t.w.Node(edge).Cells(c.key); !live {
			return true
		}
	}
	return false
}
