// Package integration tests Spillgate as it is run: edges and aggregators in
// processes of their own, a real nats-server and real redis-servers with the
// shipped configurations, calls over HTTP. What can be said of one package, or
// on a virtual clock, is tested there; here stands what only whole processes
// can show: starting, dying, coming back, and what is counted meanwhile.
package integration
