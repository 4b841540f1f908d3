// Package edge is the node: it decides locally, in memory, from its own counts
// and from what it last heard of everybody else, and it publishes its counts.
//
// The mechanism is plain calls that take the time: Check decides, Flush hands
// out frames, Receive and ReceiveHot take in what others counted, Tick cleans
// up. Run is the shell around them that has tickers and a bus; the simulator
// calls the same methods on a virtual clock.
//
// # The ledger
//
// Live keys stand in a sharded open-addressing table of 64-byte records. A
// record holds an allowance: what may still be spent before anything has to be
// computed. Check compares and subtracts. Only when the allowance is used up or
// its slice is over does Check fold: it sums own and others' slices and sets
// the allowance anew. Receive folds too, so what others spent takes effect at
// once. Slices stand in blocks beside the table.
//
// Own counts are never in a cache that may forget: a counter that started
// again at zero under its old name would hide behind its old maximum. Where
// the table itself must forget (it is bounded), the node goes on under a new
// life, which is a replica of its own. The view, a ristretto cache, holds what
// may be forgotten: totals of keys that are not live here.
package edge
