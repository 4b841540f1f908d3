package proxy

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// Over HTTP/2 a window is what comes of a body that nobody takes yet, and all that comes in a
// round trip. So it is large, and who holds what it may have is bounded: of answers as many
// have a wide one as there is room, all others a narrow one; of uploads, whose window is one for
// all, those end for which there is no room, if the upstream does not take them as fast as they come.
const (
	answerWindow = 1 << 20
	narrowWindow = 128 << 10
	answerRoom   = 256 << 20
	bodyWindow   = 512 << 10
	bodyRoom     = 512 << 20
	// unreadTime is how long an upload for which there is no room may take for a window of it.
	unreadTime = time.Second
	// aheadFirst is how much room what is read ahead of a body takes at first, and littleLeft
	// what may be left of one that takes none.
	aheadFirst = 4 << 10
	littleLeft = 4 << 10
)

var errCrowded = errors.New("there is no room for what is not read of the body")

// who is whom room is taken for: an address, or not valid: those that all of it is for.
func (p *Proxy) who(r *http.Request) netip.Addr {
	if _, trusted := p.api.PeerOf(r); trusted {
		return netip.Addr{}
	}
	return httpapi.Caller(r.RemoteAddr, nil)
}

// way is the transport for a request: over HTTP/2 by one that has wide windows, if there is room until
// leave is called. An https upstream is asked over HTTP/1, but for calls of gRPC and streams of
// Connect, as that has a connection for each request: what servers end one for harms nobody else.
func (p *Proxy) way(r *http.Request, who netip.Addr) (way http.RoundTripper, leave func()) {
	if p.narrow == nil || p.calls != nil && (p.asksToSwitch(r) || !talks(r) && !p.spoken.isAlone()) {
		return p.transport, func() {}
	}
	return p.overHTTP2(who)
}

func (p *Proxy) overHTTP2(who netip.Addr) (way http.RoundTripper, leave func()) {
	if !p.answers.Try(who, answerWindow) {
		return p.narrow, func() {}
	}
	leave = func() { p.answers.Give(who, answerWindow) }
	if p.calls != nil {
		return p.calls, leave
	}
	return p.transport, leave
}

// talks says that a request may have its answer begin, and go on, before it ends, which over HTTP/1
// servers need not do.
func talks(r *http.Request) bool {
	return httpapi.GRPC(r) || strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+")
}

// standing is what may be there of a body of HTTP/2 that nobody reads just now.
type standing struct {
	room  *httpapi.Room // nil: it is not of HTTP/2
	who   netip.Addr
	after time.Duration
	rest  int64                  // of the body, that nobody has read; negative: that is not known
	held  int64                  // of room
	late  *time.Timer            // by when there is to be room; nil: it is not wanted
	turns int64                  // how often it no longer was
	went  int64                  // since it is wanted
	end   atomic.Pointer[func()] // the request
	turn  atomic.Bool            // it is no longer read ahead

	ahead  *atomic.Int64 // room of what is read ahead of all
	stored int64         // of it
}

// rests is that nobody reads from now on; b is locked.
func (b *body) rests() {
	u := &b.stands
	n := int64(bodyWindow)
	if u.rest >= 0 {
		n = min(n, u.rest)
	}
	switch {
	case u.room == nil || n <= littleLeft || b.over.Load() || b.failure.Load() != nil:
		u.moves()
	case u.room.Try(u.who, n):
		u.moves()
		u.held = n
	case u.late == nil:
		u.late, u.went = time.AfterFunc(u.after, b.crowded(u.turns, n)), 0
	}
}

// goesOn is that somebody reads; b is locked.
func (b *body) goesOn() {
	u := &b.stands
	if u.held > 0 {
		u.room.Give(u.who, u.held)
		u.held = 0
	}
}

// went is that so much was read of what may have been asked for; b is locked.
func (b *body) went(n, asked int) {
	u := &b.stands
	u.rest -= min(max(0, u.rest), int64(n)) // which stays negative where it is
	if u.went += int64(n); n < asked || u.went >= bodyWindow {
		u.moves() // nothing is left, or the upstream takes what comes
	}
}

// moves is that the body needs no room, or has it, or moves without; its body is locked.
func (u *standing) moves() {
	if u.late != nil {
		u.late.Stop()
		u.late = nil
		u.turns++
	}
}

// crowded ends a request for whose body there is still no room, which was wanted for that turn.
func (b *body) crowded(turn, n int64) func() {
	return func() {
		b.mu.Lock() // who reads meanwhile has it wait, as there is nothing then
		defer b.mu.Unlock()
		u := &b.stands
		switch {
		case u.turns != turn || b.closed.Load():
		case u.room.Try(u.who, n):
			u.moves()
			u.held += n
		default:
			b.fail(errCrowded)
			if end := u.end.Load(); end != nil {
				(*end)()
			}
		}
	}
}

// endBy has end be called where the request must, as there is no room.
func (b *body) endBy(end func()) {
	b.stands.end.Store(&end)
	if p := b.failure.Load(); p != nil && *p == errCrowded {
		end()
	}
}

// store reads a body of HTTP/2 while its request waits for its turn: of small ones, as calls of
// gRPC are, it is known then how much is held. Nobody waits for it before the turn, so that it may
// be silent until then. It is over with the body, or the turn.
func (b *body) store() {
	u := &b.stands
	for most := int64(aheadFirst); !u.turn.Load() && most <= aheadBytes; {
		b.mu.Lock()
		if b.closed.Load() || !b.grow(most) {
			b.mu.Unlock()
			return
		}
		buf := make([]byte, most-int64(len(b.ahead)))
		n, err := b.read(buf, false)
		b.ahead = append(b.ahead, buf[:n]...)
		if err != nil && !b.over.Load() && !b.closed.Load() {
			b.fail(err)
		}
		full := int64(len(b.ahead)) == most
		b.mu.Unlock()
		if err != nil {
			return
		}
		if full {
			most *= 2
		}
	}
}

// itsTurn is that it is wanted from now on, also what store still reads.
func (b *body) itsTurn() {
	if b.stands.turn.Store(true); b.pauses != nil {
		b.pauses.wants()
	}
}

// grow takes room for what is read ahead; b is locked.
func (b *body) grow(most int64) bool {
	u := &b.stands
	more := most - u.stored
	if more > 0 && u.ahead.Add(more) > allAhead {
		u.ahead.Add(-more)
		return false
	}
	u.stored += max(0, more)
	return true
}
