package main

import "encoding/binary"

const (
	// smallMessage is what needs no room: as many as may be waited for are bounded by it.
	smallMessage = 16 << 10
	// mostFrames is how many frames a message may come in, beside one for each KiB of it: each
	// takes memory beside what is in it.
	mostFrames = 64
)

// incoming is what comes of a call of gRPC: messages, each behind five bytes that say how long
// it is.
type incoming struct {
	awaited int     // seconds that it was, or its message, since it began, and might have come
	window  int64   // how much more may come until we read what has
	prefix  [5]byte // of the message that comes
	has     int     // of prefix; 0 between messages
	left    int     // of the message
	frames  int     // that it came in so far
	coming  int64   // room that it takes
	held    int64   // the same, and of those before that are not read yet
	owes    int64   // room that is to be taken for those behind them
	first   bool    // no message has come yet
	over    bool    // nothing more is expected: it was refused, or its caller has said all
	answers bool    // its answer has begun to go
	untaken int     // seconds since any of that went
}

// waits says that a message of it has begun and is not whole, or that none came yet.
func (in *incoming) waits() bool { return !in.over && (in.first || in.has > 0) }

// choked says that nothing more may come of it until we read what has. 1: who does not know our
// windows yet has one less.
func (in *incoming) choked() bool { return in.window <= 1 }

// crumbs says that a message comes in so small pieces that they take more than it.
func (in *incoming) crumbs() bool {
	return in.has > 0 && !in.over && in.frames > mostFrames+int(binary.BigEndian.Uint32(in.prefix[1:])>>10)
}

// came sees whether the message is whole.
func (in *incoming) came() {
	if in.left == 0 && !in.over {
		in.has, in.coming, in.first = 0, 0, false
	}
}
