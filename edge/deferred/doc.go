// Package deferred keeps requests that a limit has no room for, and has them done when it
// has: the client is told 202 and where to look, and a worker sends what waits through the
// same limits, to the same upstream.
//
// The queue is the region's: an edge does what was kept for the upstream that it has itself,
// by the URL of that, and leaves the rest to edges that have another.
//
// What waits stands in a JetStream work queue of the region, on disk, so many of a tenant
// and no more: beyond that the client is told 429, as without it. What became of a request
// stands in a key-value bucket beside it, and what could not be done in a stream of dead
// letters, with the reason, until somebody looks.
//
// An operator makes these (Plan.Apply, edge deferred apply); an edge uses them, and needs no
// right to make or change a stream. Where it has it, it makes what is missing. What would lose
// requests, or keep them without bounds, it does not use, and says so, until it is mended.
//
// A request is done once, or reported dead. That is at the upstream's door: a worker that
// dies between the upstream's answer and the note of it leaves the next one no way to know,
// and it is sent again, with the same Idempotency-Key. So nothing is deferred but what may
// be done twice: requests with an Idempotency-Key of the client's own, which the upstream is
// to heed, and, where a rule names them, methods that HTTP calls idempotent (RFC 9110, section
// 9.2.2). A client that sends its key again while that waits is told of the first; see sameID.
//
// What waits is overtaken: a request that comes later and finds room is done at once, so that
// an older PUT may be done after a newer one, and stand. Idempotent says nothing of that. To
// have later ones wait behind it each request would have to ask JetStream first, at every edge.
//
// While its worker lives, and JetStream hears of it, it is that one's alone: none waits for a
// worker that is busy, and one whose status says that it is running, and was written less
// than a lease ago, is put off. The clocks of a region's edges are to agree on that.
//
// A request is published first, and its status written then: what is refused leaves nothing
// behind, and what is cut off between the two is a dead letter, as its client was not told
// that it waits. Workers put off what has no status yet.
//
// What waits of a tenant is tried one by one at each edge (lanes), when the limit said that
// there may be room: the rest is put off without a look, by what the limit lets pass, and
// comes within a minute. Tenants that one limit denies are tried one for all (gate). So a
// thousand that wait cost next to nothing, be they of one tenant or of a thousand; across edges,
// and after a restart, they go only about in the order in which they came.
//
// Of an answer its status is kept: one that does not begin in time is a failure. The rest is
// read and thrown away, so that an upstream that works as it answers is not broken off: for as
// long again, and up to 64 MiB. What is cut then is done all the same, and its status says why.
package deferred
