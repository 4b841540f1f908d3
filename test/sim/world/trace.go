package world

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"time"
)

// trace is a hash over all that happened, in order: two runs of one seed must
// have the same.
type trace struct {
	h hash.Hash64
	n uint64
}

func (t *trace) add(now time.Time, what, who string, payload []byte) {
	if t.h == nil {
		t.h = fnv.New64a()
	}
	t.n++
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(now.UnixNano()))
	t.h.Write(b[:])
	t.h.Write([]byte(what))
	t.h.Write([]byte(who))
	t.h.Write(payload)
}

// Trace is a hash over every frame, answer and push so far, when and by whom it
// was sent, and over what Note added; events is their number.
func (w *World) Trace() (sum, events uint64) {
	if w.trace.h == nil {
		return 0, 0
	}
	return w.trace.h.Sum64(), w.trace.n
}

// Note adds something to the trace.
func (w *World) Note(what, who string) { w.trace.add(w.now, what, who, nil) }
