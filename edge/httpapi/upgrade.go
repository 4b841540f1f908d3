package httpapi

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// AsksToSwitch says that a client asks to go on in another protocol, and may (RFC 9110, section
// 7.8): from HTTP/1.1, and to one that MayUpgrade.
func AsksToSwitch(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor > 0 && strings.Trim(r.Header.Get("Upgrade"), ", \t") != "" &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") && MayUpgrade(r.Header)
}

// MayUpgrade says whether a client may switch to the protocols that Upgrade names. To HTTP or TLS it
// may not: the requests in it would be asked about nobody.
func MayUpgrade(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for protocol := range strings.SplitSeq(line, ",") {
			name := strings.ToLower(strings.Trim(protocol, " \t\""))
			for _, of := range [...]string{"h2", "h3", "http", "tls"} { // its drafts, too, such as h2c-14
				if strings.HasPrefix(name, of) {
					return false
				}
			}
		}
	}
	return true
}

// DropUpgrade has a request ask for no other protocol: a server may ignore that it does (RFC 9110,
// section 7.8). Its Connection has been heeded.
func DropUpgrade(h http.Header) {
	h.Del("Upgrade")
	h.Del("Connection")
	h.Del("Http2-Settings")
}
