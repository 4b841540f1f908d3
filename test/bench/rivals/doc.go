// Command rivals measures edge.Check beside the limiters and caches that Go
// programs use today, and fills in the rows P1 to P4, P7 and P11 of the
// project's targets. `go run ./test/bench` in the main module runs it and
// keeps what it says in test/bench/RESULTS.md.
//
// # How it measures
//
// All contestants of a size are built first and live side by side. Then they
// take turns: one short round each, again and again, so that what disturbs the
// machine disturbs all of them alike; the median round counts. Every contestant
// sees the same requests in the same order: keys drawn beforehand from a Zipf
// distribution whose ranks are shuffled. The strings handed over are not the
// ones that the contestants were filled with, and they lie in the order in
// which they are needed, as a key does that was just read from a socket.
//
// The garbage collector rests during rounds: a collection that one contestant
// caused would fall into the round of another. That favours those who allocate;
// the column of allocations says who does.
//
// # What it refuses
//
// A report is refused where the rounds of a contestant that a target is judged
// by lie too far apart, after three times as many rounds even, or where a contestant did not do its work: all of them
// must have admitted (or found) what they were asked for, except the row that
// is to be denied. The tests bring every limiter to its limit and see it deny.
package main
