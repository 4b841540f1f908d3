// Package escrow is the authority over strict limits: it says who holds how many of the
// rights in a limit, so that all edges together never hold more than there are
// (design.md §4; research/accuracy.md §6).
//
// A key has one authority, in its home region: whoever owns its lane there. It has on
// a Log what it granted before anybody hears of it, so that whoever owns the lane next
// knows. Edges claim: they say what they were ever granted, what they ever returned, and
// what they would hold. What an edge holds is the difference of the two numbers, which
// only grow; so frames may be lost, late or twice, and an edge needs no disk. An edge
// counts a right as returned before it says so, and the authority counts one as granted
// before it says so:
//
//	limit ≥ Σ over holders of granted − returned, as the authority has them
//	      ≥ Σ over edges of granted − returned, as the edges have them
//
// A holder that falls silent has its rights until its lease has ended, by its own
// clock, and what it may have spent of them has left the window; then they are free.
// One that says that it is over, and when what it spent is free, has that free by parts: each is
// a holding of its own, as of a holder that fell silent a lease before it was spent.
// How long it has been silent is written to the log eight times in a window, so that
// whoever takes the lane goes on from there; what passes until he is asked for the key
// does not count, as nobody saw it.
// All that is by clocks that nobody sets, so windows that slide and buckets are never
// exceeded, whatever the time is said to be. Of windows that are aligned a right is free
// again when the next has begun by its edge's clock, which may be set: no more than the
// limit is admitted under one label (limit.Spent keeps a right for two seconds, so that
// edges may be as far apart about which it is), but in a window of true time there may be
// some more, for as long around its ends as clocks are off.
//
// Two that both believe to own a lane do no harm: whoever takes a lane writes his token
// to the log, in which nobody else can write from then on, and each answer is given
// after a write, be it an empty one. A log that may have lost its tail, or is new, says
// since when it is there: nothing is granted until every lease that somebody may have
// by it has ended and what was spent has left the window. Meanwhile holders go on, and
// their claims tell what they hold. Whoever has a lane looks once a second whether its
// log is still there (Authority.Keep), so that this begins with the loss, and not with
// the first claim after it.
//
// A region that comes, or goes, moves the keys that it is drawn for. The new authority of
// a key grants nothing of it until what the old one granted is over: the log says since
// when a region that would have been the key's home is not named any more, and a peer
// tells one that it names for how long it has (Authority.NamedBy). Whoever has just taken
// its first lane waits some seconds for the first answer of each peer.
package escrow
