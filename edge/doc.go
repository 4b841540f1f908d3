// Package edge is the node: it decides locally, in memory, from its own counts
// and from what it last heard of everybody else, and it publishes its counts.
//
// The mechanism is plain calls that take the time: Check decides, Flush hands
// out frames, Receive and ReceiveHot take in what others counted, Tick cleans
// up; Asks and ReceiveSnapshot bring a node that starts what is hot. Run is the shell around them that has tickers and a bus; the simulator
// calls the same methods on a virtual clock.
//
// # The ledger
//
// Live keys stand in a sharded open-addressing table of 64-byte records. A
// record holds an allowance: what may still be spent before anything has to be
// computed. Check compares and subtracts. Only when the allowance is used up or
// its slice is over does Check fold: it sums own and others' slices and sets
// the allowance anew. Receive folds too, so what others spent takes effect at
// once. Slices stand in blocks beside the table.
//
// What that took off a decision at 1 M Zipf keys, one rate far from its limit, and what did not
// (2026-11-23; Xeon, 2 processors under a load of 5 to 12; median processor time of
// rounds of 3 ms, old and new in turn, only those counted that had their processors):
//
//	                          1 goroutine, ns    2 goroutines, ns
//	edge.Check                  382 to 249         420 to 289
//	edge.CheckBatch of 64       286 to 169         302 to 224
//	edge.Check, three rates     700 to 569         708 to 622
//	the last of ten rules       429 to 294         505 to 359
//
// Most of it is that no block is read for what is left of an adaptive limit, and that
// records of busy keys stand at home: of what it took before that, a check of one
// goroutine takes 0.78, and one in a batch 0.76 (medians, in random order). Fetching no
// second line took 5 % off with one goroutine, and nothing that could be seen with two.
// Batches of 32 before the first decision were not shown to gain.
// Three rates now take 2.15 times as long as one, where it was 1.69: one gained more.
//
// Since then, on the same machine nearly at rest (rounds of 30 ms in random order, medians
// of processor time of 15 to 30 each, ns of a check with one goroutine; with two; of one in
// a batch with two; of three rates with two):
//
//	locks and records fetched to be written, each shard
//	on cache lines of its own, and what fetch reads
//	on another than the lock                      176 to 157  302 to 277  199 to 168  491 to 455
//	records of all rates brought home, and fetched                                    455 to 427
//	a text hashed where it stands                 168 to 152  248 to 222  162 to 146
//	each request on cache lines of its own        171 to 159  265 to 205  161 to 152
//	a request's busy fields together              no change   not known   118 to 104 (with one)
//
// The first of these took a check from 154 to 150, and with two goroutines from 300 to 252,
// in another run: two goroutines differ so much from run to run.
//
// All of it, and the profile made anew that the edge is compiled with (e15fa01 and 37833f3;
// under a load of 6, rounds of 4 ms in random order, those that had their processors):
//
//	                          1 goroutine, ns    2 goroutines, ns    2 goroutines, M/s
//	edge.Check                  185 to 153         334 to 194          5.98 to 9.99
//	edge.CheckBatch of 64       137 to 108         188 to 146         10.60 to 13.76
//	edge.Check, three rates     388 to 320         472 to 342          4.14 to 5.68
//	the last of ten rules       223 to 209         398 to 258          4.78 to 7.22
//	all denied                  420 to 371         493 to 394          4.00 to 5.04
//	the bare table               68 to 64           62 to 62            32.4 to 31.8
//	sethvargo/go-limiter        432 to 391         458 to 456           4.29 to 4.37
//
// One in a batch takes 0.73 of the time of a check there, as that gained more; it may take
// 0.5. On a machine whose memory is faster it takes as long as a check (test/bench/RESULTS.md).
//
// What the requests gain is as much as that where one goroutine made those of both, as the
// benchmark does. It has the clocks of both on one cache line, too: apart, a check takes
// 173 instead of 200 with two goroutines, and 134 instead of 140 with one. In a table of 1 k keys three
// rates take 3 % more than before all this with one goroutine, as lines are fetched that are
// there already, and 21 % less with two.
//
// What lost: deciding a batch in the order of shards, each lock held once for all of its
// requests, took 5 to 11 % more with one goroutine and 1 to 3 % less with two, in stretches
// of 16, 32 and 64; fetching the blocks of all rates whose slices are over, before the
// first is folded, took nothing off. With all of the heap in huge pages a check takes
// 0.83 of the processor time, one in a batch 0.81, three rates 0.95 (one goroutine; two: 0.85,
// 0.96, 0.97): tables are smaller than such a page until a node has 8 M keys, so that one
// slab for all shards were needed, taken before it is full. Not tried: deciding without the
// lock. A record would need a lock of its own, in its line, which flush, hear and sweep take
// too: all 64 bytes are in use.
//
// Own counts are never in a cache that may forget: a counter that started
// again at zero under its old name would hide behind its old maximum. Where
// the table itself must forget (it is bounded), the node goes on under a new
// life, which is a replica of its own. The view, a ristretto cache, holds what
// may be forgotten: totals of keys that are not live here.
//
// # Under a flood of keys
//
// When the ledger is full, the record with the smallest share of its limit in
// use makes room; while the region answers, those go first whose counts it has,
// as it tells them again. A key that has 80 % of its limit used or more stays limited however it was
// forgotten, and so does one that a push says that of, and one that has as much used of
// what the least class that asked of it may: it may spend what it had
// left; when its use would have fallen below 80 %, the fifth that leaves; and
// its limit anew when all that it had used has left the window. This is kept in
// a table of 16 bytes a key, and when that is full in a filter of 16 bits a key,
// which gives a key nothing until then, and takes at most 0.8 % of other keys
// for such ones, for a window at most. Its instants are rounded up by a quarter
// of the time to go.
//
// What the flood can win: a key below 80 % that is forgotten gets back what it
// had used, each time, as far as neither the view nor the region knows it; while
// the region answers, what it spends before the answer comes. Cut off, the keys
// of the flood must use up a larger share of their own limits first. Keys that
// the filter has no room for are counted (spillgate_keys_blocked_lost_total).
package edge
