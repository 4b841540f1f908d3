// Package natsentries keeps in a JetStream key-value bucket what changes one thing at a time beside
// the documents of rules (package natsrules), and follows it there: the tiers of tenants, exceptions
// for single keys, values of capacity signals.
//
// A key of the bucket holds the newest Entry of one thing, and none before it. What an entry says of
// its thing, its body, is JSON that who applies it knows; this package does not. Entries are written
// over the one that their author has seen (ErrConflict). What is taken away has an entry that says
// so: nothing is ever told by a key's absence.
//
// # Who reads, and who writes
//
// A Follower asks four times a second for what is newer than it knows, by batched direct gets: one
// request, many messages, no consumer. So edges and aggregators read with rights that change nothing
// (deploy/nats/users.conf), and 100,000 entries in a second or two. Each region has a mirror, in its
// own domain; what operators write there is written to the one that is mirrored.
//
// # What never goes back
//
// An entry is newer than another by when it was made, and who writes one makes it later than the one
// before, whatever his clock says. A Follower takes newer entries alone: a bucket that is empty, one
// that was made anew, emptied or put back from a copy, and a mirror that lags behind, change nothing;
// that there is something wrong is told (Status.Older, Status.Lacks).
//
// # What goes
//
// Entries that were taken away, or have ended, go from the bucket and from Followers when Keep has
// passed since. A Follower whose file is older than that may hold what was taken away meanwhile, and
// tells of it (Status.Lacks): remove the file.
//
// # On the wire and on disk
//
// An entry of kind tenant, of the namespace acme and called "a b" has the key tenant.acme.YSBi: the name
// in base64url, and dots in namespaces as "=2e"; where there is no namespace the key has two parts. Its
// value is JSON: at_us, until_us (microseconds since 1970), author, message, and body or deleted. A
// Follower's file has a line for each, of which a checksum, the key and the value, without author and
// message; lines that are damaged are left out, and told.
package natsentries
