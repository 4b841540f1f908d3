package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// Origins are those whose pages may read what the edge itself answers, as browsers write them in
// Origin: scheme://host, in lower case, with the port where it is not the scheme's own. "*" is
// every one, without credentials. (Fetch standard, "HTTP extensions": CORS.) What comes from
// elsewhere says for itself who may read it.
type Origins []string

// ofRules are the fields that rules add to answers, and readable all of the edge's own that a reader may
// want: browsers show them to pages of another origin only where they are named.
var (
	ofRules = strings.Join([]string{
		retryAfter.shown, rateLimit.shown, rateLimitPolicy.shown,
		rateLimitLimit.shown, rateLimitLeft.shown, rateLimitReset.shown,
		xRateLimitLimit.shown, xRateLimitLeft.shown, xRateLimitUsed.shown, xRateLimitReset.shown, xRateLimitRetry.shown,
	}, ", ")
	readable = ofRules + ", Location, Proxy-Status, " + UndecidedField + ", Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
)

// of is a request's origin, if it is one of them; "": it is of none, or the page's own.
func (o Origins) of(r *http.Request) string {
	if len(o) == 0 {
		return ""
	}
	if from := r.Header["Origin"]; len(from) == 1 && (o[0] == "*" || slices.Contains(o, from[0])) {
		return from[0]
	}
	return ""
}

// Tell has an answer of the edge's own be one that the page which asked for it may read, with
// the fields that tell of limits.
func (o Origins) Tell(h http.Header, r *http.Request) {
	if len(o) == 0 {
		return
	}
	all := o[0] == "*"
	if !all && !slices.Contains(h["Vary"], "Origin") {
		h.Add("Vary", "Origin")
	}
	origin := o.of(r)
	if origin == "" {
		return
	}
	if all {
		origin = "*"
	} else {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", readable)
}

// Show adds the fields that tell of limits to those of another's answer that pages may read, if it
// lets them read any of it.
func (o Origins) Show(h http.Header, r *http.Request) {
	if o.of(r) != "" && h["Access-Control-Allow-Origin"] != nil {
		h.Add("Access-Control-Expose-Headers", ofRules)
	}
}

// Preflight says that a browser asks whether a page of one of them may send a request, before it
// does.
func (o Origins) Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && len(r.Header["Access-Control-Request-Method"]) == 1 && o.of(r) != ""
}

// Permit has an answer to a preflight let the page read what is the edge's own, as what became of a
// request: for what would be the upstream's that is for it to say.
func (o Origins) Permit(h http.Header, r *http.Request) {
	o.Tell(h, r)
	h.Del("Access-Control-Expose-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	if names := r.Header["Access-Control-Request-Headers"]; names != nil {
		h["Access-Control-Allow-Headers"] = names
	}
}
