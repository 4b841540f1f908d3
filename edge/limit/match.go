package limit

import (
	"net/netip"
	"slices"
)

// match is a compiled MatchSpec.
type match struct {
	all      bool // it wants nothing
	paths    []pattern
	tree     *pathTree // of the paths, where they are many
	methods  choice
	hosts    hosts
	networks networks
	equals   []equal
	has      []source
	lacks    []source
	when     Condition // nil: always
	text     string    // of when
	wants    []fact    // what it needs to hold

	whenByPath bool // it reads the path
}

// source is a name in key, has, lacks or equals, with the attributes that it
// stands for in order of preference.
type source struct {
	name  string
	slots []int
}

// equal wants the value of a name to be one of some.
type equal struct {
	source
	choice
}

func (m *match) matches(r *Rule, req *Request) bool {
	if len(m.methods.values) > 0 && !m.methods.has(req.attrs[slotMethod]) {
		return false
	}
	for i := range m.equals {
		if e := &m.equals[i]; !e.has(req.first(e.slots)) {
			return false
		}
	}
	for i := range m.has {
		if req.first(m.has[i].slots) == "" {
			return false
		}
	}
	for i := range m.lacks {
		if req.first(m.lacks[i].slots) != "" {
			return false
		}
	}
	if !m.hosts.any() && !m.hosts.matches(req.host()) {
		return false
	}
	if len(m.networks.ranges) > 0 && !m.networks.has(req.addr()) {
		return false
	}
	if len(m.paths) > 0 && !m.matchesPath(req.attrs[slotPath]) {
		return false
	}
	if m.when == nil {
		return true
	}
	ok, err := m.when.Holds(req)
	if err != nil {
		r.counts.failures.Add(1)
		return false
	}
	return ok
}

// pathsAlone says that the path decides, and nothing of it lies deeper than an
// index looks.
func (m *match) pathsAlone() bool {
	deep := func(p pattern) bool { return len(p.segments) > indexedSegments }
	return len(m.paths) > 0 && !slices.ContainsFunc(m.paths, deep) &&
		len(m.methods.values)+len(m.equals)+len(m.has)+len(m.lacks)+len(m.networks.ranges) == 0 && m.hosts.any() && m.when == nil
}

func (m *match) matchesPath(path string) bool {
	if m.tree != nil {
		rest, ok := pathSegments(path)
		return ok && m.tree.has(rest)
	}
	for i := range m.paths {
		if m.paths[i].matches(path) {
			return true
		}
	}
	return false
}

// choice is a list of words, found by a map where they are many.
type choice struct {
	values []string
	places map[string]struct{}
}

// scanned is how many words are compared one by one: a map is faster only
// beyond.
const scanned = 8

func (c *choice) add(word string) {
	if c.has(word) {
		return
	}
	c.values = append(c.values, word)
	switch {
	case c.places != nil:
		c.places[word] = struct{}{}
	case len(c.values) > scanned:
		c.places = make(map[string]struct{}, len(c.values))
		for _, v := range c.values {
			c.places[v] = struct{}{}
		}
	}
}

func (c *choice) has(word string) bool {
	if c.places != nil {
		_, ok := c.places[word]
		return ok
	}
	return slices.Contains(c.values, word)
}

func (c *choice) hasBytes(word []byte) bool {
	if c.places != nil {
		_, ok := c.places[string(word)] // no copy is made for a look-up
		return ok
	}
	for _, v := range c.values {
		if v == string(word) {
			return true
		}
	}
	return false
}

// derived is what matching reads out of attributes, once for each call of
// Rules and only if some rule asks.
type derived struct {
	hostRead, addrRead bool
	host               []byte
	addr               netip.Addr
}

func (d *derived) forget() { d.hostRead, d.addrRead = false, false }

func (req *Request) host() []byte {
	if d := &req.derived; !d.hostRead {
		d.host, d.hostRead = normalHost(d.host[:0], req.attrs[slotHost]), true
	}
	return req.derived.host
}

func (req *Request) addr() netip.Addr {
	if d := &req.derived; !d.addrRead {
		d.addr, d.addrRead = NormalAddr(req.attrs[slotClientIP]), true
	}
	return req.derived.addr
}
