package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Local keeps pages in an operator's browser from a listener that asks nobody who they are
// (an admin listener on loopback): a page may send there what it likes, and one whose name was
// made to lead there reads the answers, too. What such a request says of itself is believed,
// as browsers do not let pages choose it; it is no wall against other programs.
//
// Heeded are requests for an address, as nobody can have a name lead to himself and call it
// one, or for localhost; and of these none that come from a page of another origin. No page leads to
// a unix socket: there a host is whatever a program names.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := foreign(r)
		_, socket := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
		if host := hostname(r.Host); !socket && !local(host) {
			why = "host " + short(host) + " is neither an address nor localhost: ask by one of these"
		}
		if why != "" {
			writeProblem(w, &problem{status: http.StatusForbidden, detail: why})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostname is the host of one with a port or without.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

// local says that a host is an address or localhost, or that none is named (HTTP/1.0).
func local(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// foreign says why a request is one of a page of another origin; "": it is none.
func foreign(r *http.Request) string {
	const hint = ": pages of other origins may ask nothing here; ask with a program, such as curl"
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return "Sec-Fetch-Site is " + site + hint
	}
	origin := r.Header.Get("Origin")
	if u, err := url.Parse(origin); origin == "" || err == nil && u.Host == r.Host && u.Host != "" {
		return ""
	}
	return "origin " + short(origin) + " is not this listener's" + hint
}
