package limit

import (
	"bytes"
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
	clean, _ := cleaned(make([]byte, 0, len(s)+1), unescape(make([]byte, 0, len(s)), s, false))
	return string(clean)
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
// stay "%2F" in it. Tomcat, Jetty and what is built on them leave out what stands behind a
// semicolon in a name, before they resolve dots: "/login;a=1" is "/login", and "/x/..;/login"
// as well. Where a gateway reads a path by one of these before an origin does, that may
// be another: with escaped slashes kept first, and read then.
func PathReadings(s string) (path string, others []string) {
	if path = NormalPath(s); path == s && !strings.ContainsAny(s, `%\;`) {
		return path, nil
	}
	size := len(s) + 1
	r := readings{path: path, whole: make([]byte, 0, size), split: make([]byte, 0, size), one: make([]byte, 0, size), two: make([]byte, 0, size)}
	r.unresolved(s)
	r.resolved(s)
	r.bare(s, true)
	slashed := backslashes(s)
	if slashed != s {
		r.resolved(slashed)
		r.bare(slashed, false)
	}
	r.relative(slashed)
	if slashed != s { // to Python and PHP a backslash is a letter of the authority
		r.relative(s)
	}
	return path, r.others
}

// relative adds the readings of what stands behind the authority of a reference, if it has
// one.
func (r *readings) relative(s string) {
	if !strings.HasPrefix(s, "//") {
		return
	}
	rest := strings.TrimLeft(s, "/")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest = rest[i:]
	} else {
		rest = "/"
	}
	r.unresolved(rest)
	r.resolved(rest)
	r.bare(rest, true)
}

// readings are those of one path. A client may choose one of 64 KB: each pass over it is a
// loop over its bytes, in buffers that the next one uses too, and those that come to the
// same are left out.
type readings struct {
	path   string
	others []string
	// What is being read: text, with all its escapes read, and with those of slashes kept.
	text            string
	whole, split    []byte
	slashes         bool   // some were escaped: split is another
	one, two, three []byte // scratch
}

// read reads the escapes of a text.
func (r *readings) read(s string) {
	if r.text == s {
		return
	}
	r.text = s
	r.whole = unescape(r.whole[:0], s, false)
	if r.slashes = strings.Contains(s, "%2F") || strings.Contains(s, "%2f"); r.slashes {
		r.split = unescape(r.split[:0], s, true)
	}
}

// add is one more reading, if it is another.
func (r *readings) add(reading []byte) {
	if string(reading) != r.path && !slices.ContainsFunc(r.others, func(o string) bool { return o == string(reading) }) {
		r.others = append(r.others, string(reading))
	}
}

// unresolved adds the readings of a path whose dots and double slashes stay.
func (r *readings) unresolved(s string) {
	r.read(s)
	if r.slashes {
		r.add(r.split)
	}
	r.add(r.whole)
}

// resolved adds those that resolve them, either first.
func (r *readings) resolved(s string) {
	r.read(s)
	r.resolve(r.whole, r.slashes)
	if r.slashes {
		r.resolve(r.split, true)
	}
}

// bare adds the readings of a path whose names have no parameters, be it that its dots and
// double slashes may stay, or not.
func (r *readings) bare(s string, unresolved bool) {
	r.read(s)
	if bytes.IndexByte(r.whole, ';') < 0 {
		return
	}
	if r.slashes {
		r.split = withoutParameters(r.split)
		if unresolved {
			r.add(r.split)
		}
		r.resolve(r.split, true)
	}
	r.whole = withoutParameters(r.whole)
	if unresolved {
		r.add(r.whole)
	}
	r.resolve(r.whole, r.slashes)
	r.text = "" // it is another now
}

// withoutParameters leaves out, of each name of a path, what stands behind a semicolon.
func withoutParameters(s []byte) []byte {
	n, out := 0, false
	for _, c := range s {
		if out = c == ';' || out && c != '/'; !out {
			s[n] = c
			n++
		}
	}
	return s[:n]
}

// resolve adds the two ways in which dots and double slashes are resolved. Where a gateway
// may have done so, the origin behind it does so anew, with slashes that were escaped.
func (r *readings) resolve(s []byte, anew bool) {
	clean, first := cleaned(r.one[:0], s)
	r.one = clean
	r.add(clean)
	if anew {
		r.later(clean)
	}
	if first == same {
		return
	}
	if r.one = append(clean, '/'); first == other {
		r.one = dotsFirst(r.one[:0], s)
	}
	r.add(r.one)
	if anew {
		r.later(r.one)
	}
}

func (r *readings) later(s []byte) {
	i := bytes.Index(s, escapedSlash)
	if i < 0 {
		return
	}
	later := append(r.three[:0], s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) && s[i+1] == '2' && s[i+2] == 'F' {
			c, i = '/', i+2
		}
		later = append(later, c)
	}
	r.three = later
	clean, first := cleaned(r.two[:0], later)
	r.two = clean
	r.add(clean)
	if first == same {
		return
	}
	if r.two = append(clean, '/'); first == other {
		r.two = dotsFirst(r.two[:0], later)
	}
	r.add(r.two)
}

var escapedSlash = []byte("%2F")

// dotsFirst appends a path with dots resolved by RFC 3986 section 5.2.4, and double slashes
// after that.
func dotsFirst(dst, s []byte) []byte {
	dots := false
	for i := 0; i < len(s); {
		end, up, here := segment(s, i)
		switch dots = up || here; {
		case up:
			dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
		case !here:
			dst = append(dst, s[i:end]...)
		}
		i = end
	}
	if dots || len(dst) == 0 {
		dst = append(dst, '/')
	}
	n := 1 // the first is a slash
	for _, c := range dst[1:] {
		if c != '/' || dst[n-1] != '/' {
			dst[n] = c
			n++
		}
	}
	return dst[:n]
}

// difference is how dotsFirst differs from cleaned.
type difference int

const (
	same  difference = iota
	slash            // there is one more, at the end
	other
)

// cleaned appends a path with dots and double slashes resolved.
func cleaned(dst, s []byte) (clean []byte, first difference) {
	doubles, ups, dots := false, false, false
	from := 0 // what is to be copied from here on
	for i := 0; i < len(s); {
		end, up, here := segment(s, i)
		if dots = up || here; dots || end == i+1 {
			if from < i {
				dst = append(dst, s[from:i]...)
			}
			from = end
			if up {
				dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
			}
			ups, doubles = ups || up, doubles || !dots && end < len(s)
		}
		i = end
	}
	dst = append(dst, s[from:]...)
	switch {
	case len(dst) == 0:
		dst, dots = append(dst, '/'), false
	case s[len(s)-1] == '/':
		dst = append(dst, '/')
	}
	switch {
	case ups && doubles:
		first = other
	case dots:
		first = slash
	}
	return dst, first
}

// segment is the end of that which begins with the slash at i, and whether it is one of two
// dots, or of one.
func segment(s []byte, i int) (end int, up, here bool) {
	for end = i + 1; end < len(s) && s[end] != '/'; {
		end++
	}
	return end, end == i+3 && s[i+1] == '.' && s[i+2] == '.', end == i+2 && s[i+1] == '.'
}

// backslashes has them be read as slashes, escaped or not: who tells one escaped may have
// been sent it plain.
func backslashes(s string) string {
	if strings.IndexByte(s, '\\') < 0 && !strings.Contains(s, "%5") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			out = append(out, '/')
		case c == '%' && i+2 < len(s) && s[i+1] == '5' && s[i+2]|0x20 == 'c':
			out = append(out, '/')
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// unescape appends a path with those of its escapes read that are good, and bad ones as they
// are, which is what lenient origins do: whatever a strict one refuses, the good part of
// the path must meet its rule. That of a question mark stays, as "%3F", and that of a slash
// where split says so.
func unescape(dst []byte, s string, split bool) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if high, low := unhex[s[i+1]], unhex[s[i+2]]; high|low < 16 {
				i += 2
				switch c = high<<4 | low; {
				case c == '?':
					dst = append(dst, '%', '3')
					c = 'F'
				case c == '/' && split:
					dst = append(dst, '%', '2')
					c = 'F'
				}
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// unhex is the value of a digit, 255 of what is none.
var unhex = func() (table [256]byte) {
	for i := range table {
		table[i] = 255
		if n := strings.IndexByte("0123456789abcdef", byte(i)|0x20); n >= 0 && (i >= '0' && i <= '9' || n >= 10) {
			table[i] = byte(n)
		}
	}
	return table
}()
