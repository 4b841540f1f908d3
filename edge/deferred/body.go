package deferred

import (
	"io"
	"net/http"
	"time"
)

// readBytes is what is read of a body at a time.
const readBytes = 32 << 10

// read reads the body of a request that may wait, whole; or says why not: it is too long,
// slow or broken off, or there is no memory for it. It is the passage's then, and what it
// takes is held until that is over.
func (f *Front) read(p *passage, r *http.Request) result {
	if r.Body == nil || r.Body == http.NoBody {
		return resultKept
	}
	// One deadline for all of it, on the connection, or the stream of HTTP/2: a server
	// without deadlines has its own.
	rc := http.NewResponseController(p.client)
	_ = rc.SetReadDeadline(time.Now().Add(f.cfg.ClientTimeout))
	for {
		if !f.grow(p, r.ContentLength) {
			return resultMemory
		}
		n, err := r.Body.Read(p.body[len(p.body):cap(p.body)])
		p.body = p.body[:len(p.body)+n]
		if int64(len(p.body)) > f.cfg.Body {
			return resultLarge
		}
		if err == io.EOF {
			// Or net/http takes the deadline for the client's leaving.
			_ = rc.SetReadDeadline(time.Time{})
			return resultKept
		}
		if err != nil {
			return resultLate
		}
	}
}

// grow makes room in a body for what is to be read, of the length that its client says,
// or -1; false: there is none.
func (f *Front) grow(p *passage, length int64) bool {
	if len(p.body) < cap(p.body) {
		return true
	}
	size := max(2*cap(p.body), readBytes)
	if length >= 0 {
		size = min(size, int(length)+1) // one more, that its end is seen
	}
	size = max(min(size, int(f.cfg.Body)+1), len(p.body)+1)
	if !f.held.Try(p.who, int64(size-cap(p.body))) {
		return false
	}
	body := make([]byte, len(p.body), size)
	copy(body, p.body)
	p.body = body
	return true
}
