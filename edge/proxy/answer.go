package proxy

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// answer is the way to the client: each write has a deadline of its own, so that who
// takes nothing holds nothing for long, and an answer may last as long as it likes.
type answer struct {
	http.ResponseWriter
	rc       *http.ResponseController
	pause    time.Duration
	body     *body           // of the request, over HTTP/1
	own      bool            // it is not the upstream's
	origins  httpapi.Origins // whose pages may read it then
	request  *http.Request   // that it answers
	final    bool            // a client of HTTP/1.0 takes no informational ones (RFC 9110, section 15.2)
	between  bool            // the deadline must not stand between writes: HTTP/2 ends the stream by it
	apart    http.Header     // what the header is to be, over HTTP/2; see show
	began    bool            // its status is on the way
	switched bool            // the connection is another protocol's
	untaken  bool            // the client did not take all of it
}

// Unwrap lets http.ResponseController reach what is beneath.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header {
	if a.apart != nil {
		return a.apart
	}
	return a.ResponseWriter.Header()
}

// show has the header be that which goes to the client. Over HTTP/2 net/http reads it on while it
// writes an informational answer to a client that has left: then it may not change any more.
func (a *answer) show() {
	if a.apart != nil && a.request.Context().Err() == nil {
		h := a.ResponseWriter.Header()
		clear(h)
		maps.Copy(h, a.apart)
	}
}

// WriteHeader implements http.ResponseWriter. Informational answers come before the one
// that counts. One to a request whose body is not over ends its connection: net/http
// would wait for the rest before it sends the answer, and else what comes of it later could be
// taken for another request.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.began = true
		if a.own {
			a.origins.Tell(a.Header(), a.request)
		}
		if a.body != nil && !a.body.over.Load() {
			if a.own {
				a.body.skim()
			}
			if !a.body.over.Load() {
				a.Header().Set("Connection", "close")
			}
		}
	} else if a.final || a.body != nil && a.body.asks && !a.body.told.Load() {
		return // nor is there one beside that by which net/http tells who asks to go on, as they would mix
	} else {
		dropUndecided(a.Header())
	}
	a.show()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if !a.began {
		a.WriteHeader(http.StatusOK)
	}
	defer a.limit()()
	n, err := a.ResponseWriter.Write(b)
	a.untaken = a.untaken || err != nil
	return n, err
}

// FlushError sends what was written so far, as http.ResponseController asks for it.
func (a *answer) FlushError() error {
	defer a.limit()()
	return a.rc.Flush()
}

// Hijack implements http.Hijacker.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.switched = true
	conn = &switchedConn{conn, a.pause}
	rw.Writer.Reset(conn)
	return conn, rw, nil
}

// switchedConn is the way to the client where protocols switched: it has a deadline of each
// write, too, and none between, as either side may be silent.
type switchedConn struct {
	net.Conn
	pause time.Duration
}

// Write implements net.Conn.
func (c *switchedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.pause)); err != nil {
		return 0, err
	}
	defer c.SetWriteDeadline(time.Time{}) // TLS writes as it reads, too
	return c.Conn.Write(b)
}

// CloseWrite tells the client that the upstream has said all.
func (c *switchedConn) CloseWrite() error { return closeWrite(c.Conn) }

// limit sets the deadline of a write, and returns what is to be done after it. A server
// without deadlines has its own.
func (a *answer) limit() (after func()) {
	_ = a.rc.SetWriteDeadline(time.Now().Add(a.pause))
	if !a.between {
		return func() {}
	}
	return func() { _ = a.rc.SetWriteDeadline(time.Time{}) }
}

// early is the body of an answer over HTTP/2 that may come before all of the request has. Its Close
// waits for who reads the request's body, and he for the client, until leave.
type early struct {
	io.ReadCloser
	of *body
}

// Read implements io.Reader. As long as it comes the upstream may take nothing more of the request.
func (e *early) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if t := e.of.taking.Load(); n > 0 {
		t.moves()
	}
	return n, err
}

// Close implements io.Closer.
func (e *early) Close() error {
	if e.of.over.Load() {
		return e.ReadCloser.Close()
	}
	go e.ReadCloser.Close() // ends with the request's body
	return nil
}
