package httpapi

import (
	"net/http"

	"github.com/spillgate/spillgate/edge/limit"
)

// Middleware limits a handler of this process: requests that may pass go on
// with the rate-limit headers set, others get the denial that /v1/auth gives.
// Where there are no rules yet, or the namespace is unknown, requests pass: a
// failure of the limiter never takes the service down. Namespace "" is the
// only one that the rules have, or Config.DefaultNamespace.
func (a *API) Middleware(namespace string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.admit(w, r, namespace) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit decides about r and answers it where it is denied.
func (a *API) admit(w http.ResponseWriter, r *http.Request, namespace string) (pass bool) {
	defer func() {
		if p := recover(); p != nil {
			a.panicked(r.URL.Path, p)
			pass = true
		}
	}()
	set, ns := a.rulesFor(namespace)
	if ns == nil {
		return true
	}
	req := ns.NewRequest()
	defer req.Release()
	now := a.cfg.Now()
	if fillOwn(req, r, a.cfg.TrustedProxies) {
		a.warnIgnored(r.RemoteAddr, now)
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	a.ask(x, a.viewOf(set), req, now)
	x.fields.set(w.Header())
	if x.answer.decision.Allowed {
		return true
	}
	a.deny(w, x, 0)
	return false
}

// fillOwn gives req the attributes of r itself, which is what FillHTTP does
// for the request that a proxy asks about. Of a proxy's headers only
// X-Forwarded-For is read, where the peer is trusted; ignored says that it was
// there and not believed.
func fillOwn(req *limit.Request, r *http.Request, trusted Proxies) (ignored bool) {
	clientIP, ignored := clientBehind(r.RemoteAddr, r.Header[forwardedFor], trusted)
	req.SetHTTP(r.Method, pathOf(r.URL.EscapedPath()), hostOf(r.Host), clientIP, r.Header)
	return ignored
}
