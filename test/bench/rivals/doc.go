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
//
// # Where the time of a check goes
//
// Processor time in ns, two goroutines, lower quartile of 21 rounds of 15 ms in
// turn within one process, each part on top of those before it (2026-11-22, the edge
// since it keeps cells in blocks, AMD EPYC, 2 processors that others used too):
//
//	part                                    1 k keys   1 M keys
//	the harness                                  8.5        8.8
//	Reset, SetSlot                               5.7        4.7
//	Rules                                        7.7        7.7
//	AppendKey                                    6.9        6.5
//	SipHash                                     26.5       21.5
//	a shard's lock and unlock                    8.1        3.8
//	find and write a record                     -1.7      106.7
//	decide, fill in, charge; 8 % fold at 1 M    56.4      180.5
//	edge.Check                                 118.1      340.1
//	edge.CheckBatch                            105.4      211.8
//
// A fold at 1 M keys took 1.1 us for a block, 0.8 us sparse, timed one by one with
// cold caches, against 0.25 us of a check that does not fold. At 1 M keys a look for a
// record reads 2.65 places on average, as tables are 0.8 full so that a sparse key
// takes less than 100 B (P7). Tags of a byte a place, looked at before the record,
// made a check 15 % slower: the tag missed, and the record after it. Huge pages for
// the whole heap took 5 to 20 % off where every key misses; that is the operator's
// to switch on (transparent_hugepage=always), not a library's.
//
// Tried, and dropped: to charge a record whose allowance is all that changes by one
// compare-and-swap on its own line, without the shard's lock. It took one hot key with two
// goroutines from 9.1 to 12.8 M/s, and nothing off where keys are many (1 M keys: 180 ns
// of processor time with the lock, 188 and 197 without; 1 k: 123, and 125 and 128); with
// one goroutine a check took 70 ns instead of 61, as the record is looked at twice.
package main
