package capacity

import (
	"math"
	"time"
)

// These are the rules of edge and regional that decide how much is sent.
const (
	coldEvery    = 1.0  // seconds: edge/cadence.go
	shortestCold = 20.0 // seconds, of a window, from which on records are cold
	pressingFrom = 0.5  // of the limit: edge/cadence.go, decide.go
	againFrom    = 0.25 // of the limit, from which on an edge asks once more: edge/node.go
	afterword    = 0.5  // seconds, after which it does
	pushedFrom   = 0.8  // of the limit, from which on each change is pushed: regional/counter.go
	sweepEvery   = 1.0  // seconds: edge/node.go
	shards       = 256  // of an edge: edge/node.go
	beatEvery    = 5.0  // intervals: edge/flush.go, regional/exchange.go
	mostInFlight = 2.0  // frames that wait for less than an interval: sync/outbox.go
	astray       = 1.0  // seconds: regional/since.go
	graceMost    = 3.0  // seconds, or a tenth of the window: regional/since.go
	toldAll      = 1.0  // seconds, or a quarter of the window, between two pushes that tell all: regional/since.go
)

// key is what becomes of one key, a second, at one edge and in one region.
type key struct {
	asked   float64 // requests at an edge
	charged float64 // those of them that are admitted
	used    float64 // part of the limit
	cold    bool    // told with all that edges have in the same second

	told    float64 // entries of an edge with new counts
	cells   float64 // slices of one
	again   float64 // entries of an edge that tell all it has
	still   float64 // the part of these without new counts: a region exports them in full
	full    float64 // slices of one
	touched float64 // entries of an edge that only ask
	stays   float64 // seconds that an edge knows the key after a request
	first   float64 // of told: those that are urgent as the edge did not know the key
	hurried float64 // requests that make it send at once

	others, peers float64 // slices in a reply: of other regions, of other edges
	subtotal      float64 // slices of a region's sum
}

// after is the chance that something which happens rate times a second happens
// within some seconds.
func after(rate, seconds float64) float64 { return -math.Expm1(-rate * seconds) }

// every is how often a second something is told that happens rate times a
// second and is told every so often, all of it at once.
func every(rate, seconds float64) float64 { return after(rate, seconds) / seconds }

func seconds(d time.Duration) float64 { return d.Seconds() }

// width is that of a slice in seconds.
func (p *Plan) width() float64 { return seconds(p.Window) / float64(p.Slices) }

// reach is how long a count matters, on average: up to its window's end, and
// the slice that it stands in.
func (p *Plan) reach() float64 { return seconds(p.Window) + p.width()/2 }

// live is how many slices of a key matter that counts rate times a second.
func (p *Plan) live(rate float64) float64 {
	return (float64(p.Slices) + 0.5) * after(rate, p.width())
}

// recent is how many slices somebody is told who heard some seconds ago of a key
// that counts rate times a second: those that may have changed since, by less than
// all of them.
func (p *Plan) recent(rate, ago float64) float64 {
	slices := (ago+min(graceMost, seconds(p.Window)/10))/p.width() + 1
	return min(float64(p.Slices)+0.5, slices) * after(rate, p.width())
}

// spans is how many slices what happens within some seconds falls into, given
// that anything happens.
func (p *Plan) spans(rate, within float64) float64 { return pieces(rate, within, p.width()) }

// pieces is how many cells of width w what happens within some seconds falls
// into, given that anything happens.
func pieces(rate, within, w float64) float64 {
	any := after(rate, within)
	if any < 1e-12 {
		return 1
	}
	if within <= w {
		return ((1-within/w)*any + 2/w*(within-any/rate)) / any
	}
	return ((within/w-1)*after(rate, w) + 2/w*(w-after(rate, w)/rate)) / any
}

// fate is what becomes of a key that is asked so often at each edge.
func (p *Plan) fate(asked float64) key {
	fleet := asked * float64(p.Edges*p.Regions)
	k := key{asked: asked, charged: asked}
	k.used = fleet * seconds(p.Window) / p.Limit
	if k.used > 1 {
		k.charged, k.used = asked/k.used, 1
	}
	interval := seconds(p.Interval)
	k.stays = p.stays(k.charged)
	switch {
	case k.used >= pressingFrom:
		urgent := seconds(p.Urgent)
		// Over its limit a key is charged while there is room, and then only asked
		// about.
		room := k.charged / asked
		k.told, k.hurried = room*every(asked, urgent), asked
		k.cells = p.spans(k.charged, urgent)
		k.touched = (1 - room) * every(asked, urgent)
		k.still = math.Exp(-k.charged * urgent)
	default:
		cadence := interval
		if seconds(p.Window) >= shortestCold && max(1, k.charged*p.width()) < math.Floor(p.Limit/100) {
			cadence, k.cold = coldEvery, true
		}
		k.still = math.Exp(-k.charged * cadence)
		k.told, k.cells = every(k.charged, cadence), p.spans(k.charged, cadence)
		k.first = min(k.told, k.charged*math.Exp(-k.charged*k.stays))
	}
	p.refresh(&k)
	if k.used >= againFrom {
		k.touched += p.afterwords(&k)
	}
	k.others = p.live(k.charged * float64(p.Edges*(p.Regions-1)))
	k.peers = p.live(k.charged * float64(p.Edges-1))
	k.subtotal = p.live(k.charged * float64(p.Edges))
	return k
}

// again is how long after all was told it is told again: max(5 s, W/6), then it
// is found by the next sweep, and goes with the next cold flush.
func (p *Plan) again() float64 { return math.Floor(max(5, seconds(p.Window)/6)) + 1 }

// stays is how long an edge knows a key after a request: as long as its own
// count matters, and others' of which the last reply told.
func (p *Plan) stays(rate float64) float64 {
	reach := p.reach()
	stays := reach + sweepEvery
	if others := rate * float64(p.Edges*p.Regions-1); others > 0 {
		last := math.Floor(reach/p.again()) * p.again()
		stays += max(0, last-1/others)
	}
	return stays
}

// refresh is how often all that an edge has of a key is told again, and how
// much that is.
func (p *Plan) refresh(k *key) {
	period := p.again()
	reach := p.reach()
	fresh := k.charged * math.Exp(-k.charged*reach) // how often a key comes that was not there
	rests := after(k.charged, reach)                // the part of the time that it is there
	alone := reach/period - math.Floor(reach/period)
	k.again = max(0, rests/period-fresh*(alone*(1-rests)+rests/2))
	k.full = 1
	if rests > 0 {
		k.full = max(1, p.live(k.charged)/rests)
	}
	// Where counts leave with the same flush it is one entry.
	k.told -= k.again * after(k.charged, coldEvery)
	k.told = max(0, k.told)
}

// afterwords is how often an edge asks once more about a key: half a second
// after its last counts, when a sweep comes by before the next ones.
func (p *Plan) afterwords(k *key) float64 {
	if k.used >= pushedFrom {
		return 0 // it hears by pushes
	}
	if k.used < pressingFrom && seconds(p.Window) >= shortestCold {
		return k.told * (afterword + (1-afterword)*math.Exp(-k.charged))
	}
	return math.Exp(-k.charged*afterword) * after(k.charged, sweepEvery)
}
