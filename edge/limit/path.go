package limit

import (
	"net/url"
	"path"
	"slices"
	"strconv"
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
// "/api/%2e%2e" as well; "/api/../x" is below "/api" to routers such as chi and gin. others
// is nil where all read the same; escaped slashes may stay "%2F" in it.
func PathReadings(s string) (path string, others []string) {
	path = NormalPath(s)
	if path == s {
		return path, nil
	}
	for _, reading := range [...]string{unescape(escapedSlash.Replace(escapedMark.Replace(s))), unescape(escapedMark.Replace(s))} {
		if reading != path && !slices.Contains(others, reading) {
			others = append(others, reading)
		}
	}
	return path, others
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
			if b, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(b))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
