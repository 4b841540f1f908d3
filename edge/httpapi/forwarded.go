package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
)

// Proxies are networks whose word about a request is taken.
type Proxies []netip.Prefix

// Loopback believes proxies on this machine.
var Loopback = Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Contains says whether addr is in one of the networks; an IPv4 address in
// IPv6 clothes counts as the IPv4 address.
func (p Proxies) Contains(addr netip.Addr) bool {
	addr = addr.Unmap()
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// The names as net/http has them.
const (
	forwardedFor    = "X-Forwarded-For"
	forwardedHost   = "X-Forwarded-Host"
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	originalMethod  = "X-Original-Method"
	originalURI     = "X-Original-Uri"
)

// What client_ip is where nobody told an address: so that rules that count by
// it count such clients, and all of a kind as one. No network has them.
const (
	onUnix    = "unix"    // they came over a unix socket
	noAddress = "unknown" // their connection has another kind of address, or none
)

// FillHTTP gives req the attributes of the request that a proxy asks about
// with r: method, path, host, client_ip, and the headers that rules read. What
// the proxy's headers say is taken only where the peer is trusted; ignored
// says that there were such headers and that they were not believed. The path
// is absent where no header told it: r's own path is only that of this API. A
// trusted peer's word is taken on the request's cost, too (Trusted). client_ip
// is never absent: see onUnix and noAddress.
// FillHTTP allocates nothing for requests written plainly.
func FillHTTP(req *limit.Request, r *http.Request, trusted Proxies) (ignored bool, err error) {
	h := r.Header
	method, host, uri := r.Method, r.Host, ""
	clientIP, believed := peerOf(r, trusted)
	switch {
	case !believed:
		ignored = h[forwardedFor] != nil || h[forwardedURI] != nil || h[originalURI] != nil ||
			h[forwardedMethod] != nil || h[originalMethod] != nil || h[forwardedHost] != nil
	default:
		m, bad := agreed(h, forwardedMethod, originalMethod)
		if bad != nil {
			return false, bad
		}
		if uri, bad = agreed(h, forwardedURI, originalURI); bad != nil {
			return false, bad
		}
		if uri == "" && tellsPath(h) {
			uri = "/" // as HAProxy has it of "GET http://api"
		}
		if m != "" {
			method = m
		}
		if v := h[forwardedHost]; len(v) > 0 {
			if host, bad = lastHost(v[len(v)-1]); bad != nil {
				return false, bad
			}
		}
		clientIP = clientOf(h[forwardedFor], clientIP, trusted)
		req.Trusted = true
	}
	setHTTP(req, method, uri, hostOnly(host), clientIP, h)
	return ignored, nil
}

// tellsPath says that a proxy tells the path of what it asks about.
func tellsPath(h http.Header) bool { return h[forwardedURI] != nil || h[originalURI] != nil }

// methodOf is the method of what a proxy asks about with r, as FillHTTP has read it.
func (a *API) methodOf(r *http.Request) string {
	if _, believed := peerOf(r, a.cfg.TrustedProxies); believed {
		if m, _ := agreed(r.Header, forwardedMethod, originalMethod); m != "" {
			return m
		}
	}
	return r.Method
}

// PeerOf is who sent r to this server, and whether his word about others is taken
// (Config.TrustedProxies). Who has no address is "unix", which is always believed, or
// "unknown".
func (a *API) PeerOf(r *http.Request) (clientIP string, believed bool) {
	return peerOf(r, a.cfg.TrustedProxies)
}

// peerOf is PeerOf for whom a surface believes.
func peerOf(r *http.Request, trusted Proxies) (clientIP string, believed bool) {
	clientIP, believed = senderAt(r.RemoteAddr, trusted)
	if clientIP == noAddress && servedOnUnix(r) {
		return onUnix, true
	}
	return clientIP, believed
}

// senderAt is the client at an address as a transport writes it, and whether its
// word about others is taken: that of a trusted proxy, and of all on a unix
// socket ("@" where their end has no name, as is usual, or a path).
func senderAt(addr string, trusted Proxies) (clientIP string, believed bool) {
	if addr != "" && (addr[0] == '@' || addr[0] == '/') {
		return onUnix, true
	}
	if peer, text, known := parseHop(addr); known {
		return text, trusted.Contains(peer)
	}
	return noAddress, false
}

// servedOnUnix says that r came over a unix socket, as its own end tells: where the
// peer's has no name, some systems write nothing for it, and a name may be any text.
func servedOnUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// agreed is what two headers say, of which a proxy sets one. A proxy passes
// its client's headers on, so whichever came first in rank, a client could
// send the other one and choose what is limited: they must not differ.
func agreed(h http.Header, a, b string) (string, *inputError) {
	var value string
	for _, name := range [...]string{a, b} {
		for _, v := range h[name] {
			switch {
			case value == "":
				value = v
			case v != value && v != "":
				return "", badRequest(name, "the proxy must set one of "+a+" and "+b+" and clear the other, else its clients choose what is limited",
					"%s differs from %s", short(v), short(value))
			}
		}
	}
	return value, nil
}

// clientOf is the right-most address of X-Forwarded-For that is not a trusted
// proxy: what stands left of it is what the client itself may have written.
// Where an entry is no address, the hop that wrote it is the client: so it is, too, where nginx wrote
// unix: of who came to it over a socket. Who that was need not have said who came to him.
func clientOf(lines []string, peer string, trusted Proxies) string {
	client := peer
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			if cut := strings.LastIndexByte(rest, ','); cut >= 0 {
				rest, hop = rest[:cut], rest[cut+1:]
			} else {
				hop, more = rest, false
			}
			addr, text, ok := parseHop(hop)
			if !ok {
				return client
			}
			client = text
			if !trusted.Contains(addr) {
				return client
			}
		}
	}
	return client
}

// maxHop is longer than any address with its zone, brackets and port.
const maxHop = 96

// parseHop reads an address with or without a port: "192.0.2.1", "192.0.2.1:80",
// "2001:db8::1", "[2001:db8::1]:80". text is the address alone, without zone,
// and in IPv4 form where it is an IPv4 address in IPv6 clothes.
func parseHop(s string) (addr netip.Addr, text string, ok bool) {
	text = strings.TrimSpace(s)
	if text == "" || len(text) > maxHop {
		return addr, "", false
	}
	if text[0] == '[' {
		end := strings.IndexByte(text, ']')
		if end < 0 || end+1 < len(text) && !isPort(text[end+1:]) {
			return addr, "", false
		}
		text = text[1:end]
	} else if i := strings.IndexByte(text, ':'); i >= 0 && i == strings.LastIndexByte(text, ':') {
		if !isPort(text[i:]) {
			return addr, "", false
		}
		text = text[:i]
	}
	if i := strings.IndexByte(text, '%'); i >= 0 {
		text = text[:i] // netip would intern the zone, which the caller chose
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, "", false
	}
	if addr.Is4In6() {
		addr = addr.Unmap()
		if dotted := text[strings.LastIndexByte(text, ':')+1:]; strings.IndexByte(dotted, '.') > 0 {
			return addr, dotted, true
		}
		return addr, addr.String(), true
	}
	return addr, text, true
}

// isPort says whether s is a colon and a port.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// setHTTP gives req what a request says of itself, by its target.
func setHTTP(req *limit.Request, method, target, host, clientIP string, h http.Header) {
	path, others := pathOf(target)
	// Some programs have methods in upper case whatever they are asked (Django, Werkzeug).
	req.SetHTTP(strings.ToUpper(method), path, host, clientIP, h)
	req.AlsoPaths(others)
}

// Set gives req an attribute of a request whose client wrote it so, as /v1/check does.
func Set(req *limit.Request, name, value string) {
	value, others := written(name, value)
	req.Set(name, value)
	if name == "path" {
		req.AlsoPaths(others)
	}
}

// written is what rules read of an attribute that a client wrote: a path without its query, and
// others in all ways in which origins read it; a method in upper case, and a host without port, as
// setHTTP has them: else each way to write one would have a counter of its own.
func written(name, value string) (is string, others []string) {
	switch name {
	case "path":
		return pathOf(value)
	case "method":
		return strings.ToUpper(value), nil
	case "host":
		return hostOnly(value), nil
	}
	return value, nil
}

// pathOf is the path of a request target as rules are compared with it, without
// query: with one a client would have a counter of its own; others are how else origins may
// read it.
func pathOf(target string) (path string, others []string) {
	if target == "" {
		return "", nil // nobody told
	}
	target, _, _ = strings.Cut(target, "?")
	before, _, signed := strings.Cut(target, "#")
	path, others = readingsOf(before)
	if signed { // to net/http and nginx it is a letter like any other
		others = also(others, target, readingsOf)
	}
	return path, others
}

// readingsOf is pathOf of a target without query and fragment.
func readingsOf(target string) (path string, others []string) {
	switch {
	case target == "":
		return "/", nil // RFC 9110 section 4.2.3
	case target[0] == '/':
		return limit.PathReadings(target)
	}
	scheme, rest, absolute := strings.Cut(target, "://")
	if !absolute { // "*", as OPTIONS has it, which proxies pass on as a path where it comes with other methods
		others = also(nil, "/"+target, limit.PathReadings)
		// What stands behind "http:/" is a path to net/http, and an authority to who makes a URL
		// of it; behind "http:" it is a path to who makes that from another.
		if scheme, rest, _ = strings.Cut(target, ":"); scheme != "" && rest != "" {
			others = also(others, "/"+rest, limit.PathReadings)
		}
		return target, others
	}
	end := strings.IndexByte(rest, '/')
	if path = "/"; end >= 0 {
		path, others = limit.PathReadings(rest[end:])
	}
	if end == 0 { // "http:///x/login": slashes before an authority are skipped by the URL standard
		others = also(others, "//"+strings.TrimLeft(rest, `/\`), limit.PathReadings)
	}
	if i := strings.IndexByte(rest, '\\'); i >= 0 && (end < 0 || i < end) { // it ends an authority to some, as a slash does
		others = also(others, "/"+rest[i+1:], limit.PathReadings)
	}
	return path, others
}

// also adds the readings of another text.
func also(others []string, text string, readings func(string) (string, []string)) []string {
	path, more := readings(text)
	return append(append(others, path), more...)
}

// lastHost is what a proxy says the host is: of a list the last, which the nearest wrote. Envoy
// writes no blank between them; then it may be one host, too, of a client that goes on behind its
// colon, and which of the two the upstream takes it for nobody knows.
func lastHost(hosts string) (string, *inputError) {
	i := strings.LastIndexByte(hosts, ',')
	if i < 0 {
		return hosts, nil
	}
	last := hosts[i+1:]
	if colon := strings.IndexByte(hosts, ':'); colon >= 0 && colon < i && strings.TrimLeft(last, " \t") == last {
		return "", badRequest(forwardedHost, "the proxy must set it anew, or write a blank between hosts", "%s is a list of hosts, or a host with no port", short(hosts))
	}
	return last, nil
}

// hostOnly is a host in lower case and without what stands behind a colon, be it a port or not:
// so servers read it.
func hostOnly(host string) string {
	host = strings.TrimSpace(host)
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end >= 0 {
			host = host[1:end]
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 {
		if _, err := netip.ParseAddr(host); err != nil { // else an IPv6 address, bare
			host = host[:i]
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
