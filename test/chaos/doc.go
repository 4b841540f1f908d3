// Package chaos breaks real processes under load and holds what is left to
// what is promised: no decision fails or waits, no acknowledged count is lost,
// none is invented, and when the faults stop all edges agree within a refresh
// and two exports.
//
// Three regions joined by gateways, each with a nats-server, a PoP behind a leaf
// of its own with two edges, two aggregators and a Redis, all as they are
// shipped. Every client's link is a wire that can be cut, frozen, delayed and
// slowed. The faults are {kill, stop, cut, slow} × {edge, aggregator, nats,
// redis} singly, then pairs, and two cases that take three: a region dies with
// counts that its Redis alone has, and a Redis dies with counts that its replica,
// which is promoted, lacks. Whom they hit, how and for how long is drawn from a seed
// and the scenario's name.
//
//	go test ./test/chaos                               nine of them, a minute
//	go test ./test/chaos -v -chaos.only '^cut-nats$'   these alone
//	go test ./test/chaos -v -timeout 60m -chaos.long   all 154, longer and under more load, half an hour
//
// The long form writes figures.json and RESULTS.md beside this file; with
// -chaos.only it replaces what that names, if the rest is of the same commit.
// A failure prints the command that draws the same faults again.
package chaos
