package limit

import "github.com/spillgate/spillgate/crdt"

// Charge is what one counter was charged by a decision, so that it can be given
// back: a request that failed before it did any work, a slot of a concurrency
// limit. It names the slice, as a refund stands beside its charge.
type Charge struct {
	Rule    *Rule
	Rate    *Rate
	Counter uint64     // the name that the node counts under
	Slice   crdt.Slice // that the charge stands in
	At      int64      // when it was made, in ns since 1970; 0: not known
	Cost    uint64     // what is left to give back
}
