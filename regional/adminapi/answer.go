package adminapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"

	"github.com/spillgate/spillgate/configs"
)

// Problem is what is answered where something is wrong (RFC 9457).
type Problem struct {
	Type   string    `json:"type"`
	Title  string    `json:"title"`
	Status int       `json:"status"`
	Detail string    `json:"detail"`
	Hint   string    `json:"hint,omitempty"`
	Errors []Mistake `json:"errors,omitempty"` // in the rules
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Hint == "" {
		return p.Detail
	}
	return p.Detail + " (" + p.Hint + ")"
}

// Mistake is one thing wrong in rules, or hardly meant so.
type Mistake struct {
	Code    string `json:"code"`              // such as E145: stable, for tools
	Pointer string `json:"pointer,omitempty"` // RFC 6901, in the document
	Name    string `json:"name,omitempty"`    // of the document
	Line    int    `json:"line,omitempty"`    // from 1; 0: the whole of it
	Column  int    `json:"column,omitempty"`
	Detail  string `json:"detail"`
	Hint    string `json:"hint,omitempty"`
	Excerpt string `json:"excerpt,omitempty"` // the line, with a caret under the place
}

// Text is the mistake as a compiler prints it.
func (m *Mistake) Text() string { return m.mistake().Text() }

func (m *Mistake) mistake() *configs.Mistake {
	return &configs.Mistake{File: m.Name, Line: m.Line, Column: m.Column, Code: m.Code, Detail: m.Detail, Hint: m.Hint, Excerpt: m.Excerpt}
}

// told are mistakes as they are told.
func told(mistakes []configs.Mistake) []Mistake {
	out := make([]Mistake, len(mistakes))
	for i, m := range mistakes {
		out[i] = Mistake{Code: m.Code, Pointer: pointer(m.Path), Name: m.File, Line: m.Line, Column: m.Column, Detail: m.Detail, Hint: m.Hint, Excerpt: m.Excerpt}
	}
	return out
}

var pathPart = regexp.MustCompile(`[^.\[\]]+`)

// pointer is the JSON pointer of a path such as rules[0].rates[1].per.
func pointer(path string) (p string) {
	for _, part := range pathPart.FindAllString(path, -1) {
		p += "/" + part
	}
	return p
}

func problem(status int, hint, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Hint: hint}
}

// invalid is the problem that rules are not good, or another where err is none of theirs.
func invalid(err error) *Problem {
	var rules *configs.RulesError
	switch {
	case errors.As(err, &rules):
		p := problem(http.StatusUnprocessableEntity, "", "the rules have mistakes, and nothing is changed")
		p.Errors = told(rules.Mistakes)
		return p
	case errors.Is(err, configs.ErrInPlace):
		return problem(http.StatusConflict, "PUT the namespace", err.Error())
	}
	return problem(http.StatusInternalServerError, "", err.Error())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, "application/json", v)
}

func writeProblem(w http.ResponseWriter, p *Problem) {
	write(w, p.Status, "application/problem+json", p)
}

func write(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	_ = out.Encode(v) // a caller that is gone cannot be told so
}
