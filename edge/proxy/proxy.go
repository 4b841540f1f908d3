package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// Proxy is the handler of the proxy's listener. It is safe for concurrent use.
type Proxy struct {
	api       *httpapi.API
	cfg       Config
	transport http.RoundTripper      // over HTTP/1; of an h2c upstream over HTTP/2, with wide windows
	calls     http.RoundTripper      // that of an https upstream for calls of gRPC, over HTTP/2 if it speaks that; nil: there is none
	spoken    *spoken                // by an https upstream; nil of others
	narrow    http.RoundTripper      // has narrow windows over HTTP/2; nil: there are none
	answers   *httpapi.Room          // of wide ones
	bodies    *httpapi.Room          // of what is not read of uploads over HTTP/2
	unread    time.Duration          // for how long, without room
	fresh     func() *http.Transport // for one request, which has a connection of its own
	takes     takes                  // of large headers, over HTTP/2
	shared    atomic.Bool            // the upstream has spoken HTTP/2, with many requests on a connection
	signal    *signal                // nil: none
	errors    *log.Logger
	ahead     atomic.Int64 // bytes read of bodies whose requests wait
	kept      atomic.Int64 // and of those that went over HTTP/2, which may be sent again
	told      atomic.Int64 // when a fault was last logged, Unix seconds
	untold    atomic.Int64 // faults since then
	open      sync.WaitGroup
	drain     time.Duration
}

var _ http.Handler = (*Proxy)(nil)

// New returns a proxy that asks an API about each request. capacities is told the
// upstream's signal; nil where there is none. It starts nothing. It is an error where
// there are rules, and none of the namespace: all requests would pass.
func New(api *httpapi.API, capacities Capacities, cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("proxy config: %w", err)
	}
	if cfg.Capacity.Name != "" && capacities == nil {
		return nil, errors.New("proxy config: Capacity: this limiter knows no capacities")
	}
	if err := api.Serves(cfg.Namespace); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Proxy{
		api: api, cfg: cfg, transport: newLine(&cfg, answerWindow), signal: newSignal(&cfg, capacities),
		drain: drainTimeout, errors: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		answers: httpapi.NewRoom(answerRoom, nil), bodies: httpapi.NewRoom(bodyRoom, nil), unread: unreadTime,
	}
	p.fresh = func() *http.Transport { return newFresh(&p.cfg) }
	switch cfg.Upstream.Scheme {
	case "http":
		return p, nil
	case "h2c":
		p.shared.Store(true)
	default:
		p.spoken = newSpoken()
		p.transport, p.calls = newLine1(&cfg, p.spoken), p.transport
	}
	p.narrow = newLine(&cfg, narrowWindow)
	return p, nil
}

// Fits is an error where there would be no rules of the namespace, were those the rules: all
// requests would pass.
func (p *Proxy) Fits(set *limit.Set) error {
	if err := p.api.ServesBy(set, p.cfg.Namespace); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}

// buffers are what answers are copied through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

const bufferBytes = 32 << 10

func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return p[:]
	}
	return make([]byte, bufferBytes)
}

func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[bufferBytes]byte)(buf)) }

// ServeHTTP asks the rules, waits for the request's turn, and passes it on. What cannot
// be passed on anyway is refused before that, and counts nothing. A body that does not
// say how long it is, and turns out too long, has gone to the upstream in part by then:
// it is refused, too, and has been counted, or whoever leaves out the length would act
// there for nothing.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.open.Add(1)
	defer p.open.Done()
	p.cfg.Metrics.underWay.Inc()
	defer p.cfg.Metrics.underWay.Dec()
	x := &exchange{proxy: p, result: resultLimited, rc: http.NewResponseController(w)}
	x.answer = answer{ResponseWriter: w, rc: x.rc, pause: p.cfg.ClientTimeout, own: true, origins: p.cfg.Origins, request: r, between: r.ProtoMajor > 1, final: !r.ProtoAtLeast(1, 1)}
	defer x.end(r)
	if p.narrow != nil || r.ProtoMajor > 1 {
		x.who = p.who(r)
	}
	if r.ContentLength != 0 {
		x.take(r)
	}
	switch {
	case r.ContentLength > p.cfg.MaxBody && p.cfg.MaxBody >= 0:
		x.refuse(r, tooLarge())
		return
	case r.Method == http.MethodConnect:
		x.refuse(r, requestFault(http.StatusNotImplemented, "this is no proxy to elsewhere: CONNECT is not served"))
		return
	case r.URL.Opaque != "":
		x.refuse(r, requestFault(http.StatusBadRequest, "the target is no path"))
		return
	}
	if r.Host == "" && r.ProtoMajor < 2 { // as it may be: then the upstream is asked for its own
		r.Host = p.cfg.Upstream.Host
	}
	dropNominatedBy(r.Header)
	p.dropLookalikes(r.Header)
	if reason := p.unwritable(r); reason != "" {
		x.refuse(r, requestFault(http.StatusBadRequest, reason))
		return
	}
	visit, admission := p.api.Admit(&x.answer, r, p.cfg.Namespace)
	switch {
	case admission == httpapi.Admitted:
	case p.api.Replayed(r):
		x.result = resultReplayLimited
		return
	case admission == httpapi.CutOff:
		x.result = resultCutOff
		return
	default:
		return
	}
	if _, waits := visit.Turn(); waits {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		switch {
		case x.answer.body != nil:
			defer x.body.readAhead(r.ContentLength, &p.ahead)()
		case x.body != nil:
			x.body.endBy(cancel)
			if !x.body.asks {
				go x.body.store() // the turn ends it, and leave at the latest
			}
		}
		err := visit.Wait(ctx)
		if x.body != nil {
			x.body.itsTurn()
		}
		if err != nil {
			if x.body != nil && x.body.failure.Load() != nil {
				x.refuse(r, faultOf(nil, x.body, r.Context().Err() != nil))
				return
			}
			x.result = resultLeft
			httpapi.TurnPassed(&x.answer)
			return
		}
	}
	visit.Serve(x, w, r)
}

// tellFault logs a fault of the upstream's, once a second.
func (p *Proxy) tellFault(f fault, err error) {
	now := time.Now().Unix()
	if last := p.told.Load(); last == now || !p.told.CompareAndSwap(last, now) {
		p.untold.Add(1)
		return
	}
	p.cfg.Logger.Warn("the upstream failed", "upstream", p.cfg.Upstream.Host, "status", f.status, "error", f.kind, "err", err, "others_since", p.untold.Swap(0))
}
