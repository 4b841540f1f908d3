package limit

import (
	"fmt"
	"strings"
)

// maxHost is the longest name that DNS knows; nothing longer matches.
const maxHost = 255

// hosts are the hosts that a rule is for: names, and the names that all below
// a domain end in (".example.com"). All are in lower case.
type hosts struct {
	names    choice
	suffixes choice
}

func (h *hosts) any() bool { return len(h.names.values) == 0 && len(h.suffixes.values) == 0 }

func (h *hosts) matches(host []byte) bool {
	if h.names.hasBytes(host) {
		return true
	}
	if len(h.suffixes.values) == 0 {
		return false
	}
	for i := range host {
		if i > 0 && host[i] == '.' && h.suffixes.hasBytes(host[i:]) {
			return true
		}
	}
	return false
}

// add takes "example.com", "*.example.com" or an address; none has a port.
func (h *hosts) add(s string) error {
	var room [maxHost]byte
	name, wild := strings.CutPrefix(s, "*.")
	norm := normalHost(room[:0], name)
	switch {
	case len(norm) == 0:
		return fmt.Errorf("%q is not a host", s)
	case strings.ContainsAny(name, "*/ \t@?#"):
		return fmt.Errorf("%q: a host is a name, or \"*.\" and a name", s)
	case len(norm) != len(strings.TrimSuffix(name, ".")):
		return fmt.Errorf("%q: a host has no port and no brackets here", s)
	case wild:
		h.suffixes.add("." + string(norm))
	default:
		h.names.add(string(norm))
	}
	return nil
}

// normalHost appends a host as it is compared: in lower case, without port,
// brackets and last dot. What cannot be a host is appended as nothing.
func normalHost(dst []byte, s string) []byte {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return dst
		}
		s = s[1:end]
	} else if i := strings.IndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i+1:], ':') < 0 {
		s = s[:i]
	}
	s = strings.TrimSuffix(s, ".")
	if len(s) > maxHost {
		return dst
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
