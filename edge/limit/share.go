package limit

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Consistency says what an edge admits while it cannot know what others admit.
type Consistency uint8

const (
	// Loose admits while what is known leaves room.
	Loose Consistency = iota + 1
	// Adaptive admits an edge's share of what is left, as the others know it, and
	// more where that cannot do harm (SRB; research/accuracy.md §5).
	Adaptive
	// Strict admits what an edge holds rights for, and nothing else: never more than
	// the limit (escrow; research/accuracy.md §6).
	Strict
)

var consistencyNames = map[string]Consistency{"loose": Loose, "adaptive": Adaptive, "strict": Strict}

func (c Consistency) String() string { return nameOf(consistencyNames, c) }

// Share is what an edge knows of the others where it decides by its share of what is
// left of a limit.
type Share struct {
	Omega  float64 // ω: the region's part, 0 to 1
	Weight float64 // v: the edge's part of that
	Edges  float64 // that there are, over all regions
	Unseen float64 // U: cost of the region, told to this edge, that other regions cannot have seen
	Mine   float64 // cost of this edge that nobody else can have seen
	Less   float64 // of the limit, kept for regions that are cut off; where Alone, all that they have of it, be it spent
	Doubt  float64 // of the limit, by which their parts may come to more, as they are a guess
	Closed float64 // part of the margin above the limit that is not to be used, as others were not heard of for a while, 0 to 1
	Demand float64 // D: asked for in all regions, as they publish it, cost a second
	Window float64 // Dw: asked for in all regions in the last window, cost a second
	Hidden float64 // cost that others are thought to have admitted since they were heard of
	Own    Demand  // asked for at this edge
	Alone  bool    // nobody answers: it has its part of the whole limit
	Unkept bool    // and nobody may keep that for it, as its region was never asked for the key here, takes it for dead, or has the key at somebody new
	Heard  bool    // and others were heard of within a window: what they left of it then is all that there is
	Fresh  bool    // what is asked for elsewhere was told lately
	Delay  time.Duration
	Report time.Duration // how long this edge's counts take to come back with others'
}

// known is so many times the limit: whoever is asked for more is overloaded.
const known = 1.1

// heavy is of how many requests the limit would be, if all were so large that one of
// them counts in full.
const heavy = 5

// crowded is so many times the limit: where more is asked for, whoever has a share has
// takers for it soon, and the less need be lent beyond shares for what others leave.
const crowded = 3

// LeastWeight is what an edge or a region weighs of which nothing is asked for, in
// cost a second: whoever is new there has something to begin with.
func LeastWeight(limit uint64, window time.Duration, regions int) float64 {
	return 0.05 * float64(limit) / max(window.Seconds(), 1e-3) / float64(max(1, regions))
}

// Grant is what a share lets an edge admit.
type Grant struct {
	Cost uint64 // that may be spent for sure
	Lump uint64 // of that, what may be spent at once, as all others may do the same
	Left uint64 // of the limit, as far as is known: no request of more may pass by chance, but one of 1
	Half uint64 // that may be spent before half of the share is, and others should hear of it
	Free bool   // the limit is far off: Cost is no share

	rest  float64 // of the share, parts of a unit too
	wants float64 // cost that is asked for here until this edge hears of others again, less what was spent
	part  float64 // of the limit that is this edge's
	whole float64 // the limit
}

// Spares says that a request may pass for sure of whose limit so much is reserved for
// others: of that this edge keeps its part.
func (g *Grant) Spares(cost, reserve uint64) bool {
	return float64(g.Cost) >= float64(cost)+g.part*float64(reserve)
}

// Chance is that with which a request may pass that may not for sure, so that parts of
// a request add up over edges; of the limit so much is reserved for others. A request
// for a large part of the limit is asked for more than was thought of: as the first, at
// each of many edges at once, it would pass at all of them.
func (g *Grant) Chance(cost, reserve uint64) float64 {
	rest := g.rest - g.part*float64(reserve)
	if !(rest > 0) {
		return 0
	}
	wants := g.wants
	if cost > 1 { // there are none lighter than 1
		wants = max(wants, float64(cost)*min(1, heavy*float64(cost)/g.whole))
	}
	return rest / max(rest, wants)
}

// Grant is what may be admitted at a level, of which s says what others know: the
// most of what R1 to R4 of research/accuracy.md §5.3 allow.
func (r *Rate) Grant(level Level, s *Share) (g Grant) {
	limit := float64(r.Ceiling) - s.Closed*float64(crdt.SatSub(r.Ceiling, r.Limit)) - s.Less
	if g.whole = max(1, float64(r.Limit)); s.Alone {
		share := s.Weight * s.Omega * limit
		if s.Heard {
			share = min(share, limit+s.Less-float64(r.Rounded(level))+s.Mine)
		}
		g.draw(s, share)
		g.Lump = g.Cost
		return g
	}
	pace := limit / max(r.Window.Seconds(), 1e-3) // λ
	left := limit - float64(r.Rounded(level))
	x := left + s.Mine + s.Unseen
	share := func(x float64) float64 { return s.Weight * (s.Omega*x - s.Unseen) }
	if half := math.Ceil(share(x) / 2); half > s.Mine {
		g.Half = uint64(half - s.Mine)
	}
	g.draw(s, share(x))
	g.Lump = g.Cost
	if left -= s.Hidden; left < 1 {
		return g
	}
	g.Left = uint64(left)
	leeway := r.leeway() * limit
	tau := s.Delay.Seconds()
	margin, calm := min(leeway, max(1, pace*tau)), !s.Own.Surges(SpansOf(r.Window))
	// It is lent for what others leave of their shares until that is known: no more than
	// comes free meanwhile, or one request, which of a small limit is as much.
	if asked := s.Demand / pace; asked > crowded { // then little of a share is left unused
		margin *= crowded / asked
	}
	if !calm { // what is not known is more than usual
		margin = 0
	}
	if more := min(share(x+margin), left+s.Mine); more > g.rest+s.Mine {
		g.draw(s, more)
		g.Lump = g.Cost
	}
	need := r.surge()*pace*tau - leeway
	// Where less is asked for than there is, who asks anew has an equal part of the rest:
	// whoever asked before has no more of it.
	if rest := 1 - s.Demand/pace; rest > 0 && s.Edges > 1 {
		lump := rest*(x-s.Hidden)/s.Edges - s.Mine
		if g.Cost > 0 {
			lump += (1 - rest) * (g.rest + s.Mine)
		}
		g.Lump = uint64(min(max(0, lump), left))
	}
	if s.Fresh && calm && s.Demand > known*pace && s.Window > known*pace { // who is overloaded already is not asked for much more
		need = 1.5*s.Demand*tau - 0.01*limit
	}
	g.raise(left-max(1, need)+1, true)
	if s.Window >= 0.2*pace && s.Window <= known*pace && s.Demand <= 1.3*pace && calm {
		pool := max(2, s.Weight*(s.Omega*(x+limit)-s.Unseen))
		g.raise(min(left, pool-s.Mine), false)
	}
	return g
}

// draw grants a share, of which some is spent.
func (g *Grant) draw(s *Share, share float64) {
	if rest := share - s.Mine; rest > 0 {
		g.Cost, g.rest = uint64(rest), rest
		g.wants, g.part = s.Own.Fast*s.Report.Seconds()-s.Mine, s.Weight*s.Omega
	}
}

// raise makes a grant at least so much.
func (g *Grant) raise(cost float64, free bool) {
	if cost >= 1 && uint64(cost) > g.Cost {
		g.Cost, g.Free = uint64(cost), free
	}
}
