// Package regional is the aggregator: it joins the counts of its region's
// edges, keeps them in the region's store, exchanges subtotals with the other
// regions, and tells the edges what everybody else did.
//
// An aggregator is never a counter itself: all that it holds are entries that
// edges and other regions wrote, each a lower bound, joined by maximum. So any
// number of aggregators may serve a region, one may die at any moment, and two
// may serve the same key: they meet in the store. A frame is answered with
// StatusOK only when what it told is stored.
//
// The aggregators of a region share its lanes: each beats five times a second, the
// lanes are dealt by rendezvous hashing among those who do, and the owner of a lane
// alone serves it, pushes and beats to other regions. Who falls silent is dead
// after 0.7 s and others take its lanes; who leaves gives them away at once, and
// stays until it has told what it took. It is all for speed, and nothing is wrong
// while two own a lane, or a frame gets to somebody else: that one joins it, stores
// it, exports it, and answers that it is not the owner. Two owners who never hear
// of each other meet in the store: each has what the other took of a key when it
// writes news of it, or when a second has passed and an edge asks. That is the bound of
// this fault: what an edge is told lacks nothing that any aggregator of its region had
// acknowledged for longer than OwnersApart, while the store can be reached.
//
// Of a token or leaky bucket it holds slices like everybody, and a carry: the
// level that the bucket had when a slice began that has retired since. It works
// the carry out from what edges and regions counted, takes in what they and the
// store say of it where that is more, tells it with every reply, push and export,
// and has the store remember it twice a window. What lies below a bucket's floor
// never drains; the store alone keeps that, for a day.
//
// What a region counted of a key goes to all others, or, where there are many, to
// the two that are its homes, from which the others hear of it; see homes.go.
//
// Each second a few keys are audited: what is believed here is compared with what
// another region, or the store, says, shown as drift, and mended; see audit.go and drift.go.
//
// Of keys near their limit it tells the truth after the fact: what was admitted in each
// window, once its last slice has closed in all regions, against the limit; by rule,
// region and PoP. For that it must know the rules; see truth.go.
//
// Most of what is held is a cache of the store, bounded in bytes: under a flood of
// keys those that use least of their limit are forgotten, and read again when
// somebody tells or asks of them; see room.go.
//
// The mechanism is plain calls that take the time: Handle answers a frame,
// Exports and Pushes hand out what is to be sent, Receive takes in another
// region's reply, Tick retires, Sync writes what the store missed; Join, Beat,
// HearBeat, Assign and Leave share the lanes, Inherit reads what earlier owners of
// those that are gained left in the store, and Snapshot tells an edge that starts
// what is hot; Audits, AnswerAudit, ReceiveAudit and AuditStore compare, and Drift
// tells what they found. Run is the shell around them.
package regional
