package httpapi

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// isNil says that it is nothing, or the nil pointer that comes with an error.
func isNil(limiter any) bool {
	v := reflect.ValueOf(limiter)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Limiter is what decides: a node of the edge.
type Limiter interface {
	// Rules are the current rules, nil before any were loaded. They are read
	// once a request, so that a reload never mixes two sets in one answer.
	Rules() *limit.Set
	// Check decides at now, and charges unless req is a peek. It never blocks.
	// req was made from the set that Rules returned.
	Check(now time.Time, req *limit.Request) limit.Decision
	// CheckOrWait is Check for who can wait for what a limit lacks for a moment
	// (strict_wait). Where wait is nil, d is the decision, as it mostly is. Else nothing
	// is charged yet, and wait, called once, decides in a while, or when ctx ends.
	CheckOrWait(now time.Time, req *limit.Request) (d limit.Decision, wait func(ctx context.Context) limit.Decision)
	// Report charges what a request turned out to cost, whatever room there is;
	// GiveBack gives its cost back, what this edge charged first.
	Report(now time.Time, req *limit.Request) limit.Decision
	GiveBack(now time.Time, req *limit.Request)
	// Refund gives back what a Check charged (its Charges), cost of each or 0
	// for all, once. Renew has charges of concurrency limits last for a lease
	// from now.
	Refund(now time.Time, charges []limit.Charge, cost uint64)
	Renew(now time.Time, charges []limit.Charge)
	// Answered charges a request that was checked to the rules that count
	// certain responses, once response.status and its like are set.
	Answered(now time.Time, req *limit.Request)
	// Explain says how a request stands with every rule of its namespace; it charges
	// nothing.
	Explain(now time.Time, req *limit.Request) limit.Explanation
	// Time is what time it is at an instant by the clock that windows begin and end by.
	Time(now time.Time) time.Time
	// Boot is what the clock shows that rights of strict limits go by, at now.
	Boot(now time.Time) time.Duration
	// Ready is nil once rules are loaded. A view that is stale does not unready
	// an edge: it goes on deciding, and says how old its view is.
	Ready() error
}

const (
	defaultJitter      = 0.1
	defaultProblemType = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	maxJitter          = 1.0
	jitterOf           = 10 * time.Minute // of a longer wait no more is
)

// Config is how the surface behaves. The zero value is usable.
type Config struct {
	// TrustedProxies are the networks whose X-Forwarded-* and X-Original-*
	// headers are believed, and those that rules take a cost from (which the
	// proxy must set or clear, else its clients choose what they pay). Default:
	// none, since whoever is believed chooses the address that is limited. Peers
	// on a unix socket are always believed: the socket's file mode says who they
	// are. Those of them that name no client's address are one client together,
	// whose client_ip is "unix".
	TrustedProxies Proxies

	// DefaultNamespace is the one that calls are meant for which name none.
	// Default: the only one that the rules have; where they have several, such
	// calls are refused.
	DefaultNamespace string

	// RetryJitter is the part of a wait, of its first ten minutes, by which
	// Retry-After is lengthened at the most, at random, so that clients denied
	// together do not come back together. Default (0): 0.1. Negative: none. More
	// spreads better and makes clients wait longer than they must.
	RetryJitter float64

	// ProblemType is the type URI of the problem+json that a denied client
	// gets. Default: IANA's quota-exceeded.
	ProblemType string

	// Denied is told of each request that Middleware, or who calls Admit, denies, before
	// its answer is written, and must keep neither. Default: nobody.
	Denied func(r *http.Request, req *limit.Request, d *limit.Decision)

	// Replayed says that a request to Middleware, or of who calls Admit, is no client's, but
	// that of somebody who asks whether there is room by now for what was denied. Its
	// denials are counted apart, and not remembered. Default: all are clients'.
	Replayed func(r *http.Request) bool

	// Waits says why what is denied does not wait as it is to; nil: it does, or is not to.
	// /readyz tells it, and is no less ready. Default: nothing is told.
	Waits func() error

	// Logger gets panics, proxies that are not believed, and the first request
	// that tells no client's address. Default: nowhere.
	Logger *slog.Logger

	// Metrics counts decisions. Several APIs may share one. Default: counted
	// and not exported.
	Metrics *Metrics

	// Room is what the bodies that are read, and messages under way elsewhere, take together.
	// Default: one of DefaultRoom for this API alone.
	Room *Room

	// Transport names the surface in the metrics. Default: "http".
	Transport string

	// Now and Rand (uniform in [0, 1)) are the clock and the jitter's source.
	// Default: time.Now and math/rand/v2. Tests set them.
	Now  func() time.Time
	Rand func() float64
}

// Validate reports every mistake, each by its field.
func (c *Config) Validate() error {
	var errs []error
	for i, p := range c.TrustedProxies {
		switch {
		case !p.IsValid():
			errs = append(errs, fmt.Errorf("TrustedProxies[%d]: is not a network (such as 10.0.0.0/8)", i))
		case p.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("TrustedProxies[%d]: %v would match nothing (write the IPv4 network itself)", i, p))
		}
	}
	if !(c.RetryJitter <= maxJitter) {
		errs = append(errs, fmt.Errorf("RetryJitter: %v is above %v (0.1 lengthens a wait by up to a tenth)", c.RetryJitter, maxJitter))
	}
	return errors.Join(errs...)
}

// API is the handler of the data listener. It is safe for concurrent use.
type API struct {
	limiter  Limiter
	cfg      Config
	log      *slog.Logger
	metrics  *Metrics
	duration prometheus.Observer
	view     atomic.Pointer[view]
	draining atomic.Bool
	denials  denials
	ids      ids
	warned   atomic.Int64 // when a proxy that is not trusted was last logged, Unix seconds
	pathless atomic.Int64 // when one that tells no path was, the same
	missed   atomic.Int64 // when a namespace without rules was, the same
	told     atomic.Bool  // that there are clients without an address

	tenantsMu sync.Mutex // guards tenants
	tenants   map[string]*tenantCounts

	deniedKeys deniedKeys
}

var _ http.Handler = (*API)(nil)

// New returns the API of a limiter. It starts nothing.
func New(limiter Limiter, cfg Config) (*API, error) {
	if isNil(limiter) {
		return nil, errors.New("there is no limiter: the error of what should have made it (edge.Local, edge.New) says why")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("httpapi config: %w", err)
	}
	if cfg.RetryJitter == 0 {
		cfg.RetryJitter = defaultJitter
	}
	if cfg.ProblemType == "" {
		cfg.ProblemType = defaultProblemType
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Transport == "" {
		cfg.Transport = "http"
	}
	if cfg.Room == nil {
		cfg.Room = NewRoom(DefaultRoom, NewRefusals(nil, cfg.Logger))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &API{
		limiter: limiter, cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics,
		duration: cfg.Metrics.duration.WithLabelValues(cfg.Transport),
		ids:      ids{seed: maphash.MakeSeed()},
		tenants:  map[string]*tenantCounts{},
	}, nil
}

// ServeHTTP routes by hand: the paths are few, and a mux would clean and
// redirect paths, and allocate for the namespace.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.failOnPanic(w, r)
	switch r.URL.Path {
	case "/v1/check":
		a.check(w, r)
	case "/v1/check/batch":
		a.checkBatch(w, r)
	case "/v1/report":
		a.report(w, r)
	case "/v1/auth":
		a.auth(w, r, "")
	case "/healthz":
		a.healthz(w, r)
	case "/readyz":
		a.readyz(w, r, false)
	default:
		if ns, ok := strings.CutPrefix(r.URL.Path, "/v1/auth/"); ok && !strings.Contains(ns, "/") {
			a.auth(w, r, ns)
			return
		}
		a.refuse(w, &inputError{
			status: http.StatusNotFound, field: "path", detail: "nothing is served at " + short(r.URL.Path),
			hint: "/v1/check, /v1/check/batch, /v1/report, /v1/auth, /healthz and /readyz are",
		})
	}
}

// failOnPanic answers 500 in place of a crash; it is the deferred call itself,
// as recover asks for.
func (a *API) failOnPanic(w http.ResponseWriter, r *http.Request) {
	if p := recover(); p != nil {
		a.panicked(r.URL.Path, p)
		writeProblem(w, &problem{status: http.StatusInternalServerError, detail: "the limiter failed; its log says where"})
	}
}

// passOnPanic is failOnPanic for callers who asked to fail open.
func (a *API) passOnPanic(w http.ResponseWriter, r *http.Request) {
	if p := recover(); p != nil {
		a.panicked(r.URL.Path, p)
		tellUndecided(w, undecidedFault)
		w.WriteHeader(http.StatusOK)
	}
}

func (a *API) panicked(path string, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http's own way of dropping a connection
	}
	a.metrics.panics.Inc()
	a.metrics.undecided.Inc()
	a.log.Error("panic in a handler", "path", short(path), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// refuse tells the caller what was wrong with the call; nothing was counted
// against a limit.
func (a *API) refuse(w http.ResponseWriter, e *inputError) {
	p := &problem{status: e.status, detail: e.Error(), field: e.field}
	if e.status == http.StatusServiceUnavailable { // it was no mistake of the caller's
		p.kind, p.title, p.retryAfter = reducedCapacity, "No memory", 1
	}
	writeProblem(w, p)
}

// refuseDecision is refuse where a decision was asked for.
func (a *API) refuseDecision(w http.ResponseWriter, e *inputError) {
	a.metrics.undecided.Inc()
	a.refuse(w, e)
}

// notReady says that there are no rules to decide by.
func (a *API) notReady(w http.ResponseWriter) {
	detail := "no rules are loaded yet"
	if err := a.limiter.Ready(); err != nil {
		detail = err.Error()
	}
	writeProblem(w, &problem{
		status: http.StatusServiceUnavailable, kind: reducedCapacity,
		title: "Not ready", detail: detail, retryAfter: 1,
	})
}

// namespaceOf finds the rules that a call is meant for.
func (a *API) namespaceOf(set *limit.Set, name string) (*limit.Namespace, *inputError) {
	if name == "" {
		name = a.cfg.DefaultNamespace
	}
	if name == "" {
		if ns := set.Only(); ns != nil {
			return ns, nil
		}
		return nil, &inputError{
			status: http.StatusBadRequest, field: "namespace", detail: "is missing, and the rules have several",
			hint: "name the one that is meant",
		}
	}
	if ns := set.Namespace(name); ns != nil {
		return ns, nil
	}
	return nil, &inputError{
		status: http.StatusNotFound, field: "namespace", detail: "there are no rules for " + short(name),
		hint: "it is the namespace: of a rules file",
	}
}

// Serves is nil where there are rules for a namespace ("": the default one, or the only
// one there is), or none at all yet. Who limits the calls of one namespace asks it before
// any come: they would pass unlimited.
func (a *API) Serves(namespace string) error {
	if set := a.limiter.Rules(); set != nil {
		return a.ServesBy(set, namespace)
	}
	return nil
}

// ServesBy is Serves, were those the rules.
func (a *API) ServesBy(set *limit.Set, namespace string) error {
	if _, bad := a.namespaceOf(set, namespace); bad != nil {
		return fmt.Errorf("%w; there are rules for: %s", bad, strings.Join(set.Names(), ", "))
	}
	return nil
}

// ReadsHeader says that a rule of a namespace, as Admit has it, reads a header, by its canonical
// name.
func (a *API) ReadsHeader(namespace, name string) bool {
	set := a.limiter.Rules()
	if set == nil {
		return false
	}
	ns, bad := a.namespaceOf(set, namespace)
	return bad == nil && ns.ReadsHeader(name)
}

// allowMethod answers 405 unless the request's method is one of methods.
func (a *API) allowMethod(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	a.refuse(w, &inputError{
		status: http.StatusMethodNotAllowed, field: "method", detail: short(r.Method) + " is not served at this path", hint: "use " + allowed,
	})
	return false
}
