package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"syscall"
)

// Fields that an answer's Connection names end with the connection, which httputil sees
// to: but where it says close, too, net/http has taken Connection away by then. So the
// headers of HTTP/1 are listened to as they are read.

// headerConn is what comes from the upstream, of which it keeps the header of an answer.
type headerConn struct {
	net.Conn
	up *upstreamConn // beneath, inside of TLS or not

	mu     sync.Mutex // guards what follows: net/http reads beside the exchange; held for no I/O
	open   bool       // the header is not over
	header []byte
	line   int // where its last line begins
	names  []string
	broke  func(error) // to be told where it ends before an answer begins; nil: it has begun
	ended  error       // why nothing more is read
	heeds  bool        // the request has a body, amid which it may be answered
	lost   bool        // what is written of it is, as the upstream closed the connection
}

// listen has it heed the answer to the request that is sent next. Where the connection
// ends before that begins, broke is told, and before net/http is. Amid a body that ends as its reading does.
func (c *headerConn) listen(body bool, broke func(error)) {
	c.up.begin()
	c.mu.Lock()
	if c.heeds = body; c.lost && c.ended == nil {
		c.ended = net.ErrClosed // as net/http is about to read
	}
	c.open, c.header, c.line, c.names = true, c.header[:0], 0, nil
	c.broke = broke
	c.mu.Unlock()
	c.tell(nil)
}

// tell tells once that the connection has ended, before an answer began: by err where it is
// written to, and else where its reading ended.
func (c *headerConn) tell(err error) {
	c.mu.Lock()
	if err == nil {
		err = c.ended
	}
	broke := c.broke
	if err == nil || broke == nil {
		c.mu.Unlock()
		return
	}
	c.broke = nil
	c.mu.Unlock()
	c.up.end(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) // which TLS says where it was not told
	broke(err)
}

// nominated are the fields that the answer's Connection named beside close.
func (c *headerConn) nominated() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names
}

// Read implements net.Conn.
func (c *headerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	if c.open {
		c.hear(b[:n])
	}
	if n > 0 {
		c.broke = nil
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // else it is net/http that ended it, and knows why
		c.ended = err
	}
	c.mu.Unlock()
	c.tell(nil)
	return n, err
}

// Write implements net.Conn. A server that answers before it has read all of a body, and closes the
// connection then, resets it: net/http would end by what failed of the body, though the answer is
// there to be read. So that goes nowhere from then on, until the reading ends.
func (c *headerConn) Write(b []byte) (int, error) {
	if c.isLost() {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	switch {
	case err == nil:
	case c.loses(err):
		return len(b), nil
	default:
		c.tell(err)
	}
	return n, err
}

// loses says that a failure to write is the upstream's close, amid a body.
func (c *headerConn) loses(err error) bool {
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = c.heeds
	return c.lost
}

// isLost says that the upstream closed the connection amid a body.
func (c *headerConn) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// CloseWrite is upstreamConn's, or TLS's.
func (c *headerConn) CloseWrite() error { return closeWrite(c.Conn) }

// hear takes what came; c is locked. Longer headers than net/http reads are faults.
func (c *headerConn) hear(b []byte) {
	from := len(c.header)
	c.header = append(c.header, b...)
	for c.open {
		i := bytes.IndexByte(c.header[from:], '\n')
		if i < 0 {
			c.open = len(c.header) <= maxAnswerHeader
			return
		}
		from += i + 1
		line := c.header[c.line:from]
		if c.line = from; len(bytes.TrimRight(line, "\r\n")) > 0 {
			continue
		}
		if informational(c.header) {
			c.header = append(c.header[:0], c.header[from:]...)
			c.line, from = 0, 0
			continue
		}
		c.open, c.names = false, namedBesideClose(c.header[:from])
		if c.header = c.header[:0]; cap(c.header) > keptHeader {
			c.header = nil
		}
	}
}

// keptHeader is the most that a connection keeps for the next header.
const keptHeader = 8 << 10

// informational says that another header follows: of all 1xx but a switch.
func informational(header []byte) bool {
	_, status, _ := bytes.Cut(header, []byte(" "))
	status = bytes.TrimLeft(status, " ")
	return bytes.HasPrefix(status, []byte("1")) && !bytes.HasPrefix(status, []byte("101"))
}

// namedBesideClose are the fields that Connection names, where it also says close.
func namedBesideClose(header []byte) (names []string) {
	closes, named := false, false
	for line := range bytes.Lines(header) {
		value := line
		if line[0] != ' ' && line[0] != '\t' { // else it goes on with the one before
			var name []byte
			name, value, _ = bytes.Cut(line, []byte(":"))
			named = bytes.EqualFold(name, []byte("Connection"))
		}
		if !named {
			continue
		}
		for token := range strings.SplitSeq(string(value), ",") {
			if token = textproto.TrimString(token); strings.EqualFold(token, "close") {
				closes = true
			} else if token != "" {
				names = append(names, token)
			}
		}
	}
	if !closes {
		return nil
	}
	return names
}

// dropNominated takes from an answer what its Connection named.
func (x *exchange) dropNominated(h http.Header) {
	if x.conn == nil {
		return
	}
	for _, name := range x.conn.nominated() {
		h.Del(name)
	}
}
