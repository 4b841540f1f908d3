package proxy

import (
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// The fields that say whose a request is, as net/http names them.
const (
	forwardedFor   = "X-Forwarded-For"
	forwardedHost  = "X-Forwarded-Host"
	forwardedProto = "X-Forwarded-Proto"
	forwarded      = "Forwarded"
)

// tellOrigin has out say whose request in is. A trusted peer's word is passed on, and the
// peer added, but for that nobody decided, which is an edge's own. From anybody else it
// would be the client's own word about itself: it is taken away, whatever the field, and
// said anew. out is what httputil.ReverseProxy made
// of in, without the four fields above, and without what Connection names: so no client
// can have taken away what is set here.
func tellOrigin(in, out *http.Request, peer string, trusted bool) {
	h := out.Header
	addr, err := netip.ParseAddr(peer)
	known := err == nil // else it is "unix" or "unknown"
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	if !trusted {
		dropClaims(h)
		if known {
			h[forwardedFor] = []string{peer}
		}
		if in.Host != "" { // as over HTTP/1.0
			h[forwardedHost] = []string{in.Host}
		}
		h[forwardedProto] = []string{proto}
		h[forwarded] = []string{element(addr, in.Host, proto)}
		return
	}
	dropUndecided(h)
	chain := in.Header[forwardedFor]
	if known {
		chain = []string{strings.Join(append(chain[:len(chain):len(chain)], peer), ", ")}
	}
	if len(chain) > 0 {
		h[forwardedFor] = chain
	}
	keep(h, in.Header, forwardedHost, in.Host)
	keep(h, in.Header, forwardedProto, proto)
	// A proxy that speaks X-Forwarded-For only is not made to speak Forwarded: by that
	// the proxy would be the client.
	if list := in.Header[forwarded]; len(list) > 0 {
		h[forwarded] = []string{strings.Join(append(list[:len(list):len(list)], element(addr, in.Host, proto)), ", ")}
	}
}

func keep(to, from http.Header, name, otherwise string) {
	if v := from[name]; len(v) > 0 {
		to[name] = v
	} else if otherwise != "" {
		to[name] = []string{otherwise}
	}
}

// element is what Forwarded (RFC 7239) says of one hop. A host is quoted, as ports and
// IPv6 addresses are no tokens; one that quotes cannot hold is left out.
func element(addr netip.Addr, host, proto string) string {
	b := make([]byte, 0, 64)
	switch {
	case !addr.IsValid():
		b = append(b, "for=unknown"...)
	case addr.Is4():
		b = addr.AppendTo(append(b, "for="...))
	default:
		b = append(addr.AppendTo(append(b, `for="[`...)), `]"`...)
	}
	if strings.Trim(host, hostLetters) == "" && host != "" {
		b = append(append(append(b, `;host="`...), host...), '"')
	}
	return string(append(append(b, ";proto="...), proto...))
}

const hostLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"

// dropClaims takes away what tells the upstream of a client, or that another request
// was meant, or that nobody decided: X-Forwarded-*, X-Original-*, X-Real-IP, X-Rewrite-URL,
// X-Spillgate-Undecided and Forwarded, and
// what CGI and WSGI take for the same, as X_Forwarded_For and X.Forwarded.For.
func dropClaims(h http.Header) {
	for name := range h {
		switch name[0] | 0x20 {
		case 'x', 'f':
			if claims(name) {
				delete(h, name)
			}
		}
	}
}

// dropUndecided takes away who says that nobody decided, as X_Spillgate_Undecided, too: that is
// this edge's word, to the upstream and to the client.
func dropUndecided(h http.Header) {
	for name := range h {
		if len(name) == len(httpapi.UndecidedField) && name[0]|0x20 == 'x' && plain(name) == httpapi.UndecidedField {
			delete(h, name)
		}
	}
}

// plain is a name, which net/http has keyed, as CGI, and what is built like it, may take it for:
// they read an underscore where a hyphen stands, and some (lighttpd) where anything does that is
// neither a letter nor a digit.
func plain(name string) string {
	odd := func(r rune) bool { return r != '-' && (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') }
	if strings.IndexFunc(name, odd) < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if odd(r) {
			return '-'
		}
		return r
	}, name))
}

// claims expects a name as net/http keys it.
func claims(name string) bool {
	name = plain(name)
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-") ||
		name == "X-Real-Ip" || name == "X-Rewrite-Url" || name == httpapi.UndecidedField || name == forwarded
}

// asksToSwitch says that a client asks to switch to a protocol, and may: to an upstream that speaks
// HTTP/1.1, too (RFC 9110, section 7.8).
func (p *Proxy) asksToSwitch(r *http.Request) bool {
	return p.cfg.Upstream.Scheme != "h2c" && httpapi.AsksToSwitch(r)
}

// oneOf is one protocol of a list in the order of a client's liking: websocket, else the first.
func oneOf(upgrade string) string {
	first := ""
	for part := range strings.SplitSeq(upgrade, ",") {
		switch part = strings.TrimSpace(part); {
		case strings.EqualFold(part, "websocket"):
			return part
		case first == "":
			first = part
		}
	}
	return first
}

// mayTrail says whether a field may be a trailer (RFC 9110, section 6.5.1): not what frames,
// routes, controls or authenticates a message, nor who a request is of. Who merges trailers
// into the header, as some do, would believe it. HTTP/2 has no other names than tokens.
func mayTrail(name string) bool {
	return httpguts.ValidHeaderFieldName(name) && httpguts.ValidTrailerHeader(name) && !claims(name) && !notLater[name]
}

// trim takes from trailers what may be none.
func trim(trailers http.Header) {
	for name := range trailers {
		if !mayTrail(name) {
			delete(trailers, name)
		}
	}
}

// trimAsked does that with a request's, of which rules have seen none.
func (p *Proxy) trimAsked(trailers http.Header) {
	trim(trailers)
	for name := range trailers {
		if p.reads(plain(name)) {
			delete(trailers, name)
		}
	}
}

// reads says that a rule reads a field.
func (p *Proxy) reads(name string) bool { return p.api.ReadsHeader(p.cfg.Namespace, name) }

// trimLate does that with those that httputil found at the end of an answer, and has left
// among its fields. Of those announced net/http takes care.
func trimLate(h http.Header) {
	for name := range h {
		if field, late := strings.CutPrefix(name, http.TrailerPrefix); late && !mayTrail(field) {
			delete(h, name)
		}
	}
}

// notLater is what httpguts lets be a trailer.
var notLater = map[string]bool{"Cookie": true, "Set-Cookie": true, "Upgrade": true, "Age": true, "Date": true, "Expires": true, "Location": true, "Retry-After": true, "Vary": true}

// noQuery is whether a query must not have a character (RFC 9112, section 3.2). HTTP/2 can
// carry them, and a line of HTTP/1 with a space more is another request, or none.
func noQuery(r rune) bool { return r <= ' ' || r == '#' || r == 0x7f }

// unwritable is why a request cannot be sent on as it is; "": it can. net/http reads some
// that it does not write, which would be taken for a fault of the upstream's, and writes
// the host of others anew, so that the upstream would see another than the rules did.
func (p *Proxy) unwritable(r *http.Request) string {
	if !httpguts.ValidHeaderFieldName(r.Method) { // a token, as they are
		return "the method is no token"
	}
	for name := range r.Trailer {
		if !httpguts.ValidHeaderFieldName(name) {
			return "a field that Trailer names is no token"
		}
	}
	switch {
	case !httpguts.ValidHostHeader(r.Host):
		return "the host is none: names of other letters are written in Punycode (xn--)"
	case strings.HasPrefix(r.Host, "[") && strings.Contains(r.Host, "%"):
		return "the host has a zone, which means nothing here"
	case r.Host == "" && r.ProtoMajor > 1:
		return "the host is missing (:authority)"
	case strings.ContainsFunc(r.URL.RawQuery, noQuery):
		return "the query has a space, a # or a control character in it: they are written in escapes (%20)"
	case strings.Trim(p.cfg.Upstream.Path, "/") != "" && climbs(r.URL.EscapedPath()):
		return "the path leads above its root"
	}
	return ""
}

// climbs says that a path leads above its root, as somebody may read it: what the upstream's
// own path is put before would lead to another place there than the rules are asked about, or
// out of it. Escapes may be read twice, a backslash is a slash to some, and to Tomcat "..;x" is
// "..".
func climbs(path string) bool {
	for range 3 {
		depth := 0
		for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			switch name, _, _ = strings.Cut(name, ";"); name {
			case "", ".":
			case "..":
				depth--
			default:
				depth++
			}
			if depth < 0 {
				return true
			}
		}
		plain := escaped.Replace(path)
		if plain == path {
			return false
		}
		path = plain
	}
	return false
}

// escaped are the escapes that such a path may have its dots and slashes in.
var escaped = strings.NewReplacer("%2e", ".", "%2E", ".", "%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`, "%3b", ";", "%3B", ";", "%25", "%")

// dropLookalikes takes away the fields that upstreams may take for one that a rule reads, as CGI
// and what is built like it (WSGI, PHP) do with X_User_Id, and some with X.User.Id: they would go by
// what no rule sees. Were they read by rules, any client could say what another proxy sees to.
func (p *Proxy) dropLookalikes(h http.Header) {
	for name := range h {
		if like := plain(name); like != name && p.reads(like) {
			delete(h, name)
		}
	}
}

// dropNominatedBy takes away what a client says is for this connection alone, as httputil does
// with what goes to the upstream: rules would go by what it does not see. Not who it is of,
// which tellOrigin sees to, nor what httputil passes on.
func dropNominatedBy(h http.Header) {
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(token))
			if name != "" && name != "Upgrade" && name != "Te" && !claims(name) {
				delete(h, name)
			}
		}
	}
	for _, name := range []string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection"} {
		delete(h, name)
	}
}
