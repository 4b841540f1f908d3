package regional

import (
	"sync/atomic"
	"time"
)

// pace is how often edges may send what is not urgent. It follows how many
// frames are in hand at once, on average (Little, 1961: arrivals a second times
// the time that each takes): those that the store or the processor is slow to
// answer. Above inHand edges are asked to send as much less often, until it is
// met.
type pace struct {
	spent  atomic.Int64 // ns that frames were in hand for, since turned
	ends   atomic.Int64 // pace in ns; 0: as edges like
	turned int64        // the instant when it was last looked at; Tick alone uses it
}

const (
	// inHand is how many frames an aggregator has in hand at ease: of as many
	// as a bus hands it at once (64, sync/natsbus) half.
	inHand = 32
	// slowest is the longest pace.
	slowest = 5 * time.Second
)

// took notes that a frame was in hand for so long.
func (p *pace) took(d time.Duration) { p.spent.Add(int64(max(0, d))) }

// asked is the pace to tell edges.
func (p *pace) asked() time.Duration { return time.Duration(p.ends.Load()) }

// turn sets the pace by what was in hand since it was last called. It goes up as
// fast as the load does, and down by a half a second at most, or edges would come
// back all at once.
func (p *pace) turn(now int64, interval time.Duration) {
	passed, spent := now-p.turned, p.spent.Swap(0)
	if p.turned == 0 || passed <= 0 {
		p.turned = now
		return
	}
	p.turned = now
	load := float64(spent) / float64(passed) / inHand
	was := max(p.asked(), interval)
	next := min(time.Duration(float64(was)*max(load, 0.5)), slowest)
	if next <= interval {
		next = 0
	}
	p.ends.Store(int64(next))
}
