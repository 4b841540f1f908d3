package limit

import "time"

// Zone says where in its rate an admitted or denied request fell.
type Zone uint8

const (
	ZoneNormal  Zone = iota + 1 // under the limit
	ZoneSoft                    // over the limit, inside the soft margin: admitted
	ZoneHard                    // over: denied
	ZoneElastic                 // over the limit and the soft margin, inside an elastic margin that is open: admitted
	ZoneShadow                  // over a shadow rule's limit: admitted, and would have been denied
)

func (z Zone) String() string {
	switch z {
	case ZoneNormal:
		return "normal"
	case ZoneSoft:
		return "soft"
	case ZoneHard:
		return "hard"
	case ZoneElastic:
		return "elastic"
	case ZoneShadow:
		return "shadow"
	}
	return "none"
}

// Decision is the answer to one request. It is a value: it may be kept.
type Decision struct {
	Allowed bool
	Zone    Zone

	// Rule and Rate are the one that decided: of a denied request the denying
	// rate with the longest wait, else the tightest (the smallest part of its
	// limit left). Nil where no rule applies.
	Rule *Rule
	Rate *Rate

	Cost       uint64
	Limit      uint64
	Remaining  uint64        // after this request
	RetryAfter time.Duration // until the same request would pass; 0 when allowed
	Least      time.Duration // of that, what no slot that is released sooner makes shorter
	Delay      time.Duration // an admitted request waits its turn this long before it goes on; 0 but for queues and max_delay, and for what costs nothing
	Near       bool          // the rate is nearer to its limit than its rule calls near
	Basis      Basis
}

// Basis is what a decision was made from.
type Basis struct {
	Local   uint64        // cost that this edge counted in the window
	Merged  uint64        // cost that all others counted, as last heard
	Age     time.Duration // since the key was last heard of; -1: never
	Regions int           // regions that the view includes, the own one counted
	Short   bool          // denied as this edge's share is used up, while the limit has room
	Penalty bool          // denied, and kept out for it whatever the limit has room for by then (Rule.Penalty)
	CutOff  bool          // denied as others cannot be heard of, and the rate is closed then (PartitionClosed)

	// Await is above 0 where a denied request may pass as soon as rights come that this
	// edge was not granted yet: it may be asked again then, or when so long has passed.
	Await time.Duration
}

// State is one rate's part in a decision, for headers that show several.
type State struct {
	Rule       *Rule
	Rate       *Rate
	Counter    uint64 // the name that the node counts under; a rate has one for each reading of a path
	Remaining  uint64
	RetryAfter time.Duration
	Denied     bool
	Why        Why // it is denied
}
