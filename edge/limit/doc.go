// Package limit is the pure core of the limiter: what a rule says, which rules
// a request falls under, how much of a rate is used, and what a decision
// tells.
//
// It has no clock, no lock, no I/O and no state of its own. Counts come in as
// crdt cells, time comes in as an argument, and what comes out is a value.
// Documents are what operators write; Compile turns them into an immutable Set
// that many goroutines may read.
package limit
