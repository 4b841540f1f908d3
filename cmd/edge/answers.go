package main

import "sync/atomic"

// gRPC keeps a call, with its metadata, until its answer is on the way, and a client may take none:
// of HTTP/2 by a window of 0, or as it reads nothing at all. So calls have places from their header
// until their end has gone, by the frames, and a connection whose answers are not taken ends.
const (
	// grpcMostOpen is how many calls are open, streams too: those that are not read yet are, and
	// those whose answers go. An address has a quarter of them, but for proxies.
	grpcMostOpen  = 2 * grpcMostUnderway
	grpcOpenParts = 4
	// grpcTaken is for how many seconds nothing of an answer may go.
	grpcTaken = 20
)

// answers is what a connection knows of those that go over it.
type answers struct {
	writes  atomic.Int64 // since when, by the clock of calls, what goes is written; 0: nothing is
	behind  bool         // there were more of those that wait than streams a second ago; the conn's lock guards it
	streams atomic.Int64 // calls that are under way whose answers may be silent: of quotas, health and reflection
}

// opened counts calls of the connection.
func (c *conn) opened(n int64) {
	c.calls.open.Add(n)
	c.from.open.Add(n)
}

// crowded says that there are more calls open than there are places, of the address or of all.
func (c *calls) crowded(from *address) bool {
	return c.open.Load() > c.mostOpen || from.who.IsValid() && from.open.Load() > c.mostOpen/grpcOpenParts
}

// goes is that a frame of its answer does.
func (in *incoming) goes(kind byte) {
	switch kind {
	case frameHeaders:
		in.answers = true
	case frameData:
		in.untaken = 0
	}
}

// untaken is that a second has gone by. It says whether for longer than that nothing goes of what
// is written, or of more answers than there are streams, as it is not known which they are: for
// another second, as a stream is none any more just before the end of its answer goes.
func (c *conn) untaken(most int) bool {
	if since := c.writes.Load(); since > 0 && c.calls.clock.Load()+1-since > int64(most) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	late := int64(0)
	for _, in := range c.open {
		if in.answers {
			if in.untaken++; in.untaken > most {
				late++
			}
		}
	}
	was := c.behind
	c.behind = late > c.streams.Load()
	return was && c.behind
}
