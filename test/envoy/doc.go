// Package envoy holds rules.format: envoy against envoyproxy/ratelimit itself: random
// configurations are taken by both or refused by both, and random requests get equal
// statuses of both.
package envoy
