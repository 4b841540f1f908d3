// Package load is an operator's own load test of an edge, or of what an edge stands
// before:
//
//	go run ./test/bench -load steady -target http://127.0.0.1:18080/v1/check -rate 500 -tenants 20
//	go run ./test/bench -load burst -target http://127.0.0.1:18080/v1/auth -times 10 -every 10s -burst 1s
//	go run ./test/bench -load flash -target https://shop.example/api/x -times 20 -surge first
//
// A /v1/check is asked in JSON, with the tenant as an attribute; every other page is
// called with the tenant in a header. Certificates of a CA of your own are believed where
// SSL_CERT_FILE names them.
//
// The load is open: requests are due by a schedule that does not wait for answers, and
// latency counts from when a request was due, be it that no connection was free for it.
// So a server that stalls is seen to, which a load that waits for it would leave out.
// Each connection takes the next request that is due, so that what waits takes no memory;
// what waited for longer than -timeout is given up unsent, as a client would.
//
// Who is denied is told apart from what failed: a limit that holds is no outage. It is told
// by the status 429, or by what an edge says of it, as a rule may have a status of its own.
// So is what an edge answers with 202, as it is to be done later: it was not admitted. What
// passes as no edge decided about it (X-Spillgate-Undecided) failed: a limit that is off
// would else look like one that nobody reaches.
package load
