// Package rlqs is Envoy's rate limit quota service, version 3
// (envoy.service.rate_limit_quota.v3), over the limiter of this edge: data planes report
// what they used of a bucket, and are assigned what they may use next. They decide by
// themselves: no call a request. README.md here says how, how far a limit may be exceeded,
// and how to set up Envoy's filter.
//
// The stream's domain is a namespace; the entries of a bucket's id are the attributes that
// rules see, as those of a descriptor are to edge/rls: path is read in all ways in which
// origins read it, and remote_address is client_ip, too. Values that are no UTF-8 get here
// where the server was made with envoytext.ServerOption; else such a report ends its stream.
//
// # What is charged when
//
// Tokens are charged when they are assigned, as one request that costs so many. An
// assignment is a token bucket that starts with them and gets no more while it lives, so
// that a data plane cannot admit more by it, however long it holds, be it that its stream
// is gone and it goes on with the last assignment. Told again it is the same one, and lasts longer. What was left of it is given back only
// on a report that proves it: one that comes a second after the assignment ended. Without
// one nothing is given back, and the window forgets it. A stream that broke goes on where the
// first report of the next one proves that none was lost between.
//
//	book     who has what of which bucket; takes the time, sends nothing
//	 ├ check    what of a message cannot be; which of its buckets get a place
//	 ├ report   usage: claims grants, settles those that are over, charges what is beyond
//	 ├ turnAway usage of those that get none: it is charged, and denied once it is too much
//	 ├ stretch  rounds, so many at a time: what is left is shared by demand; who is idle is told to abandon
//	 └ take     what is to be sent
//	Service  the streams around it
package rlqs
