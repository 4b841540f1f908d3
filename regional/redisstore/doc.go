// Package redisstore is the regional.Store, and the escrow.Log, in Redis (6.2 or
// later, Valkey; single, under Sentinel, or a Cluster): the place where the counts of
// all aggregators of a region join, and what survives their restarts.
//
// # Layout
//
// A group is a run of slices, aligned to 1970: as long as a window, and at
// least 2 s and four slices, so that what is alive of a key lies in two or
// three groups, rarely four. Each (key, group) is one hash:
//
//	<prefix>{tt}kkkkkkkkkkkkkk:<width>x<slices>:<group>
//
// where tt is the low byte of the key in hex, the hash tag that places all
// groups of a key on one shard of a cluster, kk... the other seven bytes, and
// then, in decimal, the slice width in milliseconds, the slices of a window and
// the number of the group. The shape stands in the name so that counts of
// different shapes can never be taken for each other. Its fields:
//
//	"v"                         the group's version, in decimal
//	"e" node:8 incarnation:8    what an edge of the region counted
//	"r" node:8 incarnation:8    the subtotal of another region
//	"s" node:8 incarnation:8    what other regions told of this one, both zero; older
//	                            builds pass it over
//	"o" node:8 incarnation:8    what the key's homes told of all other regions
//	                            together, likewise
//	"c"                         carries of a bucket that are of slices in the group
//
// with node and incarnation as big-endian bytes. No sums are kept: they would
// have to be kept right. A field holds the packed vector of the replica's
// slices in the group:
//
//	vector = 0x10|o:1 c<<4|r:1 cell*      1 <= o <= 6, 1 <= c <= 8, 0 <= r <= 8
//	cell   = offset:o charges:c refunds:r  big endian, ascending by offset
//
// so o, c and r are the bytes that an offset, a charge and a refund take, the
// same for all cells: as many as the largest needs, and none for refunds
// before the first one. The offset is counted from the first slice of the
// group. There is at least one cell, and none is zero in both counts. 40 slices
// of fewer than 65536 hits take 122 bytes. Carries are packed the same way: a
// cell for a boundary, with the level, in millionths, as its charges, so that
// they join as counts do. There are two or three in a group.
//
// What outlasts a key's slices has a hash of its own, the last of its groups,
// whose name ends in "rest" in place of a group's number. It is there where there
// is something to keep: what rests of a bucket that has a floor, or a penalty. It
// has a version, and vectors of one cell, of offset 0:
//
//	"m"                         what rests: its charges are the level, its
//	                            refunds the boundary
//	"u"                         a penalty: its charges are when it ends, in
//	                            nanoseconds since 1970
//
// so that all join by maximum, each by itself. It expires regional.RestKept
// after the boundary and when the penalty ends, whichever is later, which the
// script puts off when a later one comes.
//
// A group expires, by PEXPIREAT, when its last slice would: a window and
// max(1 s, two slices) after its end. Answers leave out the slices that have
// expired before. That is by Redis's clock, which the script sets back by whole
// seconds where it is ahead of the caller's: what one caller has yet to enforce is
// kept, whatever the clocks of Redis and of others say. One that is behind keeps all
// for longer, and answers leave out what has expired by the caller's.
//
// The keys that are near their limit (regional.Item.Note) are listed, for who
// takes over an aggregator's keys and has never heard of them, a sorted set a tag:
//
//	<prefix>{tt}hot             key:8 note, scored by when the last of its groups
//	                            expires, or later (regional.Item.NotedUntil), in
//	                            milliseconds since 1970
//
// with the 1024 that expire last. It is written by the call that merges, and lives
// as long as the last of them.
//
// # Merging
//
// One script (merge.lua) joins vectors and reads what the caller has not seen.
// It is atomic, and idempotent, so a retry is harmless. It compares bytes: Lua
// counts in doubles, exact only to 2^53, and its < on strings asks the locale.
//
// # Versions
//
// A group's version is a random number of 51 bits when the group is made, and
// rises by one with each change. A key's version is the sum of its groups'
// versions modulo 2^52: any write changes it by the number of changes, and a
// group that is born, expires or is wiped changes it by a random number. It
// repeats only by chance, one in 2^51 a comparison.
//
// # Epochs
//
// Each tag has a canary, a random string without expiry that is written when
// it is missing: <prefix>{tt}epoch. It goes with FLUSHALL and with a restart
// without persistence. A server's epoch is a hash of all canaries and of its
// replication id, which changes with a promotion. In a cluster each tag has an
// epoch, of its canary and of the id of the master that has it; a tag that moves to
// a master that was there before takes its epoch along (see sightings). Asking
// for them costs a master about a millisecond: 1 % of its time an aggregator.
//
// # Clusters
//
// Calls go by tag, so each to one master, and to each master by itself: a tag
// that fails, and a master that does not answer, are told as parts of the store
// (regional.PartsError). While a slot moves, a call that names groups of which some
// have moved, or do not exist, is refused (TRYAGAIN) until all have: the counts
// of that tag are merged again then. Which master serves what is read again after
// each failure: the client by itself would look for a dead master's replica once
// a minute.
//
// Counters carry an expiry and canaries do not, so with `maxmemory-policy
// volatile-ttl` a full Redis sheds the oldest counters and goes on.
//
// # Rights
//
// Rights is an escrow.Log. A lane is one hash, whose tag is its number in hex, so that
// in a cluster all of it is on one master:
//
//	<prefix>{ll}rights
//	  "t"                       the token of who has the lane, in decimal
//	  "i"                       replication id and run id of the server that wrote "t"
//	  "s"                       how often it was written
//	  "n"                       lanes that the region had then
//	  "o"                       ID of the log, drawn where it begins
//	  "b" "w"                   when the log began, by the server's clock and by that of
//	                            who took the lane, in milliseconds since 1970
//	  "x"                       whose rights were taken back, by Rights.Revoke: node:8 key:8,
//	                            key 0 of all keys, node a PoP's of all its edges
//	  "r"                       which regions there are, or were, as who took the lane knew
//	                            them: "NAME NAMED SINCE SINCE;" each, NAMED 1 or 0, and SINCE
//	                            by both clocks, 0 of those that were noted first
//	  "v" "d"                   when it was trusted last, and when another region last took this
//	                            one's keys for others', each by both clocks: "OURS THEIRS"
//	  "c"                       how far the search for what may be forgotten is
//	  key:8                     a deposit: rights_deposit.go has its bytes
//
// Each call compares token and server, and each Commit, be it empty, is a write. What
// is lost of a lane is all of it, its head too, so that it is noticed (ErrLost): by an
// eviction, a FLUSHALL, a DEL. The hash has no expiry, which an eviction would look
// for, and a clock that is set forward would bring on: a deposit is forgotten
// escrow.Keeps after it was written, by the server's clock and by the callers', as
// others are written.
//
// Age is since the log began, by the clock by which that is less. It begins anew, and
// what is in it stays, where
//
//   - there is none, or one of another number of lanes (that is emptied);
//   - another process serves it than wrote its head, one that was restarted as well as
//     a replica that took over or a master that a slot moved to; or the same one has been
//     a replica meanwhile, or has got its first. Load and Commit are refused (ErrFenced)
//     from that moment on, by the token that was replicated too. But for this:
//   - a server was restarted that has no replica, and writes to its disk before it
//     acknowledges, and says so before and after; and it is the process that had the lane
//     that takes it again, within ten minutes of its last write, and finds that write. All
//     that was written by anybody is there then, and the log keeps its age.
//
// So whatever the settings, what is lost is noticed, and nothing is granted until it does
// no harm; with these it is seldom lost (Rights.Durable tells the rest, and why):
//
//	appendonly yes, appendfsync always    a restart costs nothing while an aggregator
//	                                      lives; where all restart too, a lease and a window
//	everysec, no; or no file              a restart costs a lease and a window
//	replicas                              so does a failover; with min-replicas-to-write 1
//	                                      a master that is cut off stops acknowledging.
//	                                      With 0 IT GRANTS BESIDE THE ONE THAT TOOK OVER,
//	                                      for as long as aggregators reach both
//
// deploy/redis/rights.conf is such a server. The user that connects needs INFO, and
// CONFIG GET for an age to outlast a restart.
//
// What a log cannot know an operator may: that the cluster is new, or that the copy that
// took over had everything. Rights.Trust, `aggregator rights trust`, sets "b" and "w" to 0,
// long ago, and "t" to a token that nobody has, so that whoever has the lane takes it anew.
//
// What cannot be noticed is told here: who puts back a copy of the server's disk has to
// DEL the lanes, aggregators of one region with different numbers of lanes may both grant
// where they meet in no lane, and appendfsync is not to be changed for a while only.
package redisstore
