package deltasync

import "time"

// Demand is how much is asked for of a key, admitted or not, in cost a second: what
// shares of its limit are weighted by (research/accuracy.md §5.2).
type Demand struct {
	Fast, Mid, Slow float32 // moving averages; of a region, Mid is the demand that it publishes
	Window          float32 // what was asked for in the last window, a second
	Kept            float32 // of a region: cost of the limit that is kept for edges of it that fell silent
	KeptSpent       float32 // of a region: what those have spent of their parts, beside Kept
	Since           float32 // of an edge: for how long the window has lasted, in seconds, where it counts nothing from before; 0: it slides
}

// ShareKept is how long an edge that is cut off has the share that it was told last, and
// how long that is kept for it.
const ShareKept = 10 * time.Second

// Share is what an edge is told of a key for its part of what is left of the limit
// (SRB; research/accuracy.md §5.3).
type Share struct {
	Omega  float32 // ω: the region's part, 0 to 1
	Sum    float32 // demand of the region's edges, by which they share that
	Demand float32 // of all regions, as they publish it
	Window float32 // asked for in the last window, in all regions
	Unseen uint64  // U: cost of the region that the others cannot have seen yet
	Kept   uint64  // cost of the limit that is left to regions, and edges, which are cut off
	Spent  uint64  // of what is left to them, what they have spent in the window already, beside Kept: an edge that is cut off alone goes by both
	Doubt  uint64  // by which the parts of regions that are cut off may come to more than the limit, as what they have is a guess
}
