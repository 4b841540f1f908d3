package limit

import (
	"bytes"
	"encoding/hex"
	"net/url"
	"path"
	"slices"
	"strings"
)

// NormalPath is a path that starts with a slash, as rules are compared with it
// over HTTP, where an origin reads it so too: with escapes read, and dots and
// double slashes resolved. Otherwise a client could write "/login" as "//login"
// or "/%6Cogin" and miss its rule. An escaped question mark belongs to the path,
// and stays escaped: "/healthz%3Fx" is not "/healthz", and whoever reads the
// path later would take what follows a plain one for a query.
func NormalPath(s string) string {
	if strings.IndexByte(s, '%') < 0 && !strings.Contains(s, "//") && !strings.Contains(s, "/.") {
		return s
	}
	return cleaned(unescape(escapedMark.Replace(s)))
}

// PathReadings is a path as NormalPath reads it, and as others do. To some an escaped slash
// is part of a name, as they split a path before they read its escapes; many resolve no
// dots, and no double slashes, or redirect instead. "/api/1%2F..%2F..%2Fpublic" is "/public"
// to an origin like nginx, and something below "/api" to net/http's ServeMux, which serves
// "/api/%2e%2e" as well; "/api/../x" is below "/api" to routers such as chi and gin. By RFC
// 3986 section 5.2.4, and so to Envoy, dots are resolved before double slashes: "/a//.." is
// "/a/", where nginx has "/"; and "/a/." is "/a/". The URL standard (WHATWG), which those on
// Node, Deno and Bun go by that make a URL of what they are asked, has it so with escaped
// slashes kept: "/a%2Fb/../login" is "/login"; a backslash is a slash to it; and what stands
// behind two slashes at the beginning is an authority, so that "//x/login" is "/login", as it
// is to others that take a target for a reference (RFC 3986 section 4.2: Python's urlsplit,
// Java's URI, PHP's parse_url). others is nil where all read the same; escaped slashes may
// stay "%2F" in it. Where a gateway reads a path by one of these before an origin does, that may
// be another: with escaped slashes kept first, and read then.
func PathReadings(s string) (path string, others []string) {
	if path = NormalPath(s); path == s && !strings.ContainsAny(s, `%\`) {
		return path, nil
	}
	marked := escapedMark.Replace(s)
	others = resolved(unresolved(nil, path, marked), path, marked)
	slashed := backslash.Replace(marked)
	if slashed != marked {
		others = resolved(others, path, slashed)
	}
	if strings.HasPrefix(slashed, "//") {
		rest := strings.TrimLeft(slashed, "/")
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			rest = rest[i:]
		} else {
			rest = "/"
		}
		others = resolved(unresolved(others, path, rest), path, rest)
	}
	return path, others
}

// unresolved adds the readings of a path whose dots and double slashes stay.
func unresolved(others []string, path, s string) []string {
	others = with(others, unescape(escapedSlash.Replace(s)), path)
	return with(others, unescape(s), path)
}

// resolved adds those that resolve them, either first.
func resolved(others []string, path, s string) []string {
	whole, split := unescape(s), unescape(escapedSlash.Replace(s))
	for _, reading := range [...]string{cleaned(whole), dotsFirst(whole), cleaned(split), dotsFirst(split)} {
		others = with(others, reading, path)
		if split != whole && strings.Contains(reading, "%2F") { // a gateway resolved it, and the origin behind does so anew
			later := strings.ReplaceAll(reading, "%2F", "/")
			others = with(with(others, cleaned(later), path), dotsFirst(later), path)
		}
	}
	return others
}

// with is the readings of a path with one more, if that is another.
func with(others []string, reading, path string) []string {
	if reading == path || slices.Contains(others, reading) {
		return others
	}
	return append(others, reading)
}

// dotsFirst is a path with dots resolved by RFC 3986 section 5.2.4, and double slashes after
// that.
func dotsFirst(s string) string {
	out, dots := make([]byte, 0, len(s)+1), false
	for name := range strings.SplitSeq(strings.TrimPrefix(s, "/"), "/") {
		switch dots = name == "." || name == ".."; {
		case !dots:
			out = append(append(out, '/'), name...)
		case name == "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		}
	}
	if dots || len(out) == 0 {
		out = append(out, '/')
	}
	return cleaned(string(out))
}

// cleaned is a path with dots and double slashes resolved.
func cleaned(s string) string {
	clean := path.Clean(s)
	if clean != "/" && strings.HasSuffix(s, "/") {
		clean += "/"
	}
	return clean
}

// escapedMark escapes the escape of a question mark, so that reading escapes
// leaves it as "%3F".
var escapedMark = strings.NewReplacer("%3F", "%253F", "%3f", "%253F")

// escapedSlash does so with that of a slash.
var escapedSlash = strings.NewReplacer("%2F", "%252F", "%2f", "%252F")

// backslash has it read as a slash, escaped or not: who tells it escaped may have been sent
// it plain.
var backslash = strings.NewReplacer(`\`, "/", "%5C", "/", "%5c", "/")

// unescape decodes the escapes of a path that are good and leaves bad ones as
// they are, which is what lenient origins do: whatever a strict one refuses, the
// good part of the path must meet its rule.
func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			var b [1]byte
			if _, err := hex.Decode(b[:], []byte(s[i+1:i+3])); err == nil {
				out = append(out, b[0])
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
