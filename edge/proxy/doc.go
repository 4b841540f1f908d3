// Package proxy is a reverse proxy with rate limits: an edge that stands in front of an
// upstream, asks the rules about each request, and passes on what they allow. It is
// net/http/httputil's ReverseProxy with httpapi's middleware before it.
//
// Who answered is told by the status and the fields:
//
//	429, or what the rule says   a limit denied: Retry-After, the rule's fields and
//	                             problem+json, as all surfaces have them
//	503 with Retry-After         the rule is closed while the edge is cut off
//	                             (#temporary-reduced-capacity), or a turn passed; or,
//	                             with Proxy-Status http_request_denied, there is no
//	                             room for what is not taken of bodies over HTTP/2,
//	                             or no place for one more request over it
//	502, 504                     the upstream cannot be reached, or does not answer:
//	                             Proxy-Status (RFC 9209) says which
//	400, 408, 413, 431, 501      the request could not be passed on: Proxy-Status
//	                             has http_request_error
//	anything else                the upstream's own answer; but what net/http takes for
//	                             no request it answers itself, in plain text (400, 417,
//	                             431, 501, 505), and closes the connection
//
// A limiter that fails lets requests pass, without its fields; it is counted in
// spillgate_decisions_total{result="error"}. What the proxy answered for whom is
// spillgate_proxy_requests_total{result}.
//
// What was admitted is sent once, whatever net/http thinks can be repeated; once more only
// where the upstream had closed a kept connection before anything of it came, and twice over
// HTTP/2 where it says that it did nothing with it.
//
// Nothing is kept back: bodies and answers go on as they come, of any length and for any
// time, trailers and informational answers too. What a client may do is bounded by its
// pauses (ClientTimeout) and, over HTTP/2, by places for its requests (Enter), what the
// upstream may by the time until it begins to answer (Timeout); from then on an answer, or
// a connection that switched protocols, lasts until one of them ends it.
package proxy
