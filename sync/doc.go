// Package deltasync is what travels between edges and aggregators: absolute
// counts up, totals down. It holds the frames and their codec, the names that
// counters and subjects have, the queues at both ends, and the Bus that carries
// it all. It has no loops: edge and regional drive it. It lives in the folder
// sync; the name keeps it apart from the standard library's.
//
// # What travels
//
// One verb at two levels. An Up says "here are my absolute counts for the keys
// that changed; tell me what everybody else did", from an edge to its region or
// from a region to another. The Down that answers it holds the totals of the
// same keys in the same order. A Hot is pushed to all edges of a region when a
// key crosses a threshold of its limit. A Live is what the aggregators of a
// region tell each other, to share the lanes. With a Snap an edge that starts asks
// for what is hot.
//
// A Delta is a small state to be joined by maximum, not a difference to be
// added, so frames may be lost, doubled, reordered or sent to two aggregators,
// and whoever is unsure sends again. Two frames of a sender may be under way in
// a lane, and one more for each interval that the oldest waits, up to
// MostInFlight: so one that was lost, or is far, does not hold up what is new.
// None is above MaxFrame, and what could not be sent yet is coalesced in the
// Outbox: the newest absolute count replaces the older one.
//
// # The wire
//
// Frames are protobuf messages; frame.proto in this folder is the
// specification, byte by byte, with all fields of version 1, those included
// that nobody sets yet. The codec is written by hand: it reads columns straight
// into counts and refuses what breaks a rule, with the name of the field.
//
//	Up      = version 1, head, Section*
//	Section = Shape, life, base, keys, flags, Cells, until, carries
//	Down    = version 1, head, Totals, deltas refused
//	Hot     = version 1, head, (Shape, keys, Totals)*
//	Live    = version 1, who, whether it is leaving
//	Snap    = version 1, region, lane, where to begin
//	Totals  = base, Cells of other regions, Cells of the own region, until, carries
//	Cells   = counts, slices, charges, refunds
//
// Keys, flags and the parts of Cells are packed columns. Columns of zeros are
// left out and slices are written as distances, so that a key with one cell
// takes ten or eleven bytes up: eight of the key, one of the charge, one of the
// slice where keys differ in it, one of flags where any is set. A carry, of a
// bucket, is a slice and a level; until is when a penalty ends.
//
// Readers skip fields that they do not know, and most changes need no more than
// that. What does is a new version. Edges and aggregators of two builds, one before
// the other, understand each other whichever is upgraded first, by three rules that
// need no memory of who speaks what:
//
//   - A build that knows version v writes v-1, which the build before it reads as
//     well: Ups, Snaps, pushes and Lives. So v is read a build before it is written.
//   - A Down, be it a refusal, is written in the version of the Up that it answers. (A
//     Snap is answered by a Hot, which is written as one that is pushed.)
//   - Readers take v, v-1, and v-2, which the build before them writes. Newer ones
//     they refuse by a VersionError, and older ones too.
//
// # Subjects
//
//	sg.v1.up.<region>.<lane>.e.<pop>.<edge>   an edge's Up, request and reply
//	sg.v1.up.<region>.<lane>.r.<from>         another region's Up, likewise
//	sg.v1.hot.<region>.<lane>                 pushes
//	sg.v1.live.<region>                       Lives, from aggregator to aggregator
//	sg.v1.live.<region>.ask                   a newcomer's request for one
//	sg.v1.snap.<region>.<lane>                a starting edge's Snap, answered by a Hot
//	sg.v1.audit.<region>.<lane>               another region's Up that only asks, to compare
//	sg.v1.claim.<home>.<lane>.e.<region>.<pop>.<edge>   Claims of rights in strict limits, answered by Grants
//	sg.v1.grant.<region>.<lane>               Grants that were not asked for, to the region's edges
//	sg.v1.tell.<region>.e.<pop>.<edge>        what an edge decided (Tell), to all aggregators of its region
//	sg.v1.told.<region>                       another region's question what those were told
//
// <region> is the one addressed; of its aggregators the owner of a lane serves
// it, under the queue agg-<region>: for a while there may be two. Neither tenants
// nor keys stand in subjects, and keys in frames are hashed under the cluster's
// secret. A PoP's permissions bind it to its own subjects; Inbox checks that a
// frame says the same of its sender.
package deltasync
