package proxy

import (
	"net/http"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// taken has answers be taken, or end, within a client's pause: also what a handler has left to
// net/http, as it does with short ones and denials, and net/http would keep for as long as the
// connection lasts. Over HTTP/2, where a connection has many, each has a place until then.
type taken struct {
	front http.Handler
	pause time.Duration
	enter func(peer string) (leave func(), ok bool) // nil: there are as many places as one likes
}

// ServeHTTP implements http.Handler.
func (t *taken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	// Of a connection that is another protocol's by now it does nothing: that is over.
	limit := func() { _ = rc.SetWriteDeadline(time.Now().Add(t.pause)) }
	if r.ProtoMajor < 2 {
		t.front.ServeHTTP(w, r)
		limit()
		return
	}
	if t.enter != nil {
		leave, ok := t.enter(r.RemoteAddr)
		if !ok {
			noPlace(w, r)
			limit()
			return
		}
		defer leave()
	}
	s := &said{ResponseWriter: w}
	t.front.ServeHTTP(s, r)
	if limit(); s.body { // else nothing of it waits for the client
		_ = rc.Flush() // who is gone cannot be told so
	}
}

// noPlace tells so without a body, which may not be taken either.
func noPlace(w http.ResponseWriter, r *http.Request) {
	crowded.tell(w.Header())
	if httpapi.GRPC(r) {
		httpapi.WriteCallProblem(w, r, crowded.status, true, "as many requests as are taken are under way, of this address or of all: try again later")
		return
	}
	w.WriteHeader(crowded.status)
}

// said knows whether an answer has a body.
type said struct {
	http.ResponseWriter
	body bool
}

// Unwrap lets http.ResponseController reach what is beneath.
func (s *said) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements http.ResponseWriter.
func (s *said) Write(b []byte) (int, error) {
	s.body = true
	return s.ResponseWriter.Write(b)
}
