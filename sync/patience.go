package deltasync

import "time"

// How long a frame may stay unanswered before whoever sent it gives it up, unless settings
// say otherwise (sync.timeout): an edge's to its region, and a region's to another, which
// is to be more than the way there and back.
const (
	EdgeTimeout   = 250 * time.Millisecond
	RegionTimeout = time.Second
)

// LongestTrip is the longest way there and back between two regions that is believed:
// beyond, a clock was set.
const LongestTrip = 2 * time.Second
