// Package crdt is the replicated arithmetic of Spillgate: grow-only counters
// by slice of time, merged by maximum.
//
// A slice is one aligned cell of time. For every key each replica (an edge in
// one incarnation, or a whole region) keeps two G-counters a slice: charges
// and refunds (together a PN-counter; Shapiro, Preguiça, Baquero, Zawirski,
// "A comprehensive study of convergent and commutative replicated data
// types", INRIA RR-7506, 2011, §3.1). What is exchanged is the absolute count,
// never the difference (a delta-state CRDT; Almeida, Shoker, Baquero,
// arXiv:1410.2803), so loss, duplication, reordering, retries and two
// receivers at once change nothing.
//
// Three shapes build on each other:
//
//   - Cell: what is known of one slice.
//   - Vector: the cells of one replica, in ascending order of slice, in a
//     packed record that widens as the counts grow.
//   - GCounter: the vectors of all replicas of one key, with their sums.
//
// The package is pure: no clock, no lock, no goroutine, no randomness. None of
// its types is safe for concurrent use; owners bring their own lock.
//
// Every count is a lower bound of the truth and saturates at 2^64-1. A count
// never wraps, is never moved to another slice and never shrinks; only Retire
// removes it, when its slice has left every window.
package crdt
