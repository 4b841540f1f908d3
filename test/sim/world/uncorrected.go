package world

import (
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Where Config.Uncorrected is set, frames are stamped as if all clocks showed the
// same: the stamps tell how long frames take, and not how far a clock is off. What
// the frames count stays where the sender's clock put it.

// restamp has the stamps of a reply be by the clock of who gets it.
func (w *World) restamp(reply []byte, of, to *clock) []byte {
	var down deltasync.Down
	if !w.cfg.Uncorrected || of == nil || down.UnmarshalBinary(reply) != nil {
		return reply
	}
	off := w.ahead(of, to)
	down.ReceivedAt += off
	down.SentAt += off
	return encoded(down.AppendBinary(nil))
}

// restampPush does it with a push.
func (w *World) restampPush(payload []byte, of, to *clock) []byte {
	var hot deltasync.Hot
	if !w.cfg.Uncorrected || hot.UnmarshalBinary(payload) != nil {
		return payload
	}
	hot.SentAt += w.ahead(of, to)
	return encoded(hot.AppendBinary(nil))
}

// ahead is how far one clock is ahead of another.
func (w *World) ahead(of, to *clock) int64 {
	return int64(to.at(w.now).Sub(of.at(w.now)) / time.Nanosecond)
}

// clockOf is that of whoever answers for a lane; nil where nobody does, or one of
// several.
func (h *hub) clockOf(lane int, now time.Time) *clock {
	if up := h.serving(lane, now); len(up) == 1 {
		return &up[0].clock
	}
	return nil
}

func encoded(b []byte, err error) []byte {
	if err != nil {
		panic(err) // it was read from a frame
	}
	return b
}
