package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// inputError is a mistake of the caller: what, where, and how to mend it.
type inputError struct {
	status int
	field  string // "attributes.user"
	detail string
	hint   string
}

func (e *inputError) Error() string {
	s := e.detail
	if e.field != "" {
		s = e.field + ": " + s
	}
	if e.hint != "" {
		s += " (" + e.hint + ")"
	}
	return s
}

// Is says that an unknown namespace is one (ErrNamespace).
func (e *inputError) Is(target error) bool {
	return target == ErrNamespace && e.status == http.StatusNotFound
}

// badRequest is an inputError with status 400.
func badRequest(field, hint, format string, args ...any) *inputError {
	return &inputError{status: http.StatusBadRequest, field: field, hint: hint, detail: fmt.Sprintf(format, args...)}
}

// shortest is how much of a caller's own words a message repeats.
const shortest = 40

// short quotes what a caller sent, cut to a bounded length.
func short(s string) string {
	if len(s) <= shortest {
		return strconv.Quote(s)
	}
	cut := shortest
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// problem is an RFC 9457 answer other than a denial.
type problem struct {
	status     int
	kind       string // "": about:blank
	title      string // "": the status's own
	detail     string
	field      string
	retryAfter int64 // seconds; 0: none
}

func (p *problem) append(dst []byte) []byte {
	kind, title := p.kind, p.title
	if kind == "" {
		kind = "about:blank"
	}
	if title == "" {
		title = http.StatusText(p.status)
	}
	dst = append(dst, `{"type":`...)
	dst = appendString(dst, kind)
	dst = append(dst, `,"title":`...)
	dst = appendString(dst, title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(p.status), 10)
	dst = append(dst, `,"detail":`...)
	dst = appendString(dst, p.detail)
	if p.field != "" {
		dst = append(dst, `,"field":`...)
		dst = appendString(dst, p.field)
	}
	if p.retryAfter > 0 {
		dst = append(dst, `,"retry_after":`...)
		dst = strconv.AppendInt(dst, p.retryAfter, 10)
	}
	return append(dst, '}')
}

// Header values that never change; a header map may share them, since setting
// replaces the slice and adding copies it.
var (
	problemType = []string{"application/problem+json"}
	jsonType    = []string{"application/json"}
	plainType   = []string{"text/plain; charset=utf-8"}
	noStore     = []string{"no-store"}
)

// WriteProblem answers, with problem+json (RFC 9457), a request that no limit denied and
// that is not served all the same.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	writeProblem(w, &problem{status: status, detail: detail})
}

func writeProblem(w http.ResponseWriter, p *problem) {
	h := w.Header()
	h["Content-Type"] = problemType
	h["Cache-Control"] = noStore
	if p.retryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(p.retryAfter, 10)}
	}
	w.WriteHeader(p.status)
	// A caller that is gone cannot be told so.
	_, _ = w.Write(append(p.append(make([]byte, 0, 256)), '\n'))
}

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20 && c < 0x7f:
			dst = append(dst, c)
		default:
			// Rare: control bytes and what is not ASCII. Marshalling a string
			// never fails.
			rest, _ := json.Marshal(s[i:])
			return append(dst, rest[1:]...)
		}
	}
	return append(dst, '"')
}
