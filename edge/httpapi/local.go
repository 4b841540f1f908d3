package httpapi

import (
	"fmt"
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
// Heeded are requests for an address, for a name of this machine's (localhost), and for the
// host of listen, as in the settings ("admin.internal:9090"); and of those none that come from
// a page of another origin. Addresses are heeded whatever they are: nobody can make a name of
// one. On a unix socket, which no page reaches, any name will do.
func Local(h http.Handler, listen string) http.Handler {
	if strings.HasPrefix(listen, unixPrefix) {
		return h
	}
	own, _, _ := net.SplitHostPort(listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostname(r.Host); !heeded(host, own) {
			forbid(w, fmt.Sprintf("host %q is no address, nor localhost, nor the name that this listener has (%s)", host, listen), "ask by the address")
			return
		}
		if origin := foreign(r); origin != "" {
			forbid(w, origin, "ask with a program of your own, such as curl: pages of other origins may not")
			return
		}
		h.ServeHTTP(w, r)
	})
}

func forbid(w http.ResponseWriter, what, hint string) {
	writeProblem(w, &problem{status: http.StatusForbidden, detail: what, hint: hint})
}

// hostname is the host of one with a port or without.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

// heeded says that a host is meant by who asks for it, or that nobody named any (HTTP/1.0).
func heeded(host, own string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || own != "" && strings.EqualFold(host, own) ||
		strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// foreign says by what a request is one of a page of another origin; "": it is none.
func foreign(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return "Sec-Fetch-Site: " + site
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return ""
	}
	if u, err := url.Parse(origin); err == nil && u.Host == r.Host && u.Host != "" {
		return ""
	}
	return fmt.Sprintf("origin %q is not this listener", origin)
}
