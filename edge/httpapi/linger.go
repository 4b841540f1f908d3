package httpapi

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Lingers has net/http keep a connection for half a second after an answer that leaves a part of its
// request's body unread, as it does itself but for requests that end their connection (nginx's to an
// upstream do, unless it is told otherwise) and those that ask to go on, whose clients may not wait to be
// told so (Caddy does not): closed with bytes unread the connection is reset, which takes the answer from
// who still sends. Its writer is to be net/http's own.
func Lingers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close && r.Header["Expect"] == nil || r.ProtoMajor != 1 || r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		b := &ending{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // a copy: net/http looks at its own, which tells the client to go on
		r.Body = b
		h.ServeHTTP(w, r)
		if !b.over.Load() {
			// The way to have it wait that net/http shows: a body longer than it may be.
			_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
		}
	})
}

// ending is a body that knows whether it was read to its end.
type ending struct {
	io.ReadCloser
	over atomic.Bool
}

// Read implements io.Reader.
func (e *ending) Read(p []byte) (n int, err error) {
	if n, err = e.ReadCloser.Read(p); err == io.EOF {
		e.over.Store(true)
	}
	return n, err
}
