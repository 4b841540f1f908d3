// Package httplimit is net/http middleware: rate limits in front of a handler
// of the same process, local, as part of a cluster, or of an edge elsewhere.
package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// Local admits limit requests per window from each client address, counted in
// this process alone. It takes one request or more. Over a unix socket all
// clients are one, unless X-Forwarded-For names them, as a proxy has it.
//
//	limited, err := httplimit.Local(100, time.Minute)
//	...
//	http.ListenAndServe(":8080", limited(mux))
func Local(requests uint64, per time.Duration) (func(http.Handler) http.Handler, error) {
	if requests == 0 { // rules may say so, to shut a door; here it is a setting that was never set
		return nil, errors.New("httplimit: requests: 0 a window would deny everybody")
	}
	node, err := edge.Local(limit.RuleSpec{
		Name: "per-client", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: requests, Per: per}},
	})
	if err != nil {
		return nil, err
	}
	return New(node, "", httpapi.Config{})
}

// New is middleware over a limiter, an edge.Node as a rule, for the rules of
// one namespace; "" where they have only one. Denied requests get 429 (or what
// the rule says) with Retry-After, the rule's headers and problem+json. It is an error
// where the limiter has rules, and none of that namespace: all requests would pass.
func New(limiter httpapi.Limiter, namespace string, cfg httpapi.Config) (func(http.Handler) http.Handler, error) {
	api, err := httpapi.New(limiter, cfg)
	if err != nil {
		return nil, err
	}
	if err := api.Serves(namespace); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler { return api.Middleware(namespace, next) }, nil
}

// RemoteConfig is how requests are limited by an edge elsewhere. The zero value is usable.
type RemoteConfig = httpapi.RemoteConfig

// Remote is middleware over an edge elsewhere, which edge/client asks: each request waits
// for its answer, for Config.Timeout at the most. Denied requests get what New gives them;
// where the edge is away they pass, or get 503 if the client fails closed. Those that no edge
// can be told of are refused: with 414 or 431 where their path, or the headers that rules
// read, are longer than it takes (60 KiB together), with 400 where they are not UTF-8.
//
//	limiter, err := client.NewHTTP("http://127.0.0.1:8080", client.Config{})
//	...
//	limited, err := httplimit.Remote(limiter, httplimit.RemoteConfig{Headers: []string{"X-User-Id"}})
//
// A strict limit holds whatever the client's Timeout; its strict_wait is of use as far as that
// goes (client.Config).
//
// What a check over a network does not give: slots of concurrency limits come back with their
// leases, rules with count_when count nothing, and a cost that a header names counts as its
// rule's default.
func Remote(limiter client.Limiter, cfg RemoteConfig) (func(http.Handler) http.Handler, error) {
	remote, err := httpapi.NewRemote(limiter, cfg)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return remote.Middleware, nil
}
