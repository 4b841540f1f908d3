// Package world runs whole clusters on virtual time: the production edges,
// aggregators and stores, in one loop, without goroutines, tickers or a real
// clock. It calls the same Check, Flush, Handle and Receive that the daemons
// call, delivers their frames after the configured delays, and so repeats
// itself exactly.
//
// `edge test` runs operators' rule tests on it.
package world
