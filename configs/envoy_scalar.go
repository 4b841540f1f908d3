package configs

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The reference reads YAML 1.1: yes and on are true there, and what stands without quotes
// is a number wherever it looks like one.
var (
	envoyTrue  = []string{"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
	envoyFalse = []string{"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
	envoyFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$`)
)

// quoted says that a scalar stands in quotes, or as a block: then it is text.
func (r *envoyReader) quoted(n *node) bool {
	line := []rune(r.src.line(n.at.line))
	if n.kind != kindText || n.at.column < 1 || n.at.column > len(line) {
		return false
	}
	return slices.Contains([]rune{'"', '\'', '|', '>'}, line[n.at.column-1])
}

// scalar checks a scalar as such: the reference refuses numbers with a fraction, and those
// of more than 63 bits, wherever they stand.
func (r *envoyReader) scalar(path string, n *node) (ok bool) {
	if r.quoted(n) {
		return true
	}
	if _, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64); err == nil || !envoyFloat.MatchString(strings.ReplaceAll(n.text, "_", "")) {
		return true
	}
	r.mistake(path, n.at, "E241", "put it in quotes where it is text", "%q is a number with a fraction, or too large", clip(n.text))
	return false
}

// single says that a value is one, and reports it if not.
func (r *envoyReader) single(path string, n *node, want, hint string) bool {
	if n.kind == kindList || n.kind == kindMapping || n.kind == kindBroken {
		r.wrongKind(path, n, want, hint)
		return false
	}
	return r.scalar(path, n)
}

// text reads a text as it is written, be it a number.
func (r *envoyReader) text(dst *string) read {
	return func(path string, n *node) {
		if r.single(path, n, "text", "write one word, in quotes if need be") {
			*dst = n.text
		}
	}
}

func (r *envoyReader) flag(dst *bool) read {
	return func(path string, n *node) {
		switch {
		case !r.single(path, n, "true or false", ""):
		case !r.quoted(n) && slices.Contains(envoyTrue, n.text):
			*dst = true
		case r.quoted(n) || !slices.Contains(envoyFalse, n.text):
			r.wrongKind(path, n, "true or false", "without quotes")
		}
	}
}

// count reads a number of requests.
func (r *envoyReader) count(dst *uint32) read {
	return func(path string, n *node) {
		if !r.single(path, n, "a whole number", "write digits alone") {
			return
		}
		v, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
		switch {
		case err != nil || r.quoted(n):
			r.wrongKind(path, n, "a whole number", "digits alone, without quotes")
		case v < 0 || v > math.MaxUint32:
			r.mistake(path, n.at, "E013", "0 to 4294967295", "%s is out of range", clip(n.text))
		default:
			*dst = uint32(v)
		}
	}
}

// metadata reads what may have any form.
func (r *envoyReader) metadata(dst *map[string]any) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", "write name: value, a line for each")
			return
		}
		*dst, _ = r.plain(n).(map[string]any)
	}
}

// plain is a value as JSON has it.
func (r *envoyReader) plain(n *node) any {
	switch n.kind {
	case kindMapping:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			if r.visit(n) {
				m[e.key] = r.plain(e.value)
			}
		}
		return m
	case kindList:
		list := make([]any, 0, len(n.items))
		for _, v := range n.items {
			if r.visit(n) {
				list = append(list, r.plain(v))
			}
		}
		return list
	case kindNull, kindBroken:
		return nil
	}
	text := strings.ReplaceAll(n.text, "_", "")
	if v, err := strconv.ParseInt(text, 0, 64); err == nil && !r.quoted(n) {
		return float64(v)
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && !r.quoted(n) && envoyFloat.MatchString(text) {
		return v
	}
	if !r.quoted(n) && slices.Contains(envoyTrue, n.text) {
		return true
	}
	if !r.quoted(n) && slices.Contains(envoyFalse, n.text) {
		return false
	}
	return n.text
}
