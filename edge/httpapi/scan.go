package httpapi

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) strictly from a text that is known to be valid
// UTF-8. Unlike encoding/json it knows where it stands, hears of duplicate and
// wrongly cased names, and its strings are parts of the text: reading a plain
// one allocates nothing.
type scanner struct {
	text string
	at   int
}

// maxDepth bounds the nesting of values that are only skipped.
const maxDepth = 32

// syntax is the mistake that the text is not JSON at the scanner's position.
func (s *scanner) syntax(want string) *inputError {
	const hint = `the body is one JSON object, such as {"attributes":{"user":"u1"}}`
	if s.at >= len(s.text) {
		return badRequest("body", hint, "ends at byte %d where %s should follow", s.at, want)
	}
	_, n := utf8.DecodeRuneInString(s.text[s.at:])
	return badRequest("body", hint, "%s at byte %d where %s should stand", short(s.text[s.at:s.at+n]), s.at, want)
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take steps over c where it stands next, spaces before it left out.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// member goes to the n-th member (from 0) of the object that was opened, and
// reads its name; more is false at the object's end.
func (s *scanner) member(n int) (name string, more bool, bad *inputError) {
	if s.take('}') {
		return "", false, nil
	}
	if n > 0 && !s.take(',') {
		return "", false, s.syntax(`"," or "}"`)
	}
	s.space()
	if name, bad = s.str(); bad != nil {
		return "", false, bad
	}
	if !s.take(':') {
		return "", false, s.syntax(`":"`)
	}
	return name, true, nil
}

// element goes to the n-th element of the array that was opened; more is false
// at the array's end.
func (s *scanner) element(n int) (more bool, bad *inputError) {
	if s.take(']') {
		return false, nil
	}
	if n > 0 && !s.take(',') {
		return false, s.syntax(`"," or "]"`)
	}
	return true, nil
}

// kind says what value stands next, in the words of a message.
func (s *scanner) kind() string {
	s.space()
	if s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			return "a string"
		case c == '{':
			return "an object"
		case c == '[':
			return "an array"
		case c == 't' || c == 'f':
			return "a boolean"
		case c == 'n':
			return "null"
		case c == '-' || c >= '0' && c <= '9':
			return "a number"
		}
	}
	return ""
}

// str reads a string.
func (s *scanner) str() (string, *inputError) {
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		return "", s.syntax("a string")
	}
	s.at++
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return "", s.syntax("an escape (control characters are not allowed in strings)")
		}
	}
	return "", s.syntax(`the closing "\""`)
}

// escaped reads the rest of a string that has escapes; what stands from start
// has none.
func (s *scanner) escaped(start int) (string, *inputError) {
	var b strings.Builder
	b.WriteString(s.text[start:s.at])
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '"':
			s.at++
			return b.String(), nil
		case c < 0x20:
			return "", s.syntax("an escape (control characters are not allowed in strings)")
		case c != '\\':
			b.WriteByte(c)
			s.at++
			continue
		}
		s.at++
		r, bad := s.escape()
		if bad != nil {
			return "", bad
		}
		b.WriteRune(r)
	}
	return "", s.syntax(`the closing "\""`)
}

// escape reads what follows a backslash.
func (s *scanner) escape() (rune, *inputError) {
	if s.at < len(s.text) {
		c := s.text[s.at]
		if c == 'u' {
			return s.unicode()
		}
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			s.at++
			return rune("\"\\/\b\f\n\r\t"[i]), nil
		}
	}
	return 0, s.syntax("an escape")
}

// unicode reads "u1234", or two of them where they are a surrogate pair. A
// surrogate by itself is no character, and is refused.
func (s *scanner) unicode() (rune, *inputError) {
	r, ok := s.hex(s.at + 1)
	if ok && !utf16.IsSurrogate(r) {
		s.at += 5
		return r, nil
	}
	if ok && strings.HasPrefix(s.text[s.at+5:], `\u`) {
		low, ok := s.hex(s.at + 7)
		if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
			s.at += 11
			return r, nil
		}
	}
	return 0, s.syntax("an escape of a Unicode character")
}

func (s *scanner) hex(at int) (rune, bool) {
	if at+4 > len(s.text) {
		return 0, false
	}
	v, err := strconv.ParseUint(s.text[at:at+4], 16, 16)
	return rune(v), err == nil
}

// number reads a number and returns it as it is written.
func (s *scanner) number() (string, *inputError) {
	start := s.at
	if s.at < len(s.text) && s.text[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.text) && s.text[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return "", s.syntax("a digit")
	}
	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if !s.digits() {
			return "", s.syntax("a digit")
		}
	}
	if s.at < len(s.text) && s.text[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
			s.at++
		}
		if !s.digits() {
			return "", s.syntax("a digit")
		}
	}
	return s.text[start:s.at], nil
}

func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

// literal reads true, false or null.
func (s *scanner) literal() (string, *inputError) {
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(s.text[s.at:], word) {
			s.at += len(word)
			return word, nil
		}
	}
	return "", s.syntax("a value")
}

// skip steps over the value that stands next, checking that it is JSON.
func (s *scanner) skip(depth int) (bad *inputError) {
	if depth > maxDepth {
		return badRequest("body", "", "values are nested deeper than %d at byte %d", maxDepth, s.at)
	}
	switch s.kind() {
	case "a string":
		_, bad = s.str()
	case "a number":
		_, bad = s.number()
	case "an object":
		s.at++
		for n := 0; ; n++ {
			_, more, bad := s.member(n)
			if bad != nil || !more {
				return bad
			}
			if bad = s.skip(depth + 1); bad != nil {
				return bad
			}
		}
	case "an array":
		s.at++
		for n := 0; ; n++ {
			more, bad := s.element(n)
			if bad != nil || !more {
				return bad
			}
			if bad = s.skip(depth + 1); bad != nil {
				return bad
			}
		}
	default:
		_, bad = s.literal()
	}
	return bad
}
