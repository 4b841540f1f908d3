package limit_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

// The readings of a path as they are written down, one replacement after the other: slow,
// and what PathReadings has to come to.

func plainReadings(s string) (path string, others []string) {
	if path = cleaned(unescape(escapedMark.Replace(s))); path == s && !strings.ContainsAny(s, `%\;`) {
		return path, nil
	}
	marked := escapedMark.Replace(s)
	others = resolved(unresolved(nil, path, marked), path, marked)
	others = bare(others, path, marked, true)
	slashed := backslash.Replace(marked)
	if slashed != marked {
		others = resolved(others, path, slashed)
		others = bare(others, path, slashed, false)
	}
	for _, from := range []string{slashed, marked} {
		if strings.HasPrefix(from, "//") {
			rest := strings.TrimLeft(from, "/")
			if i := strings.IndexByte(rest, '/'); i >= 0 {
				rest = rest[i:]
			} else {
				rest = "/"
			}
			others = resolved(unresolved(others, path, rest), path, rest)
			others = bare(others, path, rest, true)
		}
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

// bare adds those without parameters.
func bare(others []string, path, s string, alsoUnresolved bool) []string {
	whole, split := unescape(s), unescape(escapedSlash.Replace(s))
	if !strings.Contains(whole, ";") {
		return others
	}
	for _, text := range []string{split, whole} {
		text = parameters.ReplaceAllString(text, "")
		if alsoUnresolved {
			others = with(others, text, path)
		}
		for _, reading := range []string{cleaned(text), dotsFirst(text)} {
			others = with(others, reading, path)
			if split != whole && strings.Contains(reading, "%2F") {
				later := strings.ReplaceAll(reading, "%2F", "/")
				others = with(with(others, cleaned(later), path), dotsFirst(later), path)
			}
		}
	}
	return others
}

var parameters = regexp.MustCompile(`(?s);[^/]*`)

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

// Whatever path a client may think of has the readings that it should have.
func TestPathReadingsAgainstPlainOnes(t *testing.T) {
	pieces := []string{"/", "/", "//", "/.", "/..", "..", ".", "%2F", "%2f", "%2E", "%5C", "%5c", `\`, "%25", "%3F", "%3f", "%3B", ";", "a", "b", "login", "%", "%2", "%zz", "%C3", "é", "%00", " ", "F", "5", "%%", ":"}
	rnd := rand.New(rand.NewPCG(3, 1))
	for range 200_000 {
		var b strings.Builder
		b.WriteByte('/')
		for range rnd.IntN(10) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		sameReadings(t, b.String())
	}
}

func FuzzPathReadings(f *testing.F) {
	for _, text := range []string{"/a%2Fb/../login", `/\\x/..\login`, "//x/login;a=1/..;/b", "/%252F..%2f%3F//.."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { sameReadings(t, "/"+text) })
}

func sameReadings(t *testing.T, text string) {
	t.Helper()
	want, wants := plainReadings(text)
	if got, others := limit.PathReadings(text); got != want || !slices.Equal(others, wants) {
		t.Fatalf("PathReadings(%q) = %q, %q; want %q, %q", text, got, others, want, wants)
	}
}
