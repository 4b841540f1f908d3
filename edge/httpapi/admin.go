package httpapi

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin is the handler of the admin listener: /metrics, /healthz, /readyz,
// /v1/explain, /v1/decisions/{id}, /admin/v1/capacity/{name}, /admin/v1/tenants, /admin/v1/keys/top and /debug/pprof/. It asks
// nobody who they are, and so belongs on a loopback address or a unix socket, behind Local.
func (a *API) Admin(metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", a.healthz)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) { a.readyz(w, r, true) })
	mux.HandleFunc("/v1/explain", a.explain)
	mux.HandleFunc("GET /v1/decisions/{id}", a.decision)
	mux.HandleFunc("PUT /admin/v1/capacity/{name}", a.putCapacity)
	mux.HandleFunc("GET /admin/v1/capacity/{name}", a.getCapacity)
	mux.HandleFunc("GET /admin/v1/tenants", a.topOfTenants)
	mux.HandleFunc("GET /admin/v1/keys/top", a.topOfKeys)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return Routes(mux)
}

// Routes serves what a mux does, and has it say as all else is said, as a problem, that it does not
// serve a path, or not by that method.
func Routes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		unserved, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		u := unservedWriter{header: make(http.Header)}
		unserved.ServeHTTP(&u, r)
		if u.status != http.StatusNotFound && u.status != http.StatusMethodNotAllowed { // to a path that is written plainly
			mux.ServeHTTP(w, r)
			return
		}
		if allow := u.header["Allow"]; allow != nil {
			w.Header()["Allow"] = allow
		}
		p := problem{status: u.status, field: "path", detail: "nothing is served at " + short(r.URL.Path)}
		if u.status == http.StatusMethodNotAllowed {
			p.field, p.detail = "method", "it is served by "+w.Header().Get("Allow")+", not by "+short(r.Method)
		}
		writeProblem(w, &p)
	})
}

// unservedWriter takes an answer's header, and leaves out what it says.
type unservedWriter struct {
	header http.Header
	status int
}

func (u *unservedWriter) Header() http.Header         { return u.header }
func (u *unservedWriter) Write(b []byte) (int, error) { return len(b), nil }
func (u *unservedWriter) WriteHeader(status int)      { u.status = status }
