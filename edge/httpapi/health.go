package httpapi

import (
	"errors"
	"net/http"
	"strings"
)

// SetDraining makes /readyz say that no new work should be sent, so that load
// balancers look elsewhere. Calls that come all the same are answered.
func (a *API) SetDraining(draining bool) { a.draining.Store(draining) }

// Ready says why no new work should be sent; nil: it may be.
func (a *API) Ready() error {
	if err := a.limiter.Ready(); err != nil {
		return err
	}
	if a.draining.Load() {
		return errDraining
	}
	return nil
}

var errDraining = errors.New("the edge is draining")

// healthz answers 200 for as long as the process can answer at all.
func (a *API) healthz(w http.ResponseWriter, r *http.Request) {
	if a.allowMethod(w, r, http.MethodGet, http.MethodHead) {
		writePlain(w, http.StatusOK, "ok\n")
	}
}

// readyz answers 200 where there are rules and the edge is not draining, else
// 503; with ?verbose it says each. What is wrong and leaves the edge ready it says too: what
// that is, which names streams and files, to whoever may ask the admin listener alone.
func (a *API) readyz(w http.ResponseWriter, r *http.Request, admin bool) {
	if !a.allowMethod(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	var text strings.Builder
	status, verbose := http.StatusOK, r.URL.Query().Has("verbose")
	report := func(name, trouble string) {
		switch {
		case trouble != "":
			status = http.StatusServiceUnavailable
			text.WriteString("[-] " + name + ": " + trouble + "\n")
		case verbose:
			text.WriteString("[+] " + name + ": ok\n")
		}
	}
	rules, draining := "", ""
	if err := a.limiter.Ready(); err != nil {
		rules = err.Error()
	}
	if a.draining.Load() {
		draining = errDraining.Error()
	}
	report("rules", rules)
	report("serving", draining)
	if a.cfg.Waits != nil {
		switch err := a.cfg.Waits(); {
		case err == nil:
			report("deferred", "")
		case admin && verbose:
			text.WriteString("[!] deferred: " + err.Error() + "\n")
		default:
			text.WriteString("[!] deferred: trouble\n")
		}
	}
	if status == http.StatusOK {
		text.WriteString("ready\n")
	} else {
		w.Header().Set("Retry-After", "1")
	}
	writePlain(w, status, text.String())
}

func writePlain(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h["Content-Type"] = plainType
	h["Cache-Control"] = noStore
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a caller that is gone cannot be told so
}
