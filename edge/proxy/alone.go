package proxy

import (
	"net/http"
	"strings"
	"sync"
)

// Servers of HTTP/2 end a connection for a header that is too large for them (nginx, HAProxy), and
// for trailers (nginx before 1.25.1), and all others' requests would be lost with it. So what may be
// too large has a connection of its own, until the upstream has answered one of the kind.

// size is that of a request's header, in what servers bound: its largest field, all of them, and how
// many they are, each crumb of a Cookie one.
type size struct{ field, header, fields int }

// What servers take by default, with room for what is added here: nginx before 1.19.7 4 kB a field,
// HAProxy 15 kB in all and 101 fields.
var mostTaken = size{4 << 10, 12 << 10, 80}

func sizeOf(out *http.Request) (s size) {
	add := func(name, value string) {
		n := len(name) + len(value)
		s = size{max(s.field, n), s.header + n, s.fields + 1}
	}
	for name, values := range out.Header {
		for _, value := range values {
			if add(name, value); name == "Cookie" {
				s.fields += strings.Count(value, ";")
			}
		}
	}
	add("", out.Method)
	add("", out.URL.RequestURI())
	add("", out.Host)
	return s
}

func (s size) within(most size) bool {
	return s.field <= most.field && s.header <= most.header && s.fields <= most.fields
}

// takes is what the upstream is known to take. The zero value is what servers do by default.
type takes struct {
	mu   sync.Mutex // guards more
	more size
}

func (t *takes) most() size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return size{max(t.more.field, mostTaken.field), max(t.more.header, mostTaken.header), max(t.more.fields, mostTaken.fields)}
}

// raise is that it answered a request of a size.
func (t *takes) raise(s size) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.more = size{max(t.more.field, s.field), max(t.more.header, s.header), max(t.more.fields, s.fields)}
}

// reset is that it ended a connection after all.
func (t *takes) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.more = size{}
}

// alone is what a request does wrong, if its upstream ends the connection for it; none: there is
// nothing that one would do so for.
func (t *takes) alone(s size, out *http.Request) fault {
	most := t.most()
	switch {
	case len(out.URL.RequestURI()) > most.field:
		return requestFault(http.StatusRequestURITooLong, "the path and query are longer than the upstream takes")
	case !s.within(most):
		return requestFault(http.StatusRequestHeaderFieldsTooLarge, "the header is larger than the upstream takes")
	case out.Trailer != nil:
		return requestFault(http.StatusBadRequest, "the upstream takes no trailers of a request")
	}
	return fault{}
}
