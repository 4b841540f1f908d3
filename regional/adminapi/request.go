package adminapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// bodyOf is a request's document.
func bodyOf(w http.ResponseWriter, r *http.Request) (string, *Problem) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return "", problem(http.StatusRequestEntityTooLarge, "split the namespace", fmt.Sprintf("a document is at most %d bytes", maxBody))
	case err != nil:
		return "", problem(http.StatusBadRequest, "", "the body cannot be read: "+err.Error())
	case strings.TrimSpace(string(text)) == "":
		return "", problem(http.StatusBadRequest, "the YAML of it", "the body is empty")
	}
	return string(text), nil
}

// numberOf reads ?name=; 0: it is not there.
func numberOf(r *http.Request, name string) (uint64, *Problem) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0, problem(http.StatusBadRequest, "a whole number", fmt.Sprintf("%s=%.40q is no number", name, text))
	}
	return n, nil
}

// flagOf reads ?name=1.
func flagOf(r *http.Request, name string) (bool, *Problem) {
	text := r.URL.Query().Get(name)
	if text == "" && !r.URL.Query().Has(name) {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, problem(http.StatusBadRequest, name+"=1", fmt.Sprintf("%s=%.40q is neither 1 nor 0", name, text))
	}
	return is, nil
}

// wantsJSON says that a caller asks for JSON, and not for YAML.
func wantsJSON(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, err := mime.ParseMediaType(part)
		switch {
		case err != nil:
		case kind == "application/json":
			return true
		case strings.HasSuffix(kind, "yaml"):
			return false
		}
	}
	return false
}

func writeYAML(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, text) // a caller that is gone cannot be told so
}
