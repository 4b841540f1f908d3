package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Serve has next serve an admitted request, and ends its visit, be it that next
// panics.
func (v *Visit) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if v == nil {
		next.ServeHTTP(w, r)
		return
	}
	if !v.after {
		defer v.End(Answer{})
		next.ServeHTTP(w, r)
		return
	}
	noted := &response{ResponseWriter: w}
	returned := false
	defer func() {
		switch {
		case noted.status != 0:
		case returned: // net/http says so for it
			noted.status = http.StatusOK
		default:
			noted.status = http.StatusInternalServerError
		}
		v.End(noted.answer())
	}()
	next.ServeHTTP(noted.shaped(), r)
	returned = true
}

// response notes the status that a handler answers with.
type response struct {
	http.ResponseWriter
	status int    // 0: none yet
	call   Answer // of a call of gRPC: how it ended; empty where that is not known
}

var _ io.ReaderFrom = (*response)(nil)

// Unwrap lets http.ResponseController reach what is beneath.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) noting() *response { return w }

// answer is what the visit ends with. A call that HTTP's status says nothing of has the nearest to its code.
func (w *response) answer() Answer {
	a := Answer{Status: strconv.Itoa(w.status), Code: w.call.Code}
	if w.status == http.StatusOK && w.call.Status != "" {
		a.Status = w.call.Status
	}
	return a
}

func (w *response) note(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// WriteHeader implements http.ResponseWriter. Informational answers come before
// the one that counts; 101 is the last one.
func (w *response) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.note(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, so that files still go out by sendfile.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	w.note(http.StatusOK)
	return io.Copy(w.ResponseWriter, src)
}

// shaped is the response with those of net/http's optional interfaces that what
// is beneath has: handlers ask for them by type, and do another thing where
// they are missing.
func (w *response) shaped() http.ResponseWriter {
	_, flushes := w.ResponseWriter.(http.Flusher)
	_, hijacks := w.ResponseWriter.(http.Hijacker)
	pusher, pushes := w.ResponseWriter.(http.Pusher)
	switch {
	case flushes && hijacks: // HTTP/1
		return struct {
			*response
			flusher
			hijacker
		}{w, flusher{w}, hijacker{w}}
	case flushes && pushes: // HTTP/2
		return struct {
			*response
			flusher
			http.Pusher
		}{w, flusher{w}, pusher}
	case flushes:
		return struct {
			*response
			flusher
		}{w, flusher{w}}
	}
	return w
}

// flusher sends what was written so far; the status goes with it.
type flusher struct{ of *response }

// Flush implements http.Flusher. What it cannot send is told by the next Write.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is Flush as http.ResponseController asks for it.
func (f flusher) FlushError() error {
	f.of.note(http.StatusOK)
	return http.NewResponseController(f.of.ResponseWriter).Flush()
}

// hijacker hands the connection over. What its new owner answers on it nobody
// sees; those who do it switch protocols, as a rule.
type hijacker struct{ of *response }

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.of.ResponseWriter).Hijack()
	if err == nil {
		h.of.note(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
