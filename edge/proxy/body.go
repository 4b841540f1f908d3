package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errTooLarge = errors.New("the body is larger than may be sent here")
	errClosed   = errors.New("the request has been answered")
)

const (
	// aheadBytes is the most that is read of a body while its request waits, and
	// allAhead that of all at once: who waits with more is not seen to leave.
	aheadBytes = 64 << 10
	allAhead   = 16 << 20
	// skimBytes is what is taken of a body that nobody wants before it is answered, and
	// skimTime how long that may take: most are there already, and then the connection
	// serves on.
	skimBytes = 64 << 10
	skimTime  = 20 * time.Millisecond
	// leaveTime is how long net/http may take for what else comes of it, before it closes
	// the connection.
	leaveTime = time.Second
)

var longAgo = time.Unix(1, 0)

// body is a request's body on its way: read with a deadline for each pause of the
// client's, and no further than it may be long.
type body struct {
	src    io.Reader
	ends   http.Header              // its trailers, filled where it is over
	trim   func(http.Header)        // takes from them what may be none
	rc     *http.ResponseController // of the client's connection
	pause  time.Duration
	pauses *pauses // of HTTP/2; nil: the connection's deadlines are the pauses'
	asks   bool    // the client waits to be told that it is wanted (Expect)
	left   int64   // bytes that it may still have; negative: any

	mu     sync.Mutex // guards what follows, left, and what src reads; held while the client is waited for
	ahead  []byte     // read, and not yet sent on
	given  bool       // some of it was, to the upstream
	kept   *replay    // nil: nothing is
	stands standing

	taking  atomic.Pointer[due]          // what is read, by an upstream of HTTP/2; nil: of HTTP/1, or none yet
	begun   atomic.Bool                  // somebody reads it for the upstream, or is about to
	turn    atomic.Int64                 // for how many times it was sent before
	keepIn  atomic.Pointer[atomic.Int64] // where there is room for what is kept of it; nil: it is not of HTTP/2
	talking atomic.Bool                  // the upstream answers already: both may be silent as they like
	endless atomic.Bool                  // it may be longer than left
	closed  atomic.Bool
	told    atomic.Bool           // who asks has been told to go on
	cut     atomic.Bool           // the handler is about to return, or nobody takes more: who reads is not to wait
	over    atomic.Bool           // it was read to its end
	failure atomic.Pointer[error] // why it cannot be
	endedAt atomic.Int64          // when it was over, ns since 1970

	leaving sync.Mutex // guards what follows; held to end reading
	gone    bool       // the handler may have returned
	stopped bool       // the upstream took nothing more
}

// Read implements io.Reader, for the first time that it is sent.
func (b *body) Read(p []byte) (int, error) { return b.readFor(0, p) }

// readFor reads for one time that it is sent.
func (b *body) readFor(turn int64, p []byte) (n int, err error) {
	// What it waits for now is the client, be it that another reads, as store may still.
	if t := b.taking.Load(); t != nil && b.turn.Load() == turn {
		t.stop()
		defer t.start()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := b.keepIn.Load(); room != nil && b.kept == nil {
		b.kept = &replay{room: room, gone: b.given}
	}
	b.begun.Store(true)
	if b.turn.Load() != turn { // in this order, as again looks at the two in the other
		return 0, errClosed
	}
	if k := b.kept; k != nil {
		p = p[:min(len(p), k.most())]
		defer func() {
			if k.keep(p[:n]); b.talking.Load() {
				k.drop()
			}
		}()
	}
	b.given = true
	if len(b.ahead) > 0 {
		n = copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	n, err = b.read(p, true)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.fail(err)
	}
	return n, err
}

// Close implements io.Closer. Who reads past it gets an error; what is left is settle's.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// read reads from the client; b is locked. wanted: somebody waits for it.
func (b *body) read(p []byte, wanted bool) (int, error) {
	switch {
	case b.over.Load():
		return 0, io.EOF
	case b.failure.Load() != nil:
		return 0, *b.failure.Load()
	case b.closed.Load():
		return 0, errClosed
	}
	if b.left >= 0 && int64(len(p)) > b.left && !b.endless.Load() {
		p = p[:b.left+1] // one more tells that there is more
	}
	if b.pauses == nil {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.pause)) // a server without deadlines has its own
		if b.talking.Load() {
			_ = b.rc.SetReadDeadline(time.Time{})
		}
		if b.cut.Load() { // as this deadline may stand over that of leave
			_ = b.rc.SetReadDeadline(longAgo)
		}
	} else {
		b.pauses.begins(wanted)
		defer b.pauses.ends()
	}
	b.goesOn()
	n, err := b.src.Read(p)
	b.told.Store(true)
	b.went(n, len(p))
	if b.left >= 0 && !b.endless.Load() {
		if int64(n) > b.left {
			n, err = int(b.left), errTooLarge
		}
		b.left -= int64(n)
	}
	if err == io.EOF {
		b.trim(b.ends)
		b.endedAt.Store(time.Now().UnixNano())
		b.over.Store(true)
	}
	if err == nil {
		b.rests()
	}
	return n, err
}

func (b *body) fail(err error) { b.failure.CompareAndSwap(nil, &err) }

// talk has pauses of the client's be no fault from now on: the upstream does not wait for
// the body, but answers to what it has, as streams of gRPC do. Those may also be of any length,
// as their messages are bounded by who reads them.
func (b *body) talk(stream bool) {
	b.endless.Store(stream)
	b.talking.Store(true)
	if b.mu.TryLock() { // else who reads sees it
		if b.kept != nil {
			b.kept.drop()
		}
		b.mu.Unlock()
	}
	if b.pauses != nil {
		b.pauses.end()
	} else if !b.over.Load() {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
}

// readAhead reads a small body of HTTP/1 while its request waits for its turn: only
// once it is read does net/http see that the client leaves. What takes longer than the
// turn has the request go later, by its client's own fault.
func (b *body) readAhead(length int64, budget *atomic.Int64) (release func()) {
	if length <= 0 || length > aheadBytes {
		return func() {}
	}
	if budget.Add(length) > allAhead {
		budget.Add(-length)
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	buf := make([]byte, length)
	n := 0
	for n < len(buf) {
		more, err := b.read(buf[n:], true)
		if n += more; err != nil {
			if err != io.EOF {
				b.fail(err)
			}
			break
		}
	}
	b.ahead = buf[:n]
	return func() { budget.Add(-length) }
}

// skim takes off the connection what is there of a body that nobody wants.
func (b *body) skim() {
	if b.asks || b.failure.Load() != nil && !errors.Is(*b.failure.Load(), errTooLarge) || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	_ = b.rc.SetReadDeadline(time.Now().Add(skimTime))
	if _, err := io.CopyN(io.Discard, b.src, skimBytes); err == io.EOF {
		b.over.Store(true)
		// Or net/http takes the deadline for the client's leaving, and ends what the
		// request's context holds.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
}

// stop has who reads for the upstream wait no longer, which takes nothing more.
func (b *body) stop() {
	b.leaving.Lock()
	defer b.leaving.Unlock()
	if b.gone {
		return
	}
	b.stopped = true
	b.closed.Store(true)
	b.cut.Store(true)
	_ = b.rc.SetReadDeadline(longAgo) // over HTTP/1 net/http takes that for the client's leaving
}

// wasStopped says so.
func (b *body) wasStopped() bool {
	b.leaving.Lock()
	defer b.leaving.Unlock()
	return b.stopped
}

// leave ends all reading of a body, so that its handler may return: the transport goes on
// to read where the upstream has answered, or the client has left, and sets deadlines,
// which after that crashes in net/http. Of HTTP/1, of which the rest stands in the
// connection, net/http then waits for it, for leaveTime, and closes the connection (httpapi.Lingers). Of HTTP/2 who
// reads may do so until the stream ends: what would end that now would have what comes be
// answered with an error, before the answer has gone.
func (b *body) leave(waits bool) {
	b.leaving.Lock()
	b.gone = true
	b.leaving.Unlock()
	b.closed.Store(true)
	b.cut.Store(true)
	if t := b.taking.Load(); t != nil {
		t.end()
	}
	free := b.mu.TryLock() // else somebody waits for the client, or is about to
	if b.pauses != nil {
		if b.pauses.end(); !free {
			go func() { // the stream's end ends it
				b.mu.Lock()
				defer b.mu.Unlock()
				b.release()
			}()
			return
		}
	} else if !free {
		_ = b.rc.SetReadDeadline(longAgo)
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	b.release()
	if waits && !b.over.Load() {
		_ = b.rc.SetReadDeadline(time.Now().Add(leaveTime))
	}
}

// release gives back what is held of room; b is locked.
func (b *body) release() {
	b.goesOn()
	b.stands.moves()
	if b.kept != nil {
		b.kept.drop()
	}
	if b.stands.stored > 0 {
		b.stands.ahead.Add(-b.stands.stored)
	}
}
