package main

import "encoding/binary"

// frames walks over one direction of an HTTP/2 connection (RFC 9113, 4.1), however its bytes
// are cut.
type frames struct {
	head [9]byte // length (3), kind, flags, stream (4)
	has  int     // of head
	left int     // of the frame's payload, once head is whole
}

const (
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	frameWindow  = 8

	flagEndStream = 1 // of data and headers
	flagPadded    = 8
)

func (f *frames) kind() byte     { return f.head[3] }
func (f *frames) flags() byte    { return f.head[4] }
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// next takes what comes next of b: either the rest of a frame's header, and begins says that
// it is whole, or a part of its payload.
func (f *frames) next(b []byte) (payload, rest []byte, begins bool) {
	if f.left > 0 {
		n := min(f.left, len(b))
		f.left -= n
		return b[:n], b[n:], false
	}
	n := copy(f.head[f.has:], b)
	if f.has += n; f.has < len(f.head) {
		return nil, b[n:], false
	}
	f.has = 0
	f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	return nil, b[n:], true
}
