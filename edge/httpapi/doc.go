// Package httpapi is the HTTP surface of an edge: it reads a request, asks the
// limiter, and tells the caller what was decided and why.
//
//	POST /v1/check         one decision; 200 whether allowed or denied, so that
//	                       client libraries never retry the limiter itself; what a
//	                       denied client is to be answered with is in status
//	POST /v1/check/batch   up to 100 decisions, answered in the same order
//	POST /v1/report        what a request turned out to cost, or to be answered;
//	                       a negative cost gives back; recorded says whether
//	                       any rule counted it, or gave anything back
//	ANY  /v1/auth[/{ns}]   for proxies (nginx auth_request, Caddy forward_auth,
//	                       Traefik ForwardAuth): 200, or 429 with its headers
//	GET  /healthz, /readyz the process lives; it has rules and is not draining
//
// A request that a queue admits is held back until its turn, by /v1/auth too;
// /v1/check tells delay_ms, and its caller waits. Slots that a concurrency limit
// gave to a check are released by a report with a cost of -1, or by their lease; strict
// ones at once where the report has the decision_id of the check.
//
// Edges are asked the same over gRPC (edge/limiterapi), by edge/client, and by Remote, which
// is middleware for programs that hold no limiter of their own.
//
// Nothing else is served on the data listener. Metrics and profiles stand on
// the admin handler, which belongs on a loopback address.
//
// A call that cannot be decided (malformed, unknown namespace, no rules yet)
// is answered with problem+json (RFC 9457) that names the field and how to
// mend it, and counts against no limit. Where such calls are to pass (/v1/auth?fail=open,
// Middleware, Remote) the answer says why nothing was decided, in UndecidedField.
package httpapi
