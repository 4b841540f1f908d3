// Package grpclimit is gRPC interceptors: rate limits in front of a server of
// the same process, local, as part of a cluster, or of an edge elsewhere. It is edge/httplimit for
// gRPC, over the same limiter, with the same rules.
//
// Rules see a call as a proxy in front of the server would: the full method
// ("/pkg.Service/Method") is the path, and POST the method; the authority is
// the host; metadata are the header.* attributes, of several values the first;
// client_ip is the peer, or whom x-forwarded-for names where the peer is a
// trusted proxy, or on a unix socket; it is "unix" where nobody on one is named,
// and "unknown" where the connection has no address, as one in memory.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// Health is grpc.health.v1, for Config.Exempt: whoever watches a server is
// hardly to be told that it is busy.
const Health = "/grpc.health.v1.Health/"

// Config is how the interceptors behave. The zero value is usable.
type Config struct {
	// Config is what all surfaces share: trusted proxies, jitter, logger,
	// metrics. ProblemType has no meaning here.
	httpapi.Config

	// Exempt are calls that pass unasked and uncounted: a full method
	// ("/pkg.Service/Method"), or a service with all of its methods
	// ("/pkg.Service/", such as Health). Default: none.
	Exempt []string

	// Cost says what a call costs. It is asked with the request of a unary call;
	// of a stream with nil when it is opened and, where Messages is set, with
	// each message. At 0 nothing is charged, and the call passes unless the
	// limit is used up. Default: what the rule says.
	Cost func(ctx context.Context, fullMethod string, message any) uint64

	// Messages has each message that a stream receives charged too, the opening
	// as always. A stream that runs into the limit ends: RecvMsg returns the
	// denial, which the handler should return. A message that a queue admits
	// waits for its turn; slots of concurrency limits are the stream's, which
	// each message takes anew. Default: the opening alone.
	Messages bool
}

// Validate reports every mistake, each by its field.
func (c *Config) Validate() error {
	return errors.Join(append(validExempt(c.Exempt), c.Config.Validate())...)
}

func validExempt(exempt []string) (errs []error) {
	for i, name := range exempt {
		service, _, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
		if !strings.HasPrefix(name, "/") || !ok || service == "" {
			errs = append(errs, fmt.Errorf("Exempt[%d]: %q is neither a full method (/pkg.Service/Method) nor a service (/pkg.Service/)", i, name))
		}
	}
	return errs
}

// Interceptors limit a server's calls. They are safe for concurrent use.
//
//	grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
//
// Denied calls end with codes.ResourceExhausted and a google.rpc.RetryInfo,
// calls that a rule denies for good with codes.PermissionDenied; retry-after
// and the rule's rate-limit fields go into the response's header. Whatever
// fails in the limiter lets calls pass.
//
// A call that a queue admits waits for its turn; if its context ends before,
// what it was charged is given back, and it ends with the context's code. Slots
// of concurrency limits are held, and renewed, until the handler is done. Rules
// with count_when read response.code, the name of the code that the call ended
// with ("UNAUTHENTICATED"), and response.status, what comes nearest to it in
// HTTP (401).
type Interceptors struct {
	api       *httpapi.API    // nil where the limiter is elsewhere
	remote    *httpapi.Remote // nil where it is here
	namespace string
	methods   map[string]bool // exempt
	services  map[string]bool // exempt, "/pkg.Service/"
	cost      func(context.Context, string, any) uint64
	messages  bool
}

// Local admits limit calls per window from each client address, counted in
// this process alone. It takes one call or more. Over a unix socket all callers
// are one client, unless x-forwarded-for names them, as a proxy has it.
//
//	limited, err := grpclimit.Local(100, time.Minute)
//	...
//	grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
func Local(calls uint64, per time.Duration) (*Interceptors, error) {
	if calls == 0 { // rules may say so, to shut a door; here it is a setting that was never set
		return nil, errors.New("grpclimit: calls: 0 a window would deny everybody")
	}
	node, err := edge.Local(limit.RuleSpec{
		Name: "per-client", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: calls, Per: per}},
	})
	if err != nil {
		return nil, err
	}
	return New(node, "", Config{})
}

// New is interceptors over a limiter, an edge.Node as a rule, for the rules of
// one namespace; "" where they have only one.
func New(limiter httpapi.Limiter, namespace string, cfg Config) (*Interceptors, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("grpclimit config: %w", err)
	}
	if cfg.Transport == "" {
		cfg.Transport = "grpc"
	}
	api, err := httpapi.New(limiter, cfg.Config)
	if err != nil {
		return nil, err
	}
	if err := api.Serves(namespace); err != nil { // all calls would pass
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	l := &Interceptors{api: api, namespace: namespace, cost: cfg.Cost, messages: cfg.Messages}
	l.letPass(cfg.Exempt)
	return l, nil
}

// letPass exempts calls.
func (l *Interceptors) letPass(exempt []string) {
	l.methods, l.services = map[string]bool{}, map[string]bool{}
	for _, name := range exempt {
		if strings.HasSuffix(name, "/") {
			l.services[name] = true
		} else {
			l.methods[name] = true
		}
	}
}

// exempt says that calls of the method are not limited.
func (l *Interceptors) exempt(fullMethod string) bool {
	if len(l.methods)+len(l.services) == 0 {
		return false
	}
	return l.methods[fullMethod] || l.services[fullMethod[:strings.LastIndexByte(fullMethod, '/')+1]]
}
