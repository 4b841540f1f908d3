package httpapi

import (
	"net/http"

	"github.com/spillgate/spillgate/edge/limit"
)

// Middleware limits a handler of this process: requests that may pass go on
// with the rate-limit headers set, others get the denial that /v1/auth gives.
// Where there are no rules yet, or the namespace is unknown, requests pass: a
// failure of the limiter never takes the service down. Their answers have
// UndecidedField, which the handler finds in w.Header(). Namespace "" is the
// only one that the rules have, or Config.DefaultNamespace.
//
// A request that a queue admits waits here for its turn, unless its context
// ends before: then what it was charged is given back, and it is answered with
// 503, in case somebody is still there to read it. (net/http sees that a client
// of HTTP/1 is gone only when the request's body was read.) Slots of concurrency limits
// are held, and renewed, until the handler returns or panics. Rules with
// count_when charge by the status that it wrote.
func (a *API) Middleware(namespace string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visit, admission := a.Admit(w, r, namespace)
		switch {
		case admission != Admitted:
		case visit.Wait(r.Context()) != nil:
			TurnPassed(w)
		default:
			visit.Serve(next, w, r)
		}
	})
}

// TurnPassed answers a request that ended before its turn: its Wait told ErrGone.
func TurnPassed(w http.ResponseWriter) {
	writeProblem(w, &problem{status: http.StatusServiceUnavailable, detail: ErrGone.Error(), retryAfter: 1})
}

// Admission is what Admit made of a request.
type Admission uint8

// What is admitted may still have to wait for its turn. A limit that is used up, or denies all,
// is told apart from one that is closed as this edge cannot hear of others.
const (
	Admitted Admission = iota
	Refused
	CutOff
)

// Admit is the first part of Middleware, for who has something to do before a
// request's turn comes: it decides about r, sets the fields, and answers r where it is
// denied. What passes is to be waited for (Visit.Wait) and served (Visit.Serve).
func (a *API) Admit(w http.ResponseWriter, r *http.Request, namespace string) (visit *Visit, admission Admission) {
	defer func() {
		if p := recover(); p != nil {
			a.panicked(r.URL.Path, p)
			tellUndecided(w, undecidedFault)
			visit, admission = nil, Admitted
		}
	}()
	set, ns, why := a.rulesFor(namespace)
	if ns == nil {
		tellUndecided(w, why)
		return nil, Admitted
	}
	req := ns.NewRequest()
	defer func() {
		if visit == nil {
			req.Release()
		}
	}()
	now := a.cfg.Now()
	if fillOwn(req, r, a.cfg.TrustedProxies) {
		a.warnIgnored(r.RemoteAddr, now)
	}
	a.warnNoAddress(req)
	x := exchanges.Get().(*exchange)
	defer x.release()
	v := a.viewOf(set)
	nv := v.namespaces[ns]
	req.Receipt, req.Replay = nv.charges, a.Replayed(r)
	a.ask(r.Context(), x, v, req, now)
	x.fields.set(w.Header())
	if !x.answer.decision.Allowed {
		if a.cfg.Denied != nil {
			a.cfg.Denied(r, req, &x.answer.decision)
		}
		switch {
		case req.Replay: // nobody reads why, nor asks later
			w.WriteHeader(statusOf(&x.answer.decision))
		case GRPC(r):
			denyCall(w, r, x)
		case unaryConnect(r):
			denyConnect(w, x)
		default:
			a.deny(w, x, 0)
		}
		if x.answer.decision.Basis.CutOff {
			return nil, CutOff
		}
		return nil, Refused
	}
	return a.begin(req, nv, &x.answer.decision, r.URL.Path), Admitted
}

// Replayed is Config.Replayed.
func (a *API) Replayed(r *http.Request) bool { return a.cfg.Replayed != nil && a.cfg.Replayed(r) }

// fillOwn gives req the attributes of r itself, which is what FillHTTP does
// for the request that a proxy asks about. Of a proxy's headers only
// X-Forwarded-For is read, where the peer is trusted; ignored says that it was
// there and not believed.
func fillOwn(req *limit.Request, r *http.Request, trusted Proxies) (ignored bool) {
	clientIP, believed := peerOf(r, trusted)
	if believed {
		clientIP = clientOf(r.Header[forwardedFor], clientIP, trusted)
	}
	setHTTP(req, r.Method, targetOf(r), hostOnly(r.Host), clientIP, r.Header)
	req.Trusted = believed
	return !believed && r.Header[forwardedFor] != nil
}

// targetOf is r's own path, as its client wrote it.
func targetOf(r *http.Request) string {
	if target := r.URL.Opaque + r.URL.EscapedPath(); target != "" {
		return target
	}
	return "/" // as of "GET http://api"
}
