package proxy

import (
	"sync/atomic"
	"time"
)

const (
	// mostKept is how much is kept of a body that went over HTTP/2, until an answer begins: upstreams
	// refuse streams that were on their way, as they have as many as they take, or end a connection
	// (nginx does after 1000 requests). That is HTTP/2's first window, which all of it has gone in
	// by then, and a frame that waits for more; allKept is that of all.
	mostKept = 80 << 10
	allKept  = 16 << 20
	// mostRead is how much is read at once: an upstream that takes so much moves on.
	mostRead = 64 << 10
	// againTime is how long who still reads for the last time may take to notice that it is over.
	againTime = 50 * time.Millisecond
	// abortTime is how long an answer may take to be known once net/http has let go of a body.
	abortTime = time.Second
)

// replay is what is kept of a body that was read, for when it is sent once more. Its body's lock is held.
type replay struct {
	room *atomic.Int64 // of all that is kept
	text []byte
	held int64 // of room
	gone bool  // some of it is not there any more
}

// keep takes what was read.
func (k *replay) keep(part []byte) {
	if k.gone || len(part) == 0 {
		return
	}
	n := int64(len(k.text) + len(part))
	if n > mostKept {
		k.drop()
		return
	}
	if more := n - k.held; more > 0 {
		if k.room.Add(more) > allKept {
			k.room.Add(-more)
			k.drop()
			return
		}
		k.held = n
	}
	k.text = append(k.text, part...)
}

// most is how much may be read at once: what can be kept, as long as all is.
func (k *replay) most() int {
	if n := mostKept - len(k.text); !k.gone && n > 0 {
		return min(n, mostRead)
	}
	return mostRead
}

// drop lets go of it.
func (k *replay) drop() {
	if k.held > 0 {
		k.room.Add(-k.held)
	}
	k.text, k.held, k.gone = nil, 0, true
}

// reader is a body that is sent, for one time.
type reader struct {
	*body
	turn  int64
	shut  atomic.Bool
	ended func() // it was let go of though it is not over
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.shut.Load() {
		return 0, errClosed
	}
	return r.readFor(r.turn, p)
}

// Close implements io.Closer. The body may be read once more, by another.
func (r *reader) Close() error {
	if !r.shut.Swap(true) && !r.over.Load() {
		r.ended()
	}
	return nil
}

// sends is the body for the next time that it is sent.
func (b *body) sends(ended func(turn int64)) *reader {
	turn := b.turn.Load()
	return &reader{body: b, turn: turn, ended: func() { ended(turn) }}
}

// again has the body begin anew, for what the upstream refused; an error where some of it is not
// there any more.
func (b *body) again() error {
	room := b.keepIn.Load()
	if room == nil {
		return errAgain // it is not of HTTP/2
	}
	b.turn.Add(1) // who reads for the last time gets nothing more
	if !b.begun.Load() {
		return nil
	}
	for begin := time.Now(); !b.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > againTime { // he waits for the client
			return errRefused
		}
	}
	defer b.mu.Unlock()
	switch k := b.kept; {
	case b.closed.Load() || b.failure.Load() != nil || k != nil && k.gone:
		return errRefused
	case k != nil:
		b.ahead = append(k.text, b.ahead...)
		k.text = nil
	}
	return nil
}
