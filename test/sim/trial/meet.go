package trial

import (
	"fmt"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge"
)

// meet picks the users. Where keys compete they all stand in one shard of the
// ledger.
func (t *trial) meet() error {
	shard := -1
	for i := 0; len(t.people) < t.users; i++ {
		u := person{name: fmt.Sprint("u", i)}
		beliefs := t.introduce(u.name)
		at := int(uint64(beliefs[0].Key) >> 56)
		if t.has[Evict] && shard >= 0 && at != shard {
			continue
		}
		shard = at
		for _, b := range beliefs {
			c := t.counts(u.name, b)
			c.now = true
			u.now = append(u.now, c)
		}
		t.people = append(t.people, u)
	}
	if !t.has[Generation] {
		return nil
	}
	first := t.w.Edges()[0] // which has counted nothing
	if err := t.w.SetRules(first, t.rules(version{anew: true})); err != nil {
		return err
	}
	for i := range t.people {
		u := &t.people[i]
		for _, b := range t.introduce(u.name) {
			c := t.counts(u.name, b)
			c.anew = true
			u.anew = append(u.anew, c)
		}
	}
	return t.w.SetRules(first, t.rules(version{}))
}

// seats is for how many of the counters edges have places. Those of a rule that counts
// anew stand in other shards.
func (t *trial) seats() (room int) {
	of := map[uint64]int{}
	for _, c := range t.counters {
		shard := uint64(c.key) >> 56
		if of[shard]++; of[shard] <= places {
			room++
		}
	}
	return room
}

// introduce asks the first edge for the counters of a user.
func (t *trial) introduce(user string) []edge.Belief {
	n := t.w.Node(t.w.Edges()[0])
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Inspect(start, req)
}

// counts is the counter of a rate and a user, which both generations may use.
func (t *trial) counts(user string, b edge.Belief) *counter {
	c := t.keys[b.Key]
	if c == nil {
		c = &counter{
			user: user, rate: b.Rate, key: b.Key, byRegion: map[string]*crdt.Vector{}, byLife: map[life]*crdt.Vector{},
			stored: map[life]map[crdt.Replica]*crdt.Vector{},
		}
		t.counters = append(t.counters, c)
		t.keys[b.Key] = c
	}
	if c.rate.Algorithm != b.Rate.Algorithm || c.rate.Window != b.Rate.Window {
		t.failf("generation", "%s counts in %v for %s in the counter of %s in %v", user, b.Rate.Window, b.Rate.Algorithm, c.rate.Algorithm, c.rate.Window)
	}
	return c
}

// of are the counters of a user, of whatever generation.
func (t *trial) of(user int) (all []*counter) {
	for _, c := range t.counters {
		if c.user == t.people[user].name {
			all = append(all, c)
		}
	}
	return all
}
