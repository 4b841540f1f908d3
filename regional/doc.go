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
// The mechanism is plain calls that take the time: Handle answers a frame,
// Exports and Pushes hand out what is to be sent, Receive takes in another
// region's reply, Tick retires, Sync writes what the store missed. Run is the
// shell around them.
package regional
