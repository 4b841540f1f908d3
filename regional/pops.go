package regional

import (
	"sync"

	"github.com/spillgate/spillgate/sync"
)

// pops is what the PoPs that were heard of call themselves. It is safe for concurrent
// use.
type pops struct {
	mu    sync.RWMutex
	names map[uint64]string // by PoP; guarded by mu
}

// mostNamed bounds the PoPs of a region that are told apart by name.
const mostNamed = 1 << 10

// note learns what the PoP of a frame's sender calls itself, and returns that; a region
// is one of its own.
func (p *pops) note(up *deltasync.Up) (pop uint64) {
	if up.Kind != deltasync.KindEdge {
		return up.Node
	}
	pop = deltasync.PopOf(up.Node)
	if p.name(pop) != "" {
		return pop
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[uint64]string{}
	}
	if len(p.names) < mostNamed {
		p.names[pop] = up.Pop
	}
	return pop
}

// name is what a PoP calls itself; "" where it was not heard of.
func (p *pops) name(pop uint64) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.names[pop]
}
