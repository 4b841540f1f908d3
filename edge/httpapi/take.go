package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// take reads the body of a POST, and is nil where it has answered already: the
// body was refused, or there are no rules yet. That counts as failed.
func (a *API) take(w http.ResponseWriter, r *http.Request, x *exchange, most int64, parse func(*decoder, string) *inputError, failed prometheus.Counter) *limit.Set {
	if !a.allowMethod(w, r, http.MethodPost) {
		return nil
	}
	text, bad := a.readJSON(x, r, most)
	if bad == nil {
		bad = parse(&x.dec, text)
	}
	if bad != nil {
		failed.Inc()
		a.refuse(w, bad)
		return nil
	}
	set := a.limiter.Rules()
	if set == nil {
		failed.Inc()
		a.notReady(w)
	}
	return set
}

// takeOne is take of a body with one call; the namespace is the call's.
func (a *API) takeOne(w http.ResponseWriter, r *http.Request, x *exchange, parse func(*decoder, string) *inputError, failed prometheus.Counter) (*limit.Set, *limit.Namespace) {
	set := a.take(w, r, x, maxCheckBody, parse, failed)
	if set == nil {
		return nil, nil
	}
	ns, bad := a.namespaceOf(set, x.dec.calls[0].namespace)
	if bad != nil {
		failed.Inc()
		a.refuse(w, bad)
	}
	return set, ns
}
