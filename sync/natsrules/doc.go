// Package natsrules keeps rules in a JetStream key-value bucket, a document a namespace,
// and follows them there.
//
// A key of the bucket holds the newest Version of a namespace, and the 63 before it. A
// version is written whole, in one message, over the one that its author has seen
// (ErrConflict), so a change is there at once or not at all. A namespace that is taken
// away has a last version, which says so: nothing is ever told by a key's absence.
//
// # Who reads, and who writes
//
// A Follower asks four times a second for what is newer, by direct gets, which need no consumer: so
// edges and aggregators read with rights that change nothing (deploy/nats/users.conf). Each region
// has a mirror, in its own domain; what operators write there is written to the one that is mirrored.
//
// # Where a version is in force
//
// A version may be rolled out: in force in some regions, with the document of the others beside it
// (Version.In). So there is one newest version at any time, and a region that hears of no other knows both.
//
// # What never goes back
//
// A version is newer than another by when it was made, and who writes one makes it later
// than the one before, whatever his clock says. A Follower takes newer versions alone. So a
// bucket that is empty, a mirror that lags behind, and one that was put back from a copy
// change nothing: what is known stays, and that there is something wrong is told
// (Status.Older, Status.Lacks). Whoever writes there next is newer than all that was written
// before the copy was put back, if his clock is right.
//
// # What is on disk
//
// The last versions that were good are in a file (FollowConfig.File), which is replaced
// whole. An edge that starts without any region has its rules from there.
package natsrules
