package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/spillgate/spillgate/edge/rlqs"
)

const (
	// preface is how long what a client of HTTP/2 says before its first frame is.
	preface = 24
	// mostOpen is how many calls of a connection may be under way by its frames; beyond
	// grpcMostOfConnection gRPC refuses them, and it is some frames behind.
	mostOpen = 4 * grpcMostOfConnection
	// mostSpare is how many incomings are kept for calls to come.
	mostSpare = 64
)

// conn is a connection of gRPC. It reads along, as gRPC tells nobody that a message has begun:
// how many calls wait for theirs, since when, and how much room they take.
type conn struct {
	place
	calls *calls
	waits atomic.Int64 // calls that wait for their message
	came  atomic.Int64 // bytes
	stall atomic.Int64 // when it was last not read on, by the clock of calls; 0: never
	answers

	mu      sync.Mutex // guards all below
	in, out frames
	grows   uint32 // by how much, of the frame that goes, more may come
	skip    int    // of the preface
	open    map[uint32]*incoming
	newest  uint32 // of open, or was
	spare   []*incoming
	holding int // of open, those that hold room
	waiting int64
	closed  bool
	stalls  bool // it is not read on: a message waits for room

	// What came behind the end of a message with room waits until gRPC has that: one behind it
	// may need its room. Read alone has to do with both.
	rest  []byte
	ended bool // such a message has, in the frame that comes

	// Of the frame of data that comes:
	at   *incoming // nil: of a call that is over
	data int       // how much of it is no padding
	pad  bool      // how much is padding is said first
	last bool      // nothing comes after it
}

// connAddr is the address of who calls, by which a call finds its connection.
type connAddr struct {
	net.Addr
	conn *conn
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

// connOf is the connection of a call; nil where it came over none of a listener of calls.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(connAddr); ok {
			return at.conn
		}
	}
	return nil
}

var errConn = errors.New("the connection does what no client of gRPC does, or takes more room than there is")

// Read implements net.Conn.
func (c *conn) Read(b []byte) (n int, err error) {
	kept := len(c.rest) > 0
	if kept {
		n = copy(b, c.rest)
	} else {
		n, err = c.Conn.Read(b)
		c.came.Add(int64(n))
	}
	if n == 0 {
		return n, err
	}
	had, ok := c.arrive(b[:n])
	switch {
	case !ok:
		return 0, errors.Join(errConn, c.Close())
	case kept && had == len(c.rest):
		c.rest = nil
	case kept:
		c.rest = c.rest[had:]
	case had < n:
		c.rest, err = slices.Clone(b[had:n]), nil // which comes again
	}
	return had, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.leave(b)
	c.writes.Store(1 + c.calls.clock.Load())
	defer c.writes.Store(0)
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for id := range c.open {
			c.end(id)
		}
		c.calls.forget(c)
	}
	c.tell()
	c.mu.Unlock()
	return c.place.Close()
}

// arrive reads along what comes, up to the end of a frame with that of a message that has room;
// false: the connection is to end.
func (c *conn) arrive(b []byte) (had int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.tell()
	if c.closed {
		return 0, false
	}
	all := len(b)
	n := min(c.skip, len(b))
	c.skip -= n
	b = b[n:]
	c.ended = false
	for ok := true; len(b) > 0 && (!c.ended || c.in.left > 0); {
		var payload []byte
		var begins bool
		if payload, b, begins = c.in.next(b); begins {
			ok = c.frame()
		} else if c.in.kind() == frameData {
			ok = c.payload(payload)
		}
		if !ok {
			return 0, false
		}
	}
	return all - len(b), true
}

// leave reads along what goes: calls end there.
func (c *conn) leave(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.tell()
	for len(b) > 0 {
		var payload []byte
		var begins bool
		payload, b, begins = c.out.next(b)
		switch kind := c.out.kind(); {
		case begins && (kind == frameReset || kind == frameHeaders && c.out.flags()&flagEndStream > 0):
			c.end(c.out.stream())
		case begins:
			c.grows = 0
			if in := c.open[c.out.stream()]; in != nil {
				in.goes(kind)
			}
		case kind == frameWindow:
			for _, more := range payload {
				c.grows = c.grows<<8 | uint32(more)
			}
			if in := c.open[c.out.stream()]; in != nil && c.out.left == 0 {
				in.window += int64(c.grows &^ (1 << 31))
			}
		}
	}
}

// tell has others know how many calls wait. The lock is held.
func (c *conn) tell() {
	if change := c.waiting - c.waits.Load(); change != 0 {
		c.waits.Add(change)
		c.calls.waiting.Add(change)
	}
}

// frame is that one begins. The lock is held.
func (c *conn) frame() bool {
	id, last := c.in.stream(), c.in.flags()&flagEndStream > 0
	switch c.in.kind() {
	case frameHeaders:
		switch in := c.open[id]; {
		case in == nil && id > c.newest:
			return c.begin(id, last)
		case in != nil && last:
			c.said(in)
		}
	case frameData:
		c.at, c.last = c.open[id], last
		c.data, c.pad = c.in.left, c.in.flags()&flagPadded > 0
		if c.at != nil {
			c.at.frames++
			c.at.window -= int64(c.in.left)
			if c.in.left == 0 && last {
				c.said(c.at)
			}
			return !c.at.crumbs()
		}
	case frameReset:
		c.end(id)
	}
	return true
}

// payload is a part of a frame of data. The lock is held.
func (c *conn) payload(part []byte) bool {
	if c.at == nil {
		return true
	}
	if c.pad {
		c.data, c.pad = max(0, c.data-1-int(part[0])), false
		part = part[1:]
	}
	data := part[:min(len(part), c.data)]
	c.data -= len(data)
	was := c.at.waits()
	ok := c.take(c.at, data)
	if c.at == nil { // it has ended while it waited for room
		return ok
	}
	c.changed(was, c.at.waits())
	if c.last && c.in.left == 0 {
		c.said(c.at)
	}
	return ok
}

// begin is that a call does; last: without a message. The lock is held.
func (c *conn) begin(id uint32, last bool) bool {
	if len(c.open) >= mostOpen {
		return false
	}
	var in *incoming
	if n := len(c.spare); n > 0 {
		in, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		in = new(incoming)
	}
	*in = incoming{window: grpcWindow, first: true}
	c.open[id], c.newest = in, id
	c.opened(1)
	if c.changed(false, true); last {
		c.said(in)
	}
	return true
}

// said is that a caller has said all. The lock is held.
func (c *conn) said(in *incoming) {
	c.changed(in.waits(), false)
	in.over = true
}

// end is that a call has. The lock is held.
func (c *conn) end(id uint32) {
	in := c.open[id]
	if in == nil {
		return
	}
	delete(c.open, id)
	c.opened(-1)
	c.changed(in.waits(), false)
	c.give(in, in.held)
	if c.at == in {
		c.at = nil
	}
	if len(c.spare) < mostSpare {
		c.spare = append(c.spare, in)
	}
}

func (c *conn) changed(was, is bool) {
	if was {
		c.waiting--
	}
	if is {
		c.waiting++
	}
}

// take takes what comes of a call. Of a message that is not small it asks for room as soon
// as it is known how long it is, and waits for it; where there is none, that is made longer than
// any may be, so that gRPC refuses it (RESOURCE_EXHAUSTED). false: that cannot be any more. The
// lock is held, but while it waits.
func (c *conn) take(in *incoming, data []byte) bool {
	for len(data) > 0 && !in.over {
		if in.has == len(in.prefix) {
			n := min(in.left, len(data))
			in.left -= n
			data = data[n:]
			c.ended = c.ended || in.left == 0 && in.coming > 0
			in.came()
			continue
		}
		if in.has == 0 {
			in.awaited, in.frames = 0, 1
		}
		n := copy(in.prefix[in.has:], data)
		said := data[:n]
		data = data[n:]
		if in.has += n; in.has < len(in.prefix) {
			continue
		}
		length := binary.BigEndian.Uint32(in.prefix[1:])
		in.left = int(length)
		bytes := 2 * int64(length) // what comes, and the text that is read
		switch {
		case length > rlqs.MaxMessage: // gRPC refuses it
			in.over = true
		case length <= smallMessage:
		case in.held > 0: // of one that is not done with: until then no more comes of this than a window
			in.owes += bytes
		case c.room(in, bytes):
			if c.at != in {
				return !c.closed
			}
			if in.held == 0 {
				c.holding++
			}
			in.held += bytes
			in.coming = bytes
		case c.at != in:
			return !c.closed
		case n < 4:
			return false
		default:
			copy(said[n-4:], "\xff\xff\xff\xff")
			in.over = true
		}
		in.came()
	}
	return true
}

// room takes room for a message that begins. Where there is none the connection is not read on
// until there is, for a while: but not where another message of it has room and is not whole, as
// two connections would wait for each other then. The lock is held, but while it waits.
func (c *conn) room(in *incoming, bytes int64) bool {
	if c.calls.room.Try(c.from.who, bytes) {
		return true
	}
	most := c.calls.roomWait
	for _, other := range c.open {
		if other.coming > 0 {
			most = 0
		}
	}
	c.stalls = true
	c.stall.Store(max(1, c.calls.clock.Load()))
	c.tell()
	c.mu.Unlock()
	found := c.calls.room.Wait(listenerGRPC, c.from.who, bytes, most)
	c.mu.Lock()
	c.stalls = false
	c.stall.Store(max(1, c.calls.clock.Load()))
	for _, other := range c.open {
		other.awaited = 0
	}
	if found && c.at != in { // it has ended
		c.calls.room.Give(c.from.who, bytes)
	}
	return found
}

// give gives back the room of messages. The lock is held.
func (c *conn) give(in *incoming, bytes int64) {
	if bytes == 0 {
		return
	}
	c.calls.room.Give(c.from.who, bytes)
	if in.held -= bytes; in.held == 0 {
		c.holding--
	}
}

// read is that a message of a long call has been read, and done with: of one of those that
// had a whole one, as only the connection is known. The next one takes its room then; false:
// there is none, however long it waited.
func (c *conn) read() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holding == 0 {
		return true
	}
	for id, in := range c.open {
		whole := in.held - in.coming
		if whole == 0 {
			continue
		}
		c.give(in, whole)
		owes := in.owes
		in.owes = 0
		found := owes == 0 || c.calls.room.Try(c.from.who, owes)
		if !found {
			c.mu.Unlock()
			found = c.calls.room.Wait(listenerGRPC, c.from.who, owes, c.calls.roomWait)
			c.mu.Lock()
		}
		switch {
		case !found:
			return false
		case c.open[id] != in: // it has ended
			c.calls.room.Give(c.from.who, owes)
			return true
		case owes > 0:
			if in.held == 0 {
				c.holding++
			}
			if in.held += owes; in.has > 0 {
				in.coming = owes
			}
		}
		in.awaited = 0 // its next one comes on only now
		return true
	}
	return true
}

// tick is that a second has gone by: all messages that were waited for all along, and might have
// come, were awaited for that much longer. It says whether one was for longer than that.
func (c *conn) tick(most int) (overdue bool) {
	if c.waits.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalls || unread(c.Conn) {
		return false
	}
	for _, in := range c.open {
		if in.waits() && !in.choked() && in.held == in.coming && in.owes == 0 {
			in.awaited++
			overdue = overdue || in.awaited > most
		}
	}
	return overdue
}

// silent says that a call's first message was awaited for nearly so long.
func (c *conn) silent(patience time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.open {
		if in.waits() && in.first && in.awaited >= int(patience/time.Second)-1 {
			return true
		}
	}
	return false
}

// whole says that all that was to come of its calls has, so that none is slow.
func (c *conn) whole() bool { return c.waits.Load() == 0 }

// stalled says that it was not read on of late, as a message waited for room.
func (c *conn) stalled(patience time.Duration) bool {
	at := c.stall.Load()
	return at > 0 && c.calls.clock.Load()-at <= int64(patience/time.Second)
}
