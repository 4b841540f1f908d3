// Package capacity is the paper: how much a fleet of a given size sends, merges
// and holds, computed from measured costs, without running it.
//
//	go run ./test/sim -capacity                       # 3, 20 and 50 regions
//	go run ./test/sim -capacity -regions 50 -targets homes
//	go run ./test/sim -capacity -regions 5 -edges 40 -rps 500 -keys 2000000 -o json
//
// RESULTS.md holds the first one's answer.
//
// # What is assumed
//
// Keys are asked by Zipf's law, every edge asks alike, requests of a key come at
// an edge as a Poisson stream, and all has gone on for long. All keys have one
// limit and one window. The network loses nothing.
//
// A key that is asked λ times a second at an edge is told (1 − e^(−λT))/T times
// a second, T being the cadence of its class (edge/cadence.go); what rests is
// told again every max(5 s, W/6), in full; and who has used a quarter of a limit
// asks once more when it has been quiet for half a second (edge/node.go). A
// region exports a key likewise, at the sum of what its edges tell, as often as
// the frames under way let it, two or one more for each interval that the oldest waits, to all other regions or to the key's two homes (to the
// others too, but less often, where it is above half of its limit). Replies carry all live slices of a key, of which
// one with λ' requests a second has 1 − e^(−λ'w) of each w long.
//
// # What is not in it
//
// NATS' own headers and acknowledgements, what aggregators of a region tell each
// other (one small message a second), rules, resends after a fault, and budgets
// of bytes: it says what would be sent if none was set. Limits are loose: of adaptive
// ones the simulator sees a fifth fewer messages where keys press on their limits, and
// bytes within a tenth, as they tell demand with their counts and push less; where few
// do, three tenths more bytes, for what is told with each key (test/bench/sync).
package capacity
