package regional

import (
	"sync"

	"github.com/spillgate/spillgate/sync"
)

// pops is the PoP of each edge that was heard of: a PoP may call as many edges its own
// as it likes, and cannot speak for another. It is safe for concurrent use.
type pops struct {
	mu sync.RWMutex
	of map[uint64]uint64 // by node; guarded by mu, as the next
	// names are the PoPs' own, of as many as are told apart.
	names map[uint64]string
}

// mostNamed bounds the PoPs of a region that are told apart by name.
const mostNamed = 1 << 10

// mostPlaced bounds the edges of which the PoP is known. Where there are more, all is
// forgotten, and learnt again with their next frames.
const mostPlaced = 1 << 16

// note learns where the sender of a frame is, and returns that; a region is where it is.
func (p *pops) note(up *deltasync.Up) (pop uint64) {
	if up.Kind != deltasync.KindEdge {
		return up.Node
	}
	pop = deltasync.NodeID(up.Region, up.Pop, "")
	if was, known := p.pop(up.Node); known && was == pop {
		return pop
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= mostPlaced {
		p.of = map[uint64]uint64{}
	}
	if _, has := p.names[pop]; !has && len(p.names) < mostNamed {
		if p.names == nil {
			p.names = map[uint64]string{}
		}
		p.names[pop] = up.Pop
	}
	p.of[up.Node] = pop
	return pop
}

// pop is where an edge is.
func (p *pops) pop(node uint64) (pop uint64, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	pop, known = p.of[node]
	return pop, known
}

// name is what a PoP calls itself; "" where it was not heard of.
func (p *pops) name(pop uint64) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.names[pop]
}
