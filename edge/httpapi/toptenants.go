package httpapi

import (
	"hash/maphash"
	"slices"
	"sync"
)

const (
	// topTenants is how many tenants of a namespace are told of.
	topTenants = 50
	topParts   = 8 // each with a lock of its own
)

// top knows which tenants were counted most: each part those of some tenants, as many as are told of in
// all, so that none is missed. One that is new takes the place of the one that was counted least, and
// begins with its count, which is then by how much it may be too high (Metwally's space-saving).
type top struct {
	seed  maphash.Seed
	parts [topParts]topPart
}

type topPart struct {
	mu     sync.Mutex // guards what follows
	places map[uint64]int
	slots  []topSlot
	_      [64]byte // parts share no cache line
}

type topSlot struct {
	hash   uint64
	name   []byte // whose room the next one has
	count  uint64
	denied uint64 // of these, since it is watched
	excess uint64 // by which count may be too high, at the most
}

func newTop() *top {
	t := &top{seed: maphash.MakeSeed()}
	for i := range t.parts {
		t.parts[i].places = make(map[uint64]int, topTenants)
	}
	return t
}

// add counts a tenant.
func (t *top) add(tenant string, denied bool) {
	hash := maphash.String(t.seed, tenant)
	p := &t.parts[hash%topParts]
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.places[hash]
	switch {
	case known:
	case len(p.slots) < topTenants:
		at = len(p.slots)
		p.slots = append(p.slots, topSlot{hash: hash, name: []byte(tenant)})
		p.places[hash] = at
	default:
		at = 0
		for i := range p.slots {
			if p.slots[i].count < p.slots[at].count {
				at = i
			}
		}
		s := &p.slots[at]
		delete(p.places, s.hash)
		p.places[hash] = at
		*s = topSlot{hash: hash, name: append(s.name[:0], tenant...), count: s.count, excess: s.count}
	}
	s := &p.slots[at]
	if s.count++; denied {
		s.denied++
	}
}

// TopTenant is one of the tenants that were counted most.
type TopTenant struct {
	Tenant   string `json:"tenant"`
	Requests uint64 `json:"requests,omitempty"`
	Denied   uint64 `json:"denied"`
	Excess   uint64 `json:"excess,omitempty"` // by how much the number that they are listed by may be too high
}

// list is those that were counted most.
func (t *top) list(most int, of func(*topSlot) TopTenant) []TopTenant {
	var all []topSlot
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		for _, s := range p.slots {
			s.name = slices.Clone(s.name)
			all = append(all, s)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b topSlot) int {
		switch {
		case a.count != b.count && a.count > b.count:
			return -1
		case a.count != b.count:
			return 1
		}
		return slices.Compare(a.name, b.name)
	})
	out := make([]TopTenant, 0, min(most, len(all)))
	for i := range all[:min(most, len(all))] {
		out = append(out, of(&all[i]))
	}
	return out
}
