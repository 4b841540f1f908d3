// Package limit is the pure core of the limiter: what a rule says, which rules
// a request falls under, how much of a rate is used, and what a decision
// tells.
//
// It has no clock, no lock, no I/O and no state of its own. Counts come in as
// crdt cells, time comes in as an argument, and what comes out is a value.
// Documents are what operators write; Compile turns them into an immutable Set
// that many goroutines may read.
//
// # Algorithms
//
// All that edges tell each other is how much was charged and refunded by slice
// of time. Each algorithm is a function of the sums of these, and of now:
//
//	fixed_window    the slice that now falls in; or a period of the calendar
//	sliding_window  this window and the part of the last that still overlaps
//	sub_windows     the last N slices, and a part of the one before, or all of it
//	concurrency     the same over a lease; a release is a refund
//	token_bucket    Reich's formula: the most, over all s, of what came in since
//	leaky_bucket    s less what drained since s; see Drain
//
// What an edge itself charged it may know better than by slice. It keeps that
// in an Exact, which it alone has and never sends:
//
//	buckets                the level, as GCRA has it
//	sliding_log            the instant of each hit
//	fixed_window, align:   when the window began, and what was charged in it
//	first_hit
//
// Measure puts both together: with one edge these are exact to the nanosecond,
// with more they are off by what a slice can hide.
package limit
