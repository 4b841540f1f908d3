package proxy

import (
	"io"
	"sync/atomic"
	"time"
)

const (
	// mostKept is how much is kept of a body that went over HTTP/2, until an answer begins: upstreams
	// refuse streams that were on their way, as they have as many as they take, or end a connection
	// (nginx does after 1000 requests). That is HTTP/2's first window, which all of it has gone in
	// by then, and the frames that wait for more.
	mostKept = 96 << 10
	// againTime is how long who still reads for the last time may take to notice that it is over.
	againTime = 50 * time.Millisecond
)

// replay is what is kept of a body that was read, for when it is sent once more. Its body's lock is held.
type replay struct {
	room *atomic.Int64 // of all that is read ahead, or kept
	text []byte
	held int64 // of room
	gone bool  // some of it is not there any more
	turn int   // for which time it is read; whoever reads for another is late
}

// keep takes what was read.
func (k *replay) keep(part []byte) {
	if k.gone {
		return
	}
	n := int64(len(k.text) + len(part))
	if more := n - k.held; more > 0 {
		if n > mostKept || k.room.Add(more) > allAhead {
			if n <= mostKept {
				k.room.Add(-more)
			}
			k.drop()
			return
		}
		k.held = n
	}
	k.text = append(k.text, part...)
}

// drop lets go of it.
func (k *replay) drop() {
	if k.held > 0 {
		k.room.Add(-k.held)
	}
	k.text, k.held, k.gone = nil, 0, true
}

// reader reads a body for one time.
type reader struct {
	*body
	turn int
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) { return r.readFor(r.turn, p) }

// Close implements io.Closer. It does nothing: the body may be read once more.
func (r *reader) Close() error { return nil }

// again is the body from its beginning, for what the upstream refused; an error where that is not
// there any more.
func (b *body) again() (io.ReadCloser, error) {
	for begin := time.Now(); !b.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > againTime { // he waits for the client
			return nil, errRefused
		}
	}
	defer b.mu.Unlock()
	k := b.kept
	if k == nil {
		return nil, errAgain // it is not of HTTP/2
	}
	if k.gone || b.closed.Load() || b.failure.Load() != nil {
		return nil, errRefused
	}
	b.ahead = append(k.text, b.ahead...)
	k.text = nil
	k.turn++
	return &reader{b, k.turn}, nil
}

// keeps has it be kept from now on, if nothing of it was read.
func (b *body) keeps(room *atomic.Int64) {
	if b.mu.TryLock() { // else it is read already
		defer b.mu.Unlock()
		if b.kept == nil {
			b.kept = &replay{room: room, gone: b.begun}
		}
	}
}
